//! What simulations leave to chance.
//!
//! Every choice is drawn from a seed and from what it is about, never from a shared generator: it does not depend on what
//! else is chosen, or in which order.

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// A source of chance of its own for each thing to be decided.
#[derive(Debug, Clone, Copy)]
pub struct ChoiceSeed(u64);

impl ChoiceSeed {
    /// Returns the source for one choice. FNV-1a over the parts: stable across platforms and releases, unlike the standard library's hashes.
    pub fn new(seed: u64, about: &[&str]) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        seed.to_le_bytes().into_iter().for_each(&mut add);
        for part in about {
            part.bytes().chain([0xff]).for_each(&mut add);
        }
        Self(hash)
    }

    /// One number: an id or a fingerprint.
    pub fn random_number(self) -> u64 {
        self.into_rng().random()
    }

    /// Returns a generator of its own.
    pub fn into_rng(self) -> StdRng {
        StdRng::seed_from_u64(self.0)
    }
}
