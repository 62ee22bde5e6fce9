//! The shards, as the loops of this process know them.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use super::RedisOutage;
use crate::{
    shards::{ShardCount, rank_shards},
    store::Store,
};

/// One shard.
pub(crate) struct ShardLink {
    pub(crate) store: Store,
    pub(crate) outage: RedisOutage,
    share: AtomicUsize,
}

impl ShardLink {
    /// A take gets one part in so many of the free permits.
    pub(crate) fn share(&self) -> usize {
        self.share.load(Ordering::Relaxed)
    }
}

/// All shards that this run has opened, by their numbers. One that is closed keeps its place, for it may be opened again.
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

    /// So many shards are open: each gets its share of the permits by its rank for this process.
    pub(crate) fn set_shares(&self, boot: &str, open: usize) {
        for (link, rank) in self.opened().zip(rank_shards(boot, open)) {
            link.share.store(share_of(rank, open), Ordering::Relaxed);
        }
    }
}

/// Which part of the free permits a take gets: of one shard all of them; of several the half, of those that other processes prefer a
/// quarter. So a shard that gives no answer keeps some and not all of them.
fn share_of(rank: usize, shards: usize) -> usize {
    if shards == 1 {
        1
    } else if rank < shards.div_ceil(2) {
        2
    } else {
        4
    }
}
