//! Slots on their way back. While one call is under way the next gather, so many calls that end together cost one command,
//! and a lone one waits for no other. What cannot be written is tried again until the slots end by themselves.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tracing::warn;

use super::{EndedSlots, Store};

/// How long to wait after a call that failed.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Slots whose work has ended and that Redis does not know of yet.
#[derive(Debug, Default)]
pub(super) struct SlotReleases {
    waiting: Mutex<WaitingReleases>,
    idle: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct WaitingReleases {
    ended: Vec<EndedSlots>,
    /// A task is writing them.
    busy: bool,
}

impl SlotReleases {
    /// Adds slots. Returns whether a task must be started to write them.
    fn add_ended(&self, ended: EndedSlots) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.ended.push(ended);
        !std::mem::replace(&mut waiting.busy, true)
    }

    /// Takes what has gathered; `None` ends the task.
    fn take_gathered(&self) -> Option<Vec<EndedSlots>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.busy = !waiting.ended.is_empty();
        self.idle.send_replace(!waiting.busy);
        waiting.busy.then(|| std::mem::take(&mut waiting.ended))
    }

    /// Keeps for the next call what was not written and has not ended by itself.
    fn keep_failed(&self, failed: Vec<EndedSlots>) {
        let now = Instant::now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.ended.extend(failed.into_iter().filter(|ended| now < ended.grant.ends_by()));
    }

    fn is_busy(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).busy
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
        if !self.releases.add_ended(ended) {
            return;
        }
        self.releases.idle.send_replace(false);
        let store = self.clone();
        tokio::spawn(async move {
            let mut reported = false;
            while let Some(ended) = store.releases.take_gathered() {
                let Err(error) = store.release_slots(&ended).await else { continue };
                if !std::mem::replace(&mut reported, true) {
                    warn!(%error, jobs = ended.len(), "Slots could not be freed yet; they end by their time at the latest.");
                }
                store.releases.keep_failed(ended);
                tokio::time::sleep(TRY_AGAIN).await;
            }
        });
    }

    /// Waits until all slots that were to be freed are.
    pub async fn wait_for_slot_releases(&self) {
        let mut idle = self.releases.idle.subscribe();
        while self.releases.is_busy() {
            // The sender lives as long as this store.
            let _ = idle.wait_for(|idle| *idle).await;
        }
    }
}
