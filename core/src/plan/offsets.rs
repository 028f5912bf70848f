//! Offsets: places for intervals of memory such that no two that are live at
//! once overlap, and none crosses a page.
//!
//! This is dynamic storage allocation, which is NP-hard. Greedy first fit in
//! several orders usually meets the bound of live bytes; where it does not, the
//! order is repaired: buffers that stick out at the top are placed earlier
//! (after "squeaky wheel" optimisation, D. E. Joslin and D. P. Clements, JAIR
//! 1999). Repair works on one stretch of time after the other, which long-lived
//! buffers at the bottom leave independent of each other.

/// Memory needed from moment `start` to moment `end`, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First moment.
    pub start: usize,
    /// Last moment.
    pub end: usize,
    /// Size, a multiple of the alignment.
    pub bytes: u64,
}

/// Places for all intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Virtual offset of each interval; page `offset / page_bytes`.
    pub offsets: Vec<u64>,
    /// Sizes of the pages.
    pub pages: Vec<u64>,
}

impl Offsets {
    /// Bytes of all pages.
    pub fn total_bytes(&self) -> u64 {
        self.pages.iter().sum()
    }
}

/// Most bytes live at one moment: no placement is smaller.
pub fn live_bound(items: &[Interval]) -> u64 {
    let mut events: Vec<(usize, i64)> = items
        .iter()
        .flat_map(|i| [(i.start, i.bytes as i64), (i.end + 1, -(i.bytes as i64))])
        .collect();
    // At one moment, what ends goes before what starts.
    events.sort_unstable();
    let (mut live, mut peak) = (0, 0);
    for (_, change) in events {
        live += change;
        peak = peak.max(live);
    }
    peak as u64
}

/// Places the intervals. Every interval must be at most `page_bytes` large.
pub fn assign(items: &[Interval], page_bytes: u64) -> Offsets {
    let bound = live_bound(items);
    let mut best = greedy(items, 0, bound, page_bytes).0;
    let moments = items.iter().map(|i| i.end + 1).max().unwrap_or(0);
    // Where one page does not hold all, the bound is out of reach anyway.
    for share in [2, 1] {
        if best.total_bytes() <= bound || bound > page_bytes {
            break;
        }
        let repaired = repair(items, bound, moments / share);
        // A repair knows one page only.
        let total = repaired.total_bytes();
        if total < best.total_bytes() && total <= page_bytes {
            best = repaired;
        }
    }
    best
}

/// First fit in the best of several orders, and that order. The first `fixed`
/// intervals are placed first, as they come.
fn greedy(items: &[Interval], fixed: usize, bound: u64, page_bytes: u64) -> (Offsets, Vec<usize>) {
    let length = |i: usize| items[i].end - items[i].start + 1;
    let area = |i: usize| items[i].bytes as u128 * length(i) as u128;
    let moments = items.iter().map(|i| i.end + 1).max().unwrap_or(0);
    // What lives through everything goes to the bottom in every order.
    let whole = |i: usize| length(i) < moments;
    type Key<'a> = Box<dyn Fn(usize) -> (u128, u128) + 'a>;
    let descending = |x: u128| u128::MAX - x;
    let keys: [Key; 5] = [
        Box::new(|i| (descending(items[i].bytes.into()), descending(length(i) as u128))),
        Box::new(|i| (descending(length(i) as u128), descending(items[i].bytes.into()))),
        Box::new(|i| (descending(area(i)), 0)),
        Box::new(|i| (items[i].start as u128, descending(items[i].bytes.into()))),
        Box::new(|i| (descending(items[i].end as u128), descending(items[i].bytes.into()))),
    ];
    let mut best: Option<(Offsets, Vec<usize>)> = None;
    for key in &keys {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order[fixed..].sort_by_key(|&i| (whole(i), key(i), i));
        let placed = first_fit(items, &order, page_bytes);
        let total = placed.total_bytes();
        if best.as_ref().is_none_or(|(b, _)| total < b.total_bytes()) {
            best = Some((placed, order));
        }
        if total <= bound {
            break;
        }
    }
    best.expect("there are orders")
}

/// Places on a single page: at the bottom, in a stack, what lives for more
/// than `long` moments, at least half of all, so that any two of them meet;
/// above, each stretch of time by itself.
fn repair(items: &[Interval], bound: u64, long: usize) -> Offsets {
    let length = |i: &Interval| i.end - i.start + 1;
    let mut offsets = vec![0; items.len()];
    let (mut bottom, mut rest): (Vec<usize>, Vec<usize>) =
        (0..items.len()).partition(|i| length(&items[*i]) > long);
    bottom.sort_by_key(|&i| (usize::MAX - length(&items[i]), items[i].start, i));
    // Neighbours in the stack that live alike count as one.
    let mut blocks: Vec<Interval> = Vec::new();
    let mut top = 0;
    for &i in &bottom {
        offsets[i] = top;
        top += items[i].bytes;
        match blocks.last_mut().filter(|b| (b.start, b.end) == (items[i].start, items[i].end)) {
            Some(block) => block.bytes += items[i].bytes,
            None => blocks.push(items[i]),
        }
    }
    rest.sort_by_key(|&i| (items[i].start, i));
    let (mut first, mut end) = (0, 0);
    for n in 0..=rest.len() {
        if n == rest.len() || (n > first && items[rest[n]].start > end) {
            let stretch = &rest[first..n];
            let mut local = blocks.clone();
            local.extend(stretch.iter().map(|i| items[*i]));
            let placed = repair_stretch(&local, blocks.len(), bound);
            stretch.iter().zip(&placed[blocks.len()..]).for_each(|(i, o)| offsets[*i] = *o);
            first = n;
        }
        if n < rest.len() {
            end = end.max(items[rest[n]].end);
        }
    }
    let total = items.iter().zip(&offsets).map(|(i, o)| o + i.bytes).max().unwrap_or(0);
    Offsets { offsets, pages: vec![total] }
}

/// Searches an order by which nothing sticks out above `bound`: again and
/// again something that does moves to the front a bit, and what is no worse
/// is kept. The numbers drawn are always the same.
fn repair_stretch(items: &[Interval], fixed: usize, bound: u64) -> Vec<u64> {
    let overhang = |offsets: &[u64]| -> u64 {
        items.iter().zip(offsets).map(|(i, o)| (o + i.bytes).saturating_sub(bound)).sum()
    };
    let (placed, mut order) = greedy(items, fixed, bound, u64::MAX);
    let mut offsets = placed.offsets;
    let mut worst = overhang(&offsets);
    let rounds = 40_000_000 / (items.len() * items.len() + 1000);
    let mut best = (worst, offsets.clone());
    let smallest = items[fixed..].iter().map(|i| i.bytes).min().unwrap_or(0);
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..rounds {
        if worst == 0 {
            break;
        }
        let out = |p: &usize| offsets[order[*p]] + items[order[*p]].bytes > bound;
        let sticking: Vec<usize> = (fixed + 1..order.len()).filter(out).collect();
        let mut next = order.clone();
        // Now and then something else moves, so as not to go in circles.
        let from = match sticking.len() {
            n if n > 0 && draw(4) > 0 => sticking[draw(n)],
            _ if order.len() > fixed + 1 => fixed + 1 + draw(order.len() - fixed - 1),
            _ => break,
        };
        // Before one that lives at the same time: nothing else matters.
        let moved = items[order[from]];
        let meets = |p: &usize| {
            let other = items[order[*p]];
            other.start <= moved.end && moved.start <= other.end
        };
        let before: Vec<usize> = (fixed..from).filter(meets).collect();
        if before.is_empty() {
            continue;
        }
        next.remove(from);
        next.insert(before[draw(before.len())], order[from]);
        let tried = first_fit(items, &next, u64::MAX).offsets;
        let now = overhang(&tried);
        if now < best.0 {
            best = (now, tried.clone());
        }
        // A step back now and then leads out of a dead end.
        let slack = if draw(4) == 0 { smallest } else { 0 };
        if now <= worst + slack {
            (order, offsets, worst) = (next, tried, now);
        }
    }
    best.1
}

/// Lowest place at which each interval fits, in the given order.
fn first_fit(items: &[Interval], order: &[usize], page_bytes: u64) -> Offsets {
    let mut offsets = vec![0; items.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(items.len()); // by offset
    for &i in order {
        let item = items[i];
        let mut at = 0;
        for &j in &placed {
            let other = items[j];
            if other.end < item.start || item.end < other.start {
                continue;
            }
            if within_page(at, item.bytes, page_bytes) + item.bytes <= offsets[j] {
                break;
            }
            at = at.max(offsets[j] + other.bytes);
        }
        at = within_page(at, item.bytes, page_bytes);
        offsets[i] = at;
        let place = placed.partition_point(|&j| offsets[j] <= at);
        placed.insert(place, i);
    }
    let mut pages = Vec::new();
    for (item, offset) in items.iter().zip(&offsets) {
        let page = (offset / page_bytes) as usize;
        if pages.len() <= page {
            pages.resize(page + 1, 0);
        }
        pages[page] = pages[page].max(offset % page_bytes + item.bytes);
    }
    Offsets { offsets, pages }
}

/// The lowest offset from `at` on at which `bytes` do not cross a page.
fn within_page(at: u64, bytes: u64, page_bytes: u64) -> u64 {
    if at / page_bytes == (at + bytes - 1) / page_bytes {
        at
    } else {
        at.next_multiple_of(page_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(items: &[Interval], placed: &Offsets, page: u64) {
        for (i, a) in items.iter().enumerate() {
            let (o, end) = (placed.offsets[i], placed.offsets[i] + a.bytes);
            assert_eq!(o / page, (end - 1) / page, "crosses a page");
            for (j, b) in items.iter().enumerate().skip(i + 1) {
                let (p, q) = (placed.offsets[j], placed.offsets[j] + b.bytes);
                let together = a.start <= b.end && b.start <= a.end;
                assert!(!together || end <= p || q <= o, "{a:?} and {b:?} overlap");
            }
        }
    }

    #[test]
    fn pages_are_not_crossed() {
        let items = [Interval { start: 0, end: 9, bytes: 60 }; 5];
        let placed = assign(&items, 100);
        check(&items, &placed, 100);
        assert_eq!(placed.pages, vec![60; 5]);
    }

    #[test]
    fn a_chain_needs_two() {
        let items: Vec<Interval> =
            (0..20).map(|t| Interval { start: t, end: t + 1, bytes: 256 }).collect();
        let placed = assign(&items, u64::MAX / 2);
        check(&items, &placed, u64::MAX / 2);
        assert_eq!(placed.total_bytes(), 512);
    }
}
