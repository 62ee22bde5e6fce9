//! Queue of all later actions, served by one task.
//!
//! An entry is only a hint: its handler checks the ledger first. So entries are never removed from the queue.

use std::{future::poll_fn, time::Duration};

use tokio::sync::mpsc;
use tokio_util::time::DelayQueue;

use super::callbacks::QueuedCallback;

#[derive(Debug)]
pub(super) enum DueAction {
    /// Performs the next step of a booking.
    Step(u64),
    /// Removes a booking, or a record without one, that is no longer queried.
    Forget(u64),
    /// Sends callbacks one after another.
    Send(Vec<QueuedCallback>),
}

/// Sender of new timers. The receiver drains the channel immediately, so the channel needs no bound.
#[derive(Debug)]
pub(super) struct TimerSender(mpsc::UnboundedSender<(Duration, DueAction)>);

#[derive(Debug)]
pub(super) struct PendingTimers(mpsc::UnboundedReceiver<(Duration, DueAction)>);

pub(super) fn timer_channel() -> (TimerSender, PendingTimers) {
    let (add, pending) = mpsc::unbounded_channel();
    (TimerSender(add), PendingTimers(pending))
}

impl TimerSender {
    /// Schedules an action after a delay in real time. Does nothing after the end of the simulation.
    pub(super) fn send_after(&self, delay: Duration, due: DueAction) {
        let _ = self.0.send((delay, due));
    }
}

impl PendingTimers {
    /// Passes due actions to `handle` until all senders are dropped.
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
