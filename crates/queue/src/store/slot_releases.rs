//! Releasing slots.
//!
//! The takes of a worker release the waiting slots, and the same call leases the next job in line. If takes do not run
//! continuously, a task releases them. Slots that end during its call are released by its next call. So many slots
//! that end together cost one command, and a single slot does not wait. A failed release is retried until the slots
//! end by time.

use std::time::Duration;

use tracing::warn;

use super::{client::Store, ended_slots::EndedSlots};

/// Pause after a failed call.
const TRY_AGAIN: Duration = Duration::from_millis(500);

impl Store {
    /// Frees slots as soon as possible, together with others that end now. A grant is freed only once. Does not wait.
    /// While Redis is unreachable it is retried, until the slots end by time. Must be called inside a tokio runtime.
    pub fn release_slots_soon(&self, ended: EndedSlots) {
        if ended.grant.give_back() {
            self.write_release(ended);
        }
    }

    /// Frees slots as [`release_slots_soon`](Self::release_slots_soon) does, but only if no work has started with them.
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
                    warn!(%error, jobs = ended.len(), "Cannot free slots yet; this is retried until they end by time.");
                }
                store.releases.keep_failed(ended);
                tokio::time::sleep(TRY_AGAIN).await;
            }
            // Slots may have arrived that were meant for a take.
            store.releases.notify_gathered();
        });
    }

    /// Records that the caller's takes run continuously. Each of them releases the waiting slots.
    pub(crate) fn begin_carrying(&self) {
        self.releases.begin_carrying();
    }

    /// Records that takes no longer run continuously. From here on, waiting slots are sent immediately.
    pub(crate) fn end_carrying(&self) {
        if self.releases.end_carrying() {
            self.start_writing();
        }
    }

    /// Returns the slots for the next take. Call [`finish_carried`](Self::finish_carried) afterwards.
    pub(crate) fn take_carried(&self) -> Vec<EndedSlots> {
        self.releases.take_carried()
    }

    /// Records the end of the take that carried these slots. After a failed take they are released again, because Redis
    /// may not have received them.
    pub(crate) fn finish_carried(&self, carried: Vec<EndedSlots>, has_failed: bool) {
        if has_failed {
            self.releases.keep_failed(carried);
        }
        self.releases.finish_carried();
    }

    /// Waits until a take has slots to release.
    pub(crate) async fn wait_for_gathered(&self) {
        self.releases.wait_for_gathered().await;
    }

    /// Waits until all slots are released.
    pub async fn wait_for_slot_releases(&self) {
        self.releases.wait_until_idle().await;
    }
}
