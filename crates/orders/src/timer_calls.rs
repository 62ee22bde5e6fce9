//! Batches the calls to Redis for timers of changed orders; see `orders::update`.
//!
//! Timers that arrive during a call go into the next call. A call never contains two changes of one order: the later
//! change would cancel timers that the earlier one wants, because inserts run last. Each shard has separate calls, so
//! an unresponsive shard does not delay the orders of others.

use std::sync::{Arc, OnceLock};

use jobs::OrderId;

use foundation::{
    batch::{BatchLost, BatchQueue, BatchSize},
    shard_map::QueueShards,
};
use queue::{JobAddress, NewJob, ShardCount, Shards, StoreError};

const CALLS: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };

/// Timers that a change enqueues and cancels.
#[derive(Debug)]
struct WantedTimers {
    jobs: Vec<NewJob>,
    superseded: Vec<JobAddress>,
}

/// Reason why timers were not sent. All changes in a call get the same error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TimerCallError {
    #[error(transparent)]
    Store(Arc<StoreError>),
    #[error(transparent)]
    Lost(#[from] BatchLost),
}

type CallResult = Result<(), Arc<StoreError>>;

type ShardCalls = BatchQueue<OrderId, WantedTimers, CallResult>;

/// Sender for timers of changed orders. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TimerCalls {
    shards: QueueShards,
    /// Calls by shard number, created on first use.
    calls: Arc<[OnceLock<ShardCalls>]>,
}

impl TimerCalls {
    pub fn new(shards: &QueueShards) -> Self {
        Self { shards: shards.clone(), calls: (0..ShardCount::MOST).map(|_| OnceLock::new()).collect() }
    }

    /// Enqueues the jobs of an order and cancels those that it will never need again. Both happen even if the caller
    /// goes away.
    ///
    /// They are queued before this function returns, so later calls for the same order are sent later.
    pub(crate) fn send(
        &self,
        order: &OrderId,
        jobs: Vec<NewJob>,
        superseded: Vec<JobAddress>,
    ) -> impl Future<Output = Result<(), TimerCallError>> + Send + use<> {
        // All jobs of an order are in one shard.
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
            // Read now, because the number of shards may have changed while an item waited.
            let queue = shards.get();
            async move { send_all(&queue, items).await }
        })
    }
}

/// Sends the timers of all items in one call. Returns one result per item, in their order.
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
