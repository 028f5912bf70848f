//! The order of the items in an epoch.

/// The numbers from 0 to below `items` in an order that depends on nothing but
/// `items`, `seed` and `epoch`; no order is
/// favoured, as far as the words it draws are random.
///
/// Fisher–Yates with an unbiased draw: Lemire, "Fast Random Integer Generation
/// in an Interval" (2019), arXiv:1805.10941.
pub fn shuffled_order(items: u32, seed: u64, epoch: u64) -> Vec<u32> {
    let mut word = random_words(seed, epoch);
    let mut order: Vec<u32> = (0..items).collect();
    for last in (1..items).rev() {
        // `last` is below u32::MAX, since `items` is not above it.
        let other = draw_below(last + 1, &mut word);
        order.swap(last as usize, other as usize);
    }
    order
}

/// A number from 0 to below `bound`, which is not 0, each equally likely.
fn draw_below(bound: u32, word: &mut impl FnMut() -> u32) -> u32 {
    // The high half of word × bound is the draw. Words whose low half is below
    // 2³² mod bound would favour some draws, and are rejected.
    let rejected_below = bound.wrapping_neg() % bound;
    loop {
        let product = u64::from(word()) * u64::from(bound);
        if product as u32 >= rejected_below {
            return (product >> 32) as u32;
        }
    }
}

/// The random words of one epoch's shuffle: SplitMix64 (Steele, Lea and Flood,
/// "Fast Splittable Pseudorandom Number Generators", 2014), its high halves.
fn random_words(seed: u64, epoch: u64) -> impl FnMut() -> u32 {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    fn mix(mut z: u64) -> u64 {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    // Mixed twice, so that neighbouring seeds and epochs start far apart.
    let mut state = mix(mix(seed.wrapping_add(GAMMA)) ^ epoch);
    move || {
        state = state.wrapping_add(GAMMA);
        (mix(state) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    #[test]
    fn shuffle_is_a_permutation() {
        for items in [0, 1, 2, 3, 10, 1000, 65_537] {
            let mut order = shuffled_order(items, 3, 5);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..items));
        }
    }

    #[test]
    fn shuffle_depends_on_seed_and_epoch_alone() {
        let order = shuffled_order(100, 7, 0);
        assert_eq!(order, shuffled_order(100, 7, 0));
        let mut seen = HashSet::from([order]);
        for (seed, epoch) in [(7, 1), (7, 2), (8, 0), (0, 7), (1, 7), (0, 0), (u64::MAX, 0)] {
            assert!(seen.insert(shuffled_order(100, seed, epoch)), "{seed} {epoch}");
        }
    }

    #[test]
    fn shuffle_stays_the_same_between_releases() {
        // Computed by a second implementation, in Python.
        assert_eq!(shuffled_order(8, 0, 0), [3, 0, 5, 4, 7, 6, 1, 2]);
        assert_eq!(shuffled_order(8, u64::MAX, 41), [6, 4, 1, 0, 2, 5, 7, 3]);
    }

    #[test]
    fn all_orders_are_equally_likely() {
        let mut counts = HashMap::new();
        for epoch in 0..24_000 {
            *counts.entry(shuffled_order(4, 1, epoch)).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        // 1000 expected, standard deviation 31.
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn draw_rejects_exactly_the_words_that_bias() {
        // For the bound 3, 2^32 mod 3 = 1: of all words only 0 has a low half below 1.
        let mut words = [0, u32::MAX].into_iter();
        assert_eq!(draw_below(3, &mut || words.next().unwrap()), 2);
        // A power of two rejects nothing.
        assert_eq!(draw_below(1 << 31, &mut || 0), 0);
        assert_eq!(draw_below(1, &mut || 12345), 0);
        assert_eq!(draw_below(u32::MAX, &mut || u32::MAX), u32::MAX - 1);
    }
}
