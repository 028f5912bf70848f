//! Offsets: places for intervals of memory such that no two that are live at
//! once overlap, and none crosses a page.
//!
//! This is dynamic storage allocation, which is NP-hard. Greedy first fit in
//! several orders usually meets the bound of live bytes; where it does not, the
//! order is repaired: buffers that stick out at the top are placed earlier
//! ("squeaky wheel" optimisation, D. E. Joslin and D. P. Clements, JAIR 1999).

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
    let mut best = Best { items, page_bytes, bound: live_bound(items), found: None };
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
    let mut done = items.is_empty();
    for key in &keys {
        if done {
            break;
        }
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&i| (whole(i), key(i), i));
        done = best.consider(order);
    }
    // Repair, as much as is affordable for the number of intervals.
    let rounds = (4_000_000 / (items.len() * items.len() + 1)).min(400);
    let mut order = best.found.as_ref().map(|f| f.order.clone()).unwrap_or_default();
    for _ in 0..rounds {
        if done {
            break;
        }
        let placed = first_fit(items, &order, page_bytes);
        let top = items.iter().zip(&placed.offsets).map(|(i, o)| o + i.bytes).max().unwrap_or(0);
        let sticks_out =
            |p: usize| placed.offsets[order[p]] + items[order[p]].bytes > best.bound.min(top - 1);
        let mut next = order.clone();
        for p in 0..order.len() {
            if sticks_out(p) {
                // Half-way to the front: strong enough to matter, weak enough
                // not to undo all else.
                let item = next.iter().position(|i| *i == order[p]).expect("a permutation");
                let moved = next.remove(item);
                next.insert(item / 2, moved);
            }
        }
        if next == order {
            break;
        }
        order = next;
        done = best.consider(order.clone());
    }
    best.found.map_or(Offsets { offsets: Vec::new(), pages: Vec::new() }, |f| f.placed)
}

/// The best placement so far.
struct Best<'a> {
    items: &'a [Interval],
    page_bytes: u64,
    bound: u64,
    found: Option<Found>,
}

struct Found {
    order: Vec<usize>,
    placed: Offsets,
}

impl Best<'_> {
    /// Tries an order; tells whether the bound is met.
    fn consider(&mut self, order: Vec<usize>) -> bool {
        let placed = first_fit(self.items, &order, self.page_bytes);
        let total = placed.total_bytes();
        if self.found.as_ref().is_none_or(|f| total < f.placed.total_bytes()) {
            self.found = Some(Found { order, placed });
        }
        self.found.as_ref().is_some_and(|f| f.placed.total_bytes() <= self.bound)
    }
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
