//! The order of the items in an epoch.

use crate::philox::{Stream, name_stream};

/// The numbers from 0 to below `items` in an order that depends on nothing but
/// `items`, `seed` and `epoch`: Fisher–Yates with unbiased draws.
pub fn shuffled_order(items: u32, seed: u64, epoch: u64) -> Vec<u32> {
    let mut stream = Stream::new(seed, name_stream("shuffle").wrapping_add(epoch as u32));
    let mut order: Vec<u32> = (0..items).collect();
    for last in (1..items).rev() {
        // `last` is below u32::MAX, since `items` is not above it.
        order.swap(last as usize, stream.below(last + 1) as usize);
    }
    order
}

/// Random bits of an item in an epoch.
pub(crate) fn item_draw(seed: u64, epoch: u64, item: u32) -> u64 {
    let stream = name_stream("item").wrapping_add(epoch as u32);
    let mut stream = Stream::new(seed ^ (u64::from(item) << 32), stream);
    u64::from(stream.next_u32()) << 32 | u64::from(stream.next_u32())
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
        assert_eq!(shuffled_order(8, 0, 0), [1, 0, 2, 4, 3, 5, 6, 7]);
        assert_eq!(shuffled_order(8, u64::MAX, 41), [7, 2, 3, 4, 5, 6, 1, 0]);
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
}
