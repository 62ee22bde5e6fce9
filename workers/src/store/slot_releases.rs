//! Slots on their way back. The takes of a worker carry them along: the first in line then comes with the same call. Where no takes
//! follow each other they go by themselves: while one call is under way the next gather, so many calls that end together cost one
//! command, and a lone one waits for no other. What cannot be written is tried again until the slots end by themselves.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};
use tracing::warn;

use super::{EndedSlots, SlotRelease, Store, client::BATCH};

/// How long to wait after a call that failed.
const TRY_AGAIN: Duration = Duration::from_millis(500);

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
    ended: Vec<SlotRelease>,
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
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what waits, and tells those who wait for it to be written.
    fn change_waiting<T>(&self, change: impl FnOnce(&mut WaitingReleases) -> T) -> T {
        let mut waiting = self.lock_waiting();
        let answer = change(&mut waiting);
        let is_idle = !waiting.is_busy();
        self.idle.send_if_modified(|idle| std::mem::replace(idle, is_idle) != is_idle);
        answer
    }

    /// Adds slots. Returns whether a task must be started to write them.
    fn add_ended(&self, ended: SlotRelease) -> bool {
        let must_start = self.change_waiting(|waiting| {
            waiting.ended.push(ended);
            waiting.begin_writing()
        });
        if !must_start {
            self.gathered.notify_one();
        }
        must_start
    }

    /// Takes what has gathered; `None` ends the task.
    fn take_gathered(&self) -> Option<Vec<SlotRelease>> {
        self.change_waiting(|waiting| {
            waiting.is_writing = !waiting.is_carried && !waiting.ended.is_empty();
            waiting.is_writing.then(|| std::mem::take(&mut waiting.ended))
        })
    }

    /// Keeps for the next call what was not written and has not ended by itself.
    fn keep_failed(&self, failed: Vec<SlotRelease>) {
        let now = Instant::now();
        let lasting = failed.into_iter().filter(|release| now < release.ended.grant.ends_by());
        self.change_waiting(|waiting| waiting.ended.extend(lasting));
    }
}

impl Store {
    /// Frees slots as soon as may be, together with others that end now; once per grant. Does not wait: while Redis cannot be
    /// reached it is tried again, until the slots end by their time. Call it inside a tokio runtime.
    pub fn release_slots_soon(&self, ended: EndedSlots) {
        if ended.grant.give_back() {
            self.write_release(ended);
        }
    }

    /// As [`release_slots_soon`](Self::release_slots_soon), if no work has begun with the slots.
    pub(crate) fn release_unused_slots(&self, unused: EndedSlots) {
        if unused.grant.give_back_unused() {
            self.write_release(unused);
        }
    }

    fn write_release(&self, ended: EndedSlots) {
        let passed_to = self.turns.pass_on(&ended, Instant::now());
        if self.releases.add_ended(SlotRelease { ended, passed_to }) {
            self.start_writing();
        }
    }

    fn start_writing(&self) {
        let store = self.clone();
        tokio::spawn(async move {
            let mut reported = false;
            while let Some(ended) = store.releases.take_gathered() {
                let Err(error) = store.pass_slots_on(&ended).await else { continue };
                if !std::mem::replace(&mut reported, true) {
                    warn!(%error, jobs = ended.len(), "Slots could not be freed yet; they end by their time at the latest.");
                }
                store.releases.keep_failed(ended);
                tokio::time::sleep(TRY_AGAIN).await;
            }
            // What has come since a take was to carry it.
            store.releases.gathered.notify_one();
        });
    }

    /// From now on takes of the caller follow each other, and each carries what has gathered.
    pub(crate) fn begin_carrying(&self) {
        self.releases.lock_waiting().is_carried = true;
    }

    /// Takes follow each other no longer: what gathers goes by itself.
    pub(crate) fn end_carrying(&self) {
        let must_start = self.releases.change_waiting(|waiting| {
            waiting.is_carried = false;
            waiting.begin_writing()
        });
        if must_start {
            self.start_writing();
        }
    }

    /// Returns the slots that the next take is to carry. [`finish_carried`](Self::finish_carried) follows.
    pub(crate) fn take_carried(&self) -> Vec<SlotRelease> {
        self.releases.change_waiting(|waiting| {
            let first = waiting.ended.len().min(BATCH);
            waiting.is_carrying = first > 0;
            waiting.ended.drain(..first).collect()
        })
    }

    /// The take that carried these slots has ended. Where it failed, Redis may not have heard of them.
    pub(crate) fn finish_carried(&self, carried: Vec<SlotRelease>, has_failed: bool) {
        if has_failed {
            self.releases.keep_failed(carried);
        } else {
            self.turns.confirm(&carried, Instant::now());
        }
        self.releases.change_waiting(|waiting| waiting.is_carrying = false);
    }

    /// Returns when there is something for a take to carry.
    pub(crate) async fn wait_for_gathered(&self) {
        loop {
            self.releases.gathered.notified().await;
            if !self.releases.lock_waiting().ended.is_empty() {
                return;
            }
        }
    }

    /// Waits until all slots that were to be freed are.
    pub async fn wait_for_slot_releases(&self) {
        let mut idle = self.releases.idle.subscribe();
        while self.releases.lock_waiting().is_busy() {
            // The sender lives as long as this store.
            let _ = idle.wait_for(|idle| *idle).await;
        }
    }
}
