//! Slots that wait for the call that releases them.

use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use super::{bounds::BATCH, ended_slots::EndedSlots};

/// Slots whose work has ended and that are not released yet.
#[derive(Debug, Default)]
pub(super) struct SlotReleases {
    waiting: Mutex<WaitingReleases>,
    idle: watch::Sender<bool>,
    /// Notified when a take has slots to release.
    gathered: Notify,
}

#[derive(Debug, Default)]
struct WaitingReleases {
    ended: Vec<EndedSlots>,
    /// Whether a task is currently releasing slots.
    is_writing: bool,
    /// Whether a take in progress is releasing slots.
    is_carrying: bool,
    /// Whether takes run continuously and release the waiting slots.
    is_carried: bool,
}

impl WaitingReleases {
    fn is_busy(&self) -> bool {
        self.is_writing || self.is_carrying || !self.ended.is_empty()
    }

    /// Returns whether the caller must start a task that releases the waiting slots.
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

    /// Changes the waiting slots, and notifies [`wait_until_idle`](Self::wait_until_idle).
    fn change_waiting<T>(&self, change: impl FnOnce(&mut WaitingReleases) -> T) -> T {
        let mut waiting = self.lock_waiting();
        let answer = change(&mut waiting);
        let is_idle = !waiting.is_busy();
        self.idle.send_if_modified(|idle| std::mem::replace(idle, is_idle) != is_idle);
        answer
    }

    /// Adds slots. Returns whether the caller must start a task that releases them.
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

    /// Takes all waiting slots. `None` ends the task that releases them.
    pub(super) fn take_gathered(&self) -> Option<Vec<EndedSlots>> {
        self.change_waiting(|waiting| {
            waiting.is_writing = !waiting.is_carried && !waiting.ended.is_empty();
            waiting.is_writing.then(|| std::mem::take(&mut waiting.ended))
        })
    }

    /// Keeps slots whose release failed for the next call, unless they have ended by time.
    pub(super) fn keep_failed(&self, failed: Vec<EndedSlots>) {
        let now = Instant::now();
        let lasting = failed.into_iter().filter(|ended| now < ended.grant.ends_by());
        self.change_waiting(|waiting| waiting.ended.extend(lasting));
    }

    /// Records that takes run continuously. Each of them releases the waiting slots.
    pub(super) fn begin_carrying(&self) {
        self.lock_waiting().is_carried = true;
    }

    /// Records that takes no longer run continuously. Returns whether the caller must start a task that releases the
    /// waiting slots.
    pub(super) fn end_carrying(&self) -> bool {
        self.change_waiting(|waiting| {
            waiting.is_carried = false;
            waiting.begin_writing()
        })
    }

    /// Returns the slots for the next take. Call [`finish_carried`](Self::finish_carried) afterwards.
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

    /// Waits until a take has slots to release.
    pub(super) async fn wait_for_gathered(&self) {
        loop {
            self.gathered.notified().await;
            if !self.lock_waiting().ended.is_empty() {
                return;
            }
        }
    }

    /// Waits until all slots are released.
    pub(super) async fn wait_until_idle(&self) {
        let mut idle = self.idle.subscribe();
        while self.lock_waiting().is_busy() {
            // The sender lives as long as this value.
            let _ = idle.wait_for(|idle| *idle).await;
        }
    }
}
