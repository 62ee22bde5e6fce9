//! Random numbers as values that tests can repeat. Decisions get random numbers as arguments; their callers draw them
//! here.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// Source of random numbers for pauses. Not suitable for secrets.
pub trait Rng: fmt::Debug + Send + Sync {
    /// Returns the next number in `[0, 1)`.
    fn next_unit(&self) -> f64;
}

/// Generator that yields the same sequence for the same seed.
///
/// Source: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Debug)]
pub struct SeededRng(AtomicU64);

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

impl SeededRng {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    fn next_bits(&self) -> u64 {
        let state = self.0.fetch_add(GOLDEN_GAMMA, Ordering::Relaxed).wrapping_add(GOLDEN_GAMMA);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

impl Rng for SeededRng {
    fn next_unit(&self) -> f64 {
        // An f64 represents 53 bits exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let bits = (self.next_bits() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_matches_the_reference_outputs() {
        // First outputs of the reference implementation for the seed 1234567.
        let rng = SeededRng::new(1_234_567);
        let first: Vec<_> = (0..3).map(|_| rng.next_bits()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_spread_over_unit_interval() {
        let rng = SeededRng::new(7);
        let mut tenths = [0; 10];
        for _ in 0..10_000 {
            let number = rng.next_unit();
            assert!((0.0..1.0).contains(&number), "{number}");
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 9")]
            let tenth = (number * 10.0) as usize;
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|n| (900..1100).contains(n)), "{tenths:?}");
    }
}
