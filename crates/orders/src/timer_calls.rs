//! Timers of changed orders, sent to Redis with those of others; see `orders::update`.
//!
//! What arrives while a call is under way goes with the next. No call has two changes of one order: the later would cancel what the
//! earlier asks for, which it inserts last. Each shard has calls of its own: one without an answer holds up no orders of others.

use std::sync::{Arc, OnceLock};

use jobs::OrderId;

use foundation::{
    batch::{BatchLost, BatchQueue, BatchSize},
    shard_map::QueueShards,
};
use queue::{JobAddress, NewJob, ShardCount, Shards, StoreError};

const CALLS: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };

/// What a change wants of Redis.
#[derive(Debug)]
struct WantedTimers {
    jobs: Vec<NewJob>,
    superseded: Vec<JobAddress>,
}

/// Why timers were not sent. All that share a call are told the same.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TimerCallError {
    #[error(transparent)]
    Store(Arc<StoreError>),
    #[error(transparent)]
    Lost(#[from] BatchLost),
}

type CallResult = Result<(), Arc<StoreError>>;

type ShardCalls = BatchQueue<OrderId, WantedTimers, CallResult>;

/// Sends timers of changed orders. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TimerCalls {
    shards: QueueShards,
    /// By the number of the shard, made when first used.
    calls: Arc<[OnceLock<ShardCalls>]>,
}

impl TimerCalls {
    pub fn new(shards: &QueueShards) -> Self {
        Self { shards: shards.clone(), calls: (0..ShardCount::MOST).map(|_| OnceLock::new()).collect() }
    }

    /// Enqueues the jobs of an order and cancels those that it will never ask for again. A caller that goes away takes nothing back.
    ///
    /// They have their place in line when this returns, before the answer is waited for: what is sent of an order later comes later.
    pub(crate) fn send(
        &self,
        order: &OrderId,
        jobs: Vec<NewJob>,
        superseded: Vec<JobAddress>,
    ) -> impl Future<Output = Result<(), TimerCallError>> + Send + use<> {
        // All jobs of an order lie in one shard.
        let id = jobs.first().map(|job| &job.id).or_else(|| superseded.first().map(|job| &job.id));
        let shard = id.map(|id| usize::from(self.shards.get().shard_of(id)));
        let sent = shard.map(|shard| {
            let calls = self.calls[shard].get_or_init(|| self.calls_of_shard());
            calls.submit_item([order.clone()], WantedTimers { jobs, superseded })
        });
        async move {
            match sent {
                Some(sent) => sent.await?.map_err(TimerCallError::Store),
                None => Ok(()),
            }
        }
    }

    fn calls_of_shard(&self) -> ShardCalls {
        let shards = self.shards.clone();
        BatchQueue::new("send timers", CALLS, move |items: Vec<WantedTimers>| {
            // As many as there are by now: an item may have waited while their number changed.
            let queue = shards.get();
            async move { send_all(&queue, items).await }
        })
    }
}

/// One result per item, in their order.
async fn send_all(queue: &Shards, items: Vec<WantedTimers>) -> Vec<CallResult> {
    let count = items.len();
    let (mut jobs, mut superseded) = (Vec::new(), Vec::new());
    for mut item in items {
        jobs.append(&mut item.jobs);
        superseded.append(&mut item.superseded);
    }
    let sent = queue.enqueue_superseding(&jobs, &superseded).await.map(drop).map_err(Arc::new);
    vec![sent; count]
}
