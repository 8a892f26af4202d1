//! Random numbers that are the same on every machine and with every version of every crate: SplitMix64.

use std::time::Duration;

use crate::time::micros;

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Returns the generator of a seed. Generators with different streams are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self { state: seed };
        random.state = random.bits().wrapping_add(stream);
        random
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.bits() % (high.saturating_sub(low) + 1)
    }

    /// Returns an index below `count`.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.within(0, count.saturating_sub(1) as u64)).unwrap_or(0)
    }

    /// Returns true in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.within(1, 100) <= percent
    }

    /// Returns one of the choices.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        choices.get(self.index(choices.len())).copied()
    }

    /// Returns a duration from `low` to `high`, uniformly.
    pub fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_micros(self.within(micros(low), micros(high)))
    }

    /// Returns a duration from `low` to `high` whose logarithm is uniform: every order of magnitude is as likely.
    pub fn log_duration(&mut self, low: Duration, high: Duration) -> Duration {
        let (low, high) = (low.as_secs_f64().ln(), high.as_secs_f64().ln());
        Duration::from_secs_f64((low + (high - low) * self.unit()).exp())
    }

    /// Returns a number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        // 53 bits are what a float holds exactly.
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_stream_give_one_sequence() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.bits(), random.bits(), random.bits()]
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(2, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = Random::new(7, 0);
        let (low, high) = (Duration::from_millis(10), Duration::from_secs(1));
        for _ in 0..1_000 {
            assert!((3..=5).contains(&random.within(3, 5)));
            assert!((low..=high).contains(&random.duration(low, high)));
            assert!((low..=high + Duration::from_micros(1)).contains(&random.log_duration(low, high)));
            assert!((0.0..1.0).contains(&random.unit()));
            assert!(random.index(3) < 3);
        }
        assert_eq!(random.choose::<u8>(&[]), None);
    }
}
