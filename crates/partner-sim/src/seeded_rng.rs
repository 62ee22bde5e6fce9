//! Reproducible random choices of simulations.
//!
//! Every choice is drawn from the seed and its subject, never from a shared generator. So it depends neither on other
//! choices nor on their order.

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Random source for one choice.
#[derive(Debug, Clone, Copy)]
pub struct ChoiceSeed(u64);

impl ChoiceSeed {
    /// Returns the source for one choice. It hashes the parts with FNV-1a, which is stable across platforms and
    /// releases, unlike the hashes of the standard library.
    pub fn new(seed: u64, about: &[&str]) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        seed.to_le_bytes().into_iter().for_each(&mut add);
        for part in about {
            part.bytes().chain([0xff]).for_each(&mut add);
        }
        Self(hash)
    }

    /// Returns one random number, for an id or a fingerprint.
    pub fn random_number(self) -> u64 {
        self.into_rng().random()
    }

    /// Returns a random generator for this choice.
    pub fn into_rng(self) -> StdRng {
        StdRng::seed_from_u64(self.0)
    }
}
