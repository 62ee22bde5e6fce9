//! Leased jobs, and the token that fences their leases.

use std::{fmt, sync::Arc};

use crate::job::Delivery;

/// Fencing token of one take. Only the holder of the token may settle, renew or release the leases of that take.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseToken {
    text: Arc<str>,
    shard: u16,
}

impl LeaseToken {
    /// Creates a token. `boot` is unique per process start, `sequence` per take of that process.
    pub fn new(boot: &str, sequence: u64) -> Self {
        Self { text: format!("{boot}:{sequence}").into(), shard: 0 }
    }

    /// Sets the shard of the take. The leases are settled there.
    #[must_use]
    pub fn of_shard(self, shard: u16) -> Self {
        Self { shard, ..self }
    }

    /// Returns the shard in which the leases are settled.
    pub fn shard(&self) -> u16 {
        self.shard
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text. The grants of the same take share it.
    pub(super) fn to_shared(&self) -> Arc<str> {
        self.text.clone()
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Debug, Clone)]
pub struct LeasedJob {
    pub delivery: Delivery,
    pub token: LeaseToken,
}
