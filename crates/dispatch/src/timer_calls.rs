//! Timers of changed orders, sent to Redis with those of others; see `orders::update`.
//!
//! What arrives while a call is under way goes with the next. No call has two changes of one order: the later would cancel what the
//! earlier asks for, which it inserts last.

use std::sync::Arc;

use jobs::OrderId;
use workers::{JobAddress, NewJob, Store, StoreError};

use crate::batch::{BatchLost, BatchQueue, BatchSize};

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

/// Sends timers of changed orders. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TimerCalls(BatchQueue<OrderId, WantedTimers, CallResult>);

impl TimerCalls {
    pub fn new(store: &Store) -> Self {
        let store = store.clone();
        Self(BatchQueue::new("send timers", CALLS, move |items: Vec<WantedTimers>| {
            let store = store.clone();
            async move { send_all(&store, items).await }
        }))
    }

    /// Enqueues the jobs of an order and cancels those that it will never ask for again. A caller that goes away takes nothing back.
    pub(crate) async fn send(
        &self,
        order: &OrderId,
        jobs: Vec<NewJob>,
        superseded: Vec<JobAddress>,
    ) -> Result<(), TimerCallError> {
        let sent = self.0.submit_item([order.clone()], WantedTimers { jobs, superseded }).await?;
        sent.map_err(TimerCallError::Store)
    }
}

/// One result per item, in their order.
async fn send_all(store: &Store, items: Vec<WantedTimers>) -> Vec<CallResult> {
    let count = items.len();
    let (mut jobs, mut superseded) = (Vec::new(), Vec::new());
    for mut item in items {
        jobs.append(&mut item.jobs);
        superseded.append(&mut item.superseded);
    }
    let sent = store.enqueue_superseding(&jobs, &superseded).await.map(drop).map_err(Arc::new);
    vec![sent; count]
}
