//! Batching: items that arrive while a batch runs form the next batch. Design: docs/design/order-writes.md.
//!
//! A lone item starts immediately. A queue with many items waits a few milliseconds for more of them, so that the items
//! share round trips and commits. An item is processed even if its caller goes away.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    hash::Hash,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, timeout_at},
};
use tracing::{Instrument, Span};

type BatchRun<I, O> = Box<dyn Fn(Vec<I>) -> Pin<Box<dyn Future<Output = Vec<O>> + Send>> + Send + Sync>;

/// The batch panicked. Whether the item was processed is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the batch panicked; whether the item was processed is unknown")]
pub struct BatchLost;

/// Limits for the batches of a queue.
#[derive(Debug, Clone, Copy)]
pub struct BatchSize {
    /// Maximum items in a batch.
    pub most: usize,
    /// Maximum batches that run at the same time.
    pub lanes: usize,
    /// Queued items per busy lane that start another lane. An item that has waited for `SLOW` starts one too. A slow
    /// batch therefore delays few items, and a fast batch is shared by many.
    pub crowd: usize,
}

/// Wait after which an item starts another lane.
const SLOW: Duration = Duration::from_millis(50);
/// Items in a second above which a queue waits for more items before a batch starts.
const BUSY_PER_S: u32 = 200;
/// Items that start the batch of a busy queue.
const ENOUGH: usize = 16;
/// Age of the first item that starts the batch of a busy queue.
const GATHER: Duration = Duration::from_millis(4);

/// Queue whose items are processed in batches. Cheap to clone; clones share the queue.
pub struct BatchQueue<K, I, O>(Arc<SharedQueue<K, I, O>>);

struct SharedQueue<K, I, O> {
    name: &'static str,
    size: BatchSize,
    run: BatchRun<I, O>,
    waiting: Mutex<WaitingItems<K, I, O>>,
    /// Signals the lane that waits for [`ENOUGH`] items.
    enough: Notify,
}

struct WaitingItems<K, I, O> {
    items: VecDeque<WaitingItem<K, I, O>>,
    received: ReceivedItems,
    busy_lanes: usize,
    /// Whether a [`watch_wait`](BatchQueue::watch_wait) task is running.
    is_watched: bool,
}

struct WaitingItem<K, I, O> {
    keys: Vec<K>,
    item: I,
    answer: oneshot::Sender<O>,
    since: Instant,
    /// Span of the caller. A batch of one item runs in it, so its log lines name the request or job.
    span: Span,
}

impl<K, I, O> WaitingItem<K, I, O> {
    fn new(keys: Vec<K>, item: I, answer: oneshot::Sender<O>) -> Self {
        Self { keys, item, answer, since: Instant::now(), span: Span::current() }
    }
}

/// Numbers of items that a queue received in this and in the previous second.
#[derive(Debug)]
struct ReceivedItems {
    second: Instant,
    count: u32,
    before: u32,
}

impl ReceivedItems {
    fn new(now: Instant) -> Self {
        Self { second: now, count: 0, before: 0 }
    }

    fn add(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.second);
        if elapsed >= Duration::from_secs(1) {
            let was_last_second = elapsed < Duration::from_secs(2);
            *self = Self { before: if was_last_second { self.count } else { 0 }, ..Self::new(now) };
        }
        self.count = self.count.saturating_add(1);
    }

    fn is_busy(&self) -> bool {
        self.count.max(self.before) > BUSY_PER_S
    }
}

impl<K, I, O> WaitingItems<K, I, O> {
    fn new(now: Instant) -> Self {
        Self { items: VecDeque::new(), received: ReceivedItems::new(now), busy_lanes: 0, is_watched: false }
    }

    /// Returns the time until which a lane waits for more items. Returns `None` if a batch starts now.
    fn gather_until(&self, most: usize, now: Instant) -> Option<Instant> {
        let is_worthwhile = self.received.is_busy() && self.items.len() < ENOUGH.min(most);
        let first = self.items.front().filter(|_| is_worthwhile)?;
        Some(first.since + GATHER).filter(|until| *until > now)
    }

    fn longest_wait(&self) -> Option<Duration> {
        self.items.front().map(|first| first.since.elapsed())
    }
}

/// A batch and the senders for its results.
struct TakenBatch<I, O> {
    items: Vec<I>,
    answers: Vec<oneshot::Sender<O>>,
    span: Span,
}

impl<K, I, O> Clone for BatchQueue<K, I, O> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, I, O> fmt::Debug for BatchQueue<K, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchQueue").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl<K, I, O> BatchQueue<K, I, O>
where
    K: Eq + Hash + Clone + Send + 'static,
    I: Send + 'static,
    O: Send + 'static,
{
    /// Creates a queue. `run` returns one result per item, in the order of the items. Two items with a common key are
    /// never in the same batch.
    pub fn new<F, Fut>(name: &'static str, size: BatchSize, run: F) -> Self
    where
        F: Fn(Vec<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<O>> + Send + 'static,
    {
        let run: BatchRun<I, O> = Box::new(move |items| Box::pin(run(items)));
        let waiting = Mutex::new(WaitingItems::new(Instant::now()));
        Self(Arc::new(SharedQueue { name, size, run, waiting, enough: Notify::new() }))
    }

    /// Queues the item and returns its result. An item without keys may share a batch with any other item.
    ///
    /// The item is queued before this function returns; the returned future only waits for the result.
    pub fn submit_item<Keys>(
        &self,
        keys: Keys,
        item: I,
    ) -> impl Future<Output = Result<O, BatchLost>> + Send + use<K, I, O, Keys>
    where
        Keys: IntoIterator<Item = K>,
    {
        let (answer, answered) = oneshot::channel();
        self.push_item(WaitingItem::new(keys.into_iter().collect(), item, answer));
        answered.map(|answer| answer.map_err(|_| BatchLost))
    }

    /// Returns how long the oldest queued item has waited for a batch.
    pub fn longest_wait(&self) -> Duration {
        self.lock_waiting().longest_wait().unwrap_or_default()
    }

    fn lock_waiting(&self) -> MutexGuard<'_, WaitingItems<K, I, O>> {
        self.0.waiting.lock()
    }

    fn push_item(&self, item: WaitingItem<K, I, O>) {
        let mut waiting = self.lock_waiting();
        waiting.received.add(item.since);
        waiting.items.push_back(item);
        if waiting.items.len() == ENOUGH {
            self.0.enough.notify_one();
        }
        let BatchSize { lanes, crowd, .. } = self.0.size;
        let is_crowded = waiting.items.len() >= crowd * waiting.busy_lanes;
        let is_slow = waiting.longest_wait().is_some_and(|wait| wait > SLOW);
        if waiting.busy_lanes == lanes {
            return;
        }
        if is_crowded || is_slow {
            waiting.busy_lanes += 1;
            drop(waiting);
            tokio::spawn(self.clone().run_lane());
        } else if !waiting.is_watched {
            waiting.is_watched = true;
            drop(waiting);
            tokio::spawn(self.clone().watch_wait());
        }
    }

    /// Starts another lane when the oldest queued item has waited for `SLOW`, even if no further item arrives.
    async fn watch_wait(self) {
        loop {
            tokio::time::sleep(SLOW).await;
            let mut waiting = self.lock_waiting();
            if waiting.items.is_empty() || waiting.busy_lanes == self.0.size.lanes {
                waiting.is_watched = false;
                return;
            }
            if waiting.longest_wait().is_some_and(|wait| wait >= SLOW) {
                waiting.busy_lanes += 1;
                tokio::spawn(self.clone().run_lane());
            }
        }
    }

    /// Runs batches until the queue is empty.
    async fn run_lane(self) {
        loop {
            // The runtime may have woken several tasks at once, of which the first started this lane. Yielding lets the
            // others add their items to this batch. The runtime runs a few tasks (`event_interval` in src/main.rs) and
            // then polls I/O. A lane with nothing else to wait for resumes immediately.
            if self.lock_waiting().items.len() < self.0.size.most {
                tokio::task::yield_now().await;
            }
            self.gather_items().await;
            let Some(TakenBatch { items, answers, span }) = self.take_batch() else { return };
            let batch = AssertUnwindSafe(async { (self.0.run)(items).await }).catch_unwind();
            match batch.instrument(span).await {
                Ok(results) => {
                    for (answer, result) in answers.into_iter().zip(results) {
                        // Sending fails if the caller has gone away.
                        let _ = answer.send(result);
                    }
                }
                // The senders are dropped, so the callers get `BatchLost`.
                Err(panic) => {
                    let why = panic.downcast_ref::<String>().map(String::as_str);
                    let why = why.or_else(|| panic.downcast_ref::<&str>().copied());
                    tracing::error!(batch = self.0.name, why, "A batch panicked.");
                }
            }
        }
    }

    /// Waits for more items if the queue is busy: until [`ENOUGH`] items are queued, or the first is [`GATHER`] old.
    async fn gather_items(&self) {
        loop {
            let Some(until) = self.lock_waiting().gather_until(self.0.size.most, Instant::now()) else { return };
            // An earlier batch may have left a signal, so the condition is checked again.
            let _ = timeout_at(until, self.0.enough.notified()).await;
        }
    }

    /// Takes the next batch. Returns `None` if the queue is empty, which ends the lane.
    fn take_batch(&self) -> Option<TakenBatch<I, O>> {
        let mut waiting = self.lock_waiting();
        if waiting.items.is_empty() {
            waiting.busy_lanes -= 1;
            return None;
        }
        let (mut keys, mut later) = (HashSet::new(), VecDeque::new());
        let mut batch = TakenBatch { items: Vec::new(), answers: Vec::new(), span: Span::none() };
        while batch.items.len() < self.0.size.most {
            let Some(next) = waiting.items.pop_front() else { break };
            let is_free = !next.keys.iter().any(|key| keys.contains(key));
            // The keys of a skipped item count too, so that a later item with the same key does not overtake it.
            keys.extend(next.keys.iter().cloned());
            if is_free {
                batch.span = next.span;
                batch.items.push(next.item);
                batch.answers.push(next.answer);
            } else {
                later.push_back(next);
            }
        }
        later.append(&mut waiting.items);
        waiting.items = later;
        if batch.items.len() > 1 {
            batch.span = tracing::error_span!("batch", name = self.0.name, items = batch.items.len());
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::Semaphore;

    use super::*;

    const ONE_LANE: BatchSize = BatchSize { most: 3, lanes: 1, crowd: 1 };

    type TestQueue = BatchQueue<u32, u32, u32>;
    type SeenBatches = Arc<Mutex<Vec<Vec<u32>>>>;

    /// Returns a queue that doubles its items, a semaphore with one permit per batch, and the batches received.
    fn doubling_queue() -> (TestQueue, Arc<Semaphore>, SeenBatches) {
        let (gate, seen) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (gate_of_run, seen_by_run) = (gate.clone(), seen.clone());
        let queue = BatchQueue::new("test", ONE_LANE, move |items: Vec<u32>| {
            let (gate, seen) = (gate_of_run.clone(), seen_by_run.clone());
            async move {
                seen.lock().unwrap().push(items.clone());
                gate.acquire().await.unwrap().forget();
                assert!(!items.contains(&13), "13 panics");
                items.iter().map(|n| n * 2).collect()
            }
        });
        (queue, gate, seen)
    }

    async fn until_waiting(queue: &TestQueue, items: usize) {
        while queue.lock_waiting().items.len() < items {
            tokio::task::yield_now().await;
        }
    }

    async fn until_begun(seen: &Mutex<Vec<Vec<u32>>>, batches: usize) {
        while seen.lock().unwrap().len() < batches {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn waiting_items_form_next_batch_once_per_key() {
        let (queue, gate, seen) = doubling_queue();
        let submit = |key: u32, item: u32| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.submit_item([key], item).await })
        };
        let first = submit(1, 1);
        until_begun(&seen, 1).await;
        let mut others = Vec::new();
        for (n, (key, item)) in [(2, 2), (3, 3), (2, 4), (4, 5), (5, 6)].into_iter().enumerate() {
            others.push(submit(key, item));
            until_waiting(&queue, n + 1).await;
        }
        // The caller goes away, but its item is processed.
        others.remove(0).abort();
        gate.add_permits(10);
        assert_eq!(first.await.unwrap(), Ok(2));
        let mut answers = Vec::new();
        for other in others {
            answers.push(other.await.unwrap().unwrap());
        }
        assert_eq!(answers, [6, 8, 10, 12]);
        assert_eq!(*seen.lock().unwrap(), [vec![1], vec![2, 3, 5], vec![4, 6]]);
    }

    #[tokio::test]
    async fn lone_item_passes_a_hanging_batch() {
        let queue = TestQueue::new("test", BatchSize { most: 3, lanes: 2, crowd: 25 }, |items: Vec<u32>| async move {
            if items.contains(&13) {
                std::future::pending::<()>().await;
            }
            items
        });
        let hanging = tokio::spawn({
            let queue = queue.clone();
            async move { queue.submit_item([], 13).await }
        });
        while queue.lock_waiting().busy_lanes == 0 || !queue.lock_waiting().items.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(queue.submit_item([], 4).await, Ok(4));
        hanging.abort();
    }

    #[tokio::test]
    async fn busy_queue_gathers_items_into_one_batch() {
        let (queue, gate, seen) = doubling_queue();
        gate.add_permits(10_000);
        for n in 0..=BUSY_PER_S {
            assert_eq!(queue.submit_item([n], 1).await, Ok(2));
        }
        let batches = seen.lock().unwrap().len();
        let first = queue.submit_item([1], 3);
        tokio::task::yield_now().await;
        let second = queue.submit_item([2], 4);
        assert_eq!((first.await, second.await), (Ok(6), Ok(8)));
        assert_eq!(seen.lock().unwrap()[batches..], [vec![3, 4]]);
    }

    #[test]
    fn lane_gathers_only_for_a_busy_queue_and_a_short_time() {
        let now = Instant::now();
        let mut waiting = WaitingItems::<u32, u32, u32>::new(now);
        for _ in 0..BUSY_PER_S {
            waiting.received.add(now);
        }
        let (answer, _) = oneshot::channel();
        waiting.items.push_back(WaitingItem { since: now, ..WaitingItem::new(vec![1], 1, answer) });
        assert_eq!(waiting.gather_until(100, now), None, "the queue is not busy");
        waiting.received.add(now);
        assert_eq!(waiting.gather_until(100, now), Some(now + GATHER));
        assert_eq!(waiting.gather_until(1, now), None, "the batch is full");
        assert_eq!(waiting.gather_until(100, now + GATHER), None, "the item has waited long enough");
        waiting.received.add(now + Duration::from_secs(1));
        assert!(waiting.received.is_busy(), "the last second counts");
        waiting.received.add(now + Duration::from_secs(3));
        assert!(!waiting.received.is_busy());
    }

    #[tokio::test]
    async fn panicking_batch_does_not_stop_the_next() {
        let (queue, gate, _) = doubling_queue();
        gate.add_permits(10);
        assert_eq!(queue.submit_item([1], 13).await, Err(BatchLost));
        assert_eq!(queue.submit_item([1], 4).await, Ok(8));
    }
}
