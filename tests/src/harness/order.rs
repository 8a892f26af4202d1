//! Shuffles tests with a seed.

/// Shuffles a list. The same seed gives the same order.
pub fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        let bound = u64::try_from(last + 1).unwrap_or(u64::MAX);
        let chosen = usize::try_from(next(&mut state) % bound).unwrap_or(0);
        items.swap(last, chosen);
    }
}

/// Returns the next number of SplitMix64, which is good enough to order tests.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::shuffle;

    #[test]
    fn a_seed_decides_the_order_and_nothing_is_lost() {
        let sorted: Vec<u32> = (0..100).collect();
        let shuffled = |seed| {
            let mut items = sorted.clone();
            shuffle(&mut items, seed);
            items
        };
        assert_eq!(shuffled(7), shuffled(7));
        assert_ne!(shuffled(7), shuffled(8));
        assert_ne!(shuffled(7), sorted);
        let mut again = shuffled(7);
        again.sort_unstable();
        assert_eq!(again, sorted);
    }
}
