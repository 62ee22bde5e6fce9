//! Slots that wait for the call that returns them to Redis.

use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use super::{bounds::BATCH, ended_slots::EndedSlots};

/// Slots whose work has ended and that Redis does not know of yet.
#[derive(Debug, Default)]
pub(super) struct SlotReleases {
    waiting: Mutex<WaitingReleases>,
    idle: watch::Sender<bool>,
    /// There is something for a take to carry.
    gathered: Notify,
}

#[derive(Debug, Default)]
struct WaitingReleases {
    ended: Vec<EndedSlots>,
    /// A task is writing some.
    is_writing: bool,
    /// A take under way carries some.
    is_carrying: bool,
    /// Takes follow each other and carry what gathers.
    is_carried: bool,
}

impl WaitingReleases {
    fn is_busy(&self) -> bool {
        self.is_writing || self.is_carrying || !self.ended.is_empty()
    }

    /// Returns whether a task must be started to write what waits.
    fn begin_writing(&mut self) -> bool {
        let must_start = !self.is_carried && !self.is_writing && !self.ended.is_empty();
        self.is_writing |= must_start;
        must_start
    }
}

impl SlotReleases {
    fn lock_waiting(&self) -> MutexGuard<'_, WaitingReleases> {
        self.waiting.lock()
    }

    /// Changes what waits, and notifies [`wait_until_idle`](Self::wait_until_idle).
    fn change_waiting<T>(&self, change: impl FnOnce(&mut WaitingReleases) -> T) -> T {
        let mut waiting = self.lock_waiting();
        let answer = change(&mut waiting);
        let is_idle = !waiting.is_busy();
        self.idle.send_if_modified(|idle| std::mem::replace(idle, is_idle) != is_idle);
        answer
    }

    /// Adds slots. Returns whether a task must be started to write them.
    pub(super) fn add_ended(&self, ended: EndedSlots) -> bool {
        let must_start = self.change_waiting(|waiting| {
            waiting.ended.push(ended);
            waiting.begin_writing()
        });
        if !must_start {
            self.notify_gathered();
        }
        must_start
    }

    /// Takes what has gathered. `None` ends the task that writes it.
    pub(super) fn take_gathered(&self) -> Option<Vec<EndedSlots>> {
        self.change_waiting(|waiting| {
            waiting.is_writing = !waiting.is_carried && !waiting.ended.is_empty();
            waiting.is_writing.then(|| std::mem::take(&mut waiting.ended))
        })
    }

    /// Keeps slots whose release failed for the next call, unless they have ended by themselves.
    pub(super) fn keep_failed(&self, failed: Vec<EndedSlots>) {
        let now = Instant::now();
        let lasting = failed.into_iter().filter(|ended| now < ended.grant.ends_by());
        self.change_waiting(|waiting| waiting.ended.extend(lasting));
    }

    /// From now on takes follow each other, and each carries what has gathered.
    pub(super) fn begin_carrying(&self) {
        self.lock_waiting().is_carried = true;
    }

    /// Takes no longer follow each other. Returns whether a task must be started to write what waits.
    pub(super) fn end_carrying(&self) -> bool {
        self.change_waiting(|waiting| {
            waiting.is_carried = false;
            waiting.begin_writing()
        })
    }

    /// Returns the slots that the next take carries. [`finish_carried`](Self::finish_carried) follows.
    pub(super) fn take_carried(&self) -> Vec<EndedSlots> {
        self.change_waiting(|waiting| {
            let first = waiting.ended.len().min(BATCH);
            waiting.is_carrying = first > 0;
            waiting.ended.drain(..first).collect()
        })
    }

    /// Records that the take with the slots of [`take_carried`](Self::take_carried) has ended.
    pub(super) fn finish_carried(&self) {
        self.change_waiting(|waiting| waiting.is_carrying = false);
    }

    /// Wakes the caller of [`wait_for_gathered`](Self::wait_for_gathered).
    pub(super) fn notify_gathered(&self) {
        self.gathered.notify_one();
    }

    /// Waits until there is something for a take to carry.
    pub(super) async fn wait_for_gathered(&self) {
        loop {
            self.gathered.notified().await;
            if !self.lock_waiting().ended.is_empty() {
                return;
            }
        }
    }

    /// Waits until nothing is to be written.
    pub(super) async fn wait_until_idle(&self) {
        let mut idle = self.idle.subscribe();
        while self.lock_waiting().is_busy() {
            // The sender lives as long as this value.
            let _ = idle.wait_for(|idle| *idle).await;
        }
    }
}
