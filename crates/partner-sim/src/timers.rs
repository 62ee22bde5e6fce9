//! Everything that happens later, in one queue served by one task.
//!
//! An entry is a hint: its handler looks at the ledger first, so nothing is ever taken out of the queue.

use std::{future::poll_fn, time::Duration};

use tokio::sync::mpsc;
use tokio_util::time::DelayQueue;

use super::callbacks::QueuedCallback;

#[derive(Debug)]
pub(super) enum DueAction {
    /// The next step of a booking.
    Step(u64),
    /// A booking or a wish that is not asked about any more.
    Forget(u64),
    /// One after the other.
    Send(Vec<QueuedCallback>),
}

/// The side that adds. Its queue is drained at once, so it need not be bounded.
#[derive(Debug)]
pub(super) struct TimerSender(mpsc::UnboundedSender<(Duration, DueAction)>);

#[derive(Debug)]
pub(super) struct PendingTimers(mpsc::UnboundedReceiver<(Duration, DueAction)>);

pub(super) fn timer_channel() -> (TimerSender, PendingTimers) {
    let (add, pending) = mpsc::unbounded_channel();
    (TimerSender(add), PendingTimers(pending))
}

impl TimerSender {
    /// In real time. After the end of the simulation nothing comes due.
    pub(super) fn send_after(&self, delay: Duration, due: DueAction) {
        let _ = self.0.send((delay, due));
    }
}

impl PendingTimers {
    /// Hands out what is due, until nothing can be added any more.
    pub(super) async fn run(mut self, handle: impl Fn(DueAction)) {
        let mut queue = DelayQueue::new();
        loop {
            tokio::select! {
                added = self.0.recv() => match added {
                    Some((delay, due)) => { queue.insert(due, delay); }
                    None => return,
                },
                Some(due) = poll_fn(|cx| queue.poll_expired(cx)), if !queue.is_empty() => handle(due.into_inner()),
            }
        }
    }
}
