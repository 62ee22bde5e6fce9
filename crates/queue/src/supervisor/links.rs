//! The shards, as the loops of this process see them.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use super::RedisOutage;
use crate::{
    shards::{ShardCount, rank_shards},
    store::Store,
};

pub(crate) struct ShardLink {
    pub(crate) store: Store,
    pub(crate) outage: RedisOutage,
    share: AtomicUsize,
}

impl ShardLink {
    /// Returns the divisor of this shard's share. A take may use the number of free permits divided by it.
    pub(crate) fn share(&self) -> usize {
        self.share.load(Ordering::Relaxed)
    }
}

/// All shards that this run has opened, by number. A closed shard stays in the table, because it may be opened again.
pub(crate) struct ShardLinks(Box<[OnceLock<ShardLink>]>);

impl ShardLinks {
    pub(crate) fn new() -> Self {
        Self((0..ShardCount::MOST).map(|_| OnceLock::new()).collect())
    }

    pub(crate) fn get_or_open(&self, shard: usize, store: impl FnOnce() -> Store) -> &ShardLink {
        let link = || ShardLink { store: store(), outage: RedisOutage::default(), share: AtomicUsize::new(1) };
        self.0[shard].get_or_init(link)
    }

    pub(crate) fn opened(&self) -> impl Iterator<Item = &ShardLink> {
        self.0.iter().map_while(OnceLock::get)
    }

    /// Sets each open shard's share of the permits, by its rank for this process.
    pub(crate) fn set_shares(&self, boot: &str, open: usize) {
        for (link, rank) in self.opened().zip(rank_shards(boot, open)) {
            link.share.store(share_of(rank, open), Ordering::Relaxed);
        }
    }
}

/// Returns the divisor for a shard's share of the free permits. A single shard gets all of them. With several shards,
/// each shard in the preferred half gets half of the free permits, and each of the others a quarter. So a silent shard
/// never keeps all permits.
fn share_of(rank: usize, shards: usize) -> usize {
    if shards == 1 {
        1
    } else if rank < shards.div_ceil(2) {
        2
    } else {
        4
    }
}
