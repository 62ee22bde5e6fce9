//! Slots on their way back. The takes of a worker carry them along: the first in line then comes with the same call. Where no takes
//! follow each other they go by themselves: while one call is under way the next gather, so many calls that end together cost one
//! command, and a lone one waits for no other. What cannot be written is tried again until the slots end by themselves.

use std::time::Duration;

use tracing::warn;

use super::{client::Store, ended_slots::EndedSlots};

/// How long to wait after a call that failed.
const TRY_AGAIN: Duration = Duration::from_millis(500);

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
        if self.releases.add_ended(ended) {
            self.start_writing();
        }
    }

    fn start_writing(&self) {
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
            // What has come since a take was to carry it.
            store.releases.notify_gathered();
        });
    }

    /// From now on takes of the caller follow each other, and each carries what has gathered.
    pub(crate) fn begin_carrying(&self) {
        self.releases.begin_carrying();
    }

    /// Takes follow each other no longer: what gathers goes by itself.
    pub(crate) fn end_carrying(&self) {
        if self.releases.end_carrying() {
            self.start_writing();
        }
    }

    /// Returns the slots that the next take is to carry. [`finish_carried`](Self::finish_carried) follows.
    pub(crate) fn take_carried(&self) -> Vec<EndedSlots> {
        self.releases.take_carried()
    }

    /// The take that carried these slots has ended. Where it failed, Redis may not have heard of them.
    pub(crate) fn finish_carried(&self, carried: Vec<EndedSlots>, has_failed: bool) {
        if has_failed {
            self.releases.keep_failed(carried);
        }
        self.releases.finish_carried();
    }

    /// Returns when there is something for a take to carry.
    pub(crate) async fn wait_for_gathered(&self) {
        self.releases.wait_for_gathered().await;
    }

    /// Waits until all slots that were to be freed are.
    pub async fn wait_for_slot_releases(&self) {
        self.releases.wait_until_idle().await;
    }
}
