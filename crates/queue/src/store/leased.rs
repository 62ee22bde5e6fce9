//! What a take leases: jobs, and the token that fences their leases.

use std::{fmt, sync::Arc};

use crate::job::Delivery;

/// Fencing token of one take. Only its holder may settle, renew or release the leases of that take.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseToken {
    text: Arc<str>,
    shard: u16,
}

impl LeaseToken {
    /// `boot` is unique per process start, `sequence` per take of that process.
    pub fn new(boot: &str, sequence: u64) -> Self {
        Self { text: format!("{boot}:{sequence}").into(), shard: 0 }
    }

    /// The token of a take from this shard, which its leases are to be settled in.
    #[must_use]
    pub fn of_shard(self, shard: u16) -> Self {
        Self { shard, ..self }
    }

    /// The shard that its leases are to be settled in.
    pub fn shard(&self) -> u16 {
        self.shard
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The text, which its holder's grants share.
    pub(super) fn to_shared(&self) -> Arc<str> {
        self.text.clone()
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One leased job.
#[derive(Debug, Clone)]
pub struct LeasedJob {
    pub delivery: Delivery,
    pub token: LeaseToken,
}
