//! Jobs that were leased ahead: they have the slots of their group and their own name, and wait for that of the shard.
//!
//! Where all slots of the shard are taken, each stands idle from the end of one job's work until the next has been leased and prepared. So a
//! process leases a few jobs ahead and prepares them while work of its own goes on. Work that ends passes its slot on to one of them here, with no
//! wait for Redis, which hears of it with the next take. Until then Redis counts the slot for the work that ended: the work that follows must have
//! ended by then, too.

use std::time::{Duration, Instant};

use job_contract::SlotGrant;

use super::{client::Store, ended_slots::JobAhead, turn_table::Turn};
use crate::job::JobId;

impl Store {
    /// Returns how many jobs the next take is to lease ahead.
    pub(crate) fn count_wanted_ahead(&self, now: Instant) -> usize {
        self.turns.count_wanted(now)
    }

    /// Returns the jobs that wait for the shard's slot, in the order in which they were leased.
    pub(crate) fn list_waiting_ahead(&self) -> Vec<JobAhead> {
        self.turns.list_waiting()
    }

    /// Returns whether the job was leased ahead and its work has not begun.
    pub(crate) fn waits_for_turn(&self, job: &JobId, grant: &SlotGrant) -> bool {
        self.turns.is_ahead(job, grant)
    }

    /// The slots of this job may be those of another by now, although they last: when they are given back, that of the shard is passed on to
    /// no job of this process.
    pub fn forfeit_turn(&self, job: &JobId, grant: &SlotGrant) {
        self.turns.withdraw(job, grant);
    }

    /// Waits until the job has all its slots, which is at once unless it was leased ahead. Returns its grant, which may end earlier now. `None`:
    /// none of this process' work has ended within `patience`, or the slots are over; the work must not begin.
    ///
    /// Call it when the work is to begin and nothing is left to prepare: at once before what the slots are for.
    pub async fn wait_for_turn(&self, job: &JobId, grant: &SlotGrant, patience: Duration) -> Option<SlotGrant> {
        let begun = Instant::now();
        self.turns.record_preparation(begun - grant.asked_at());
        let give_up = tokio::time::Instant::from_std(begun + patience);
        loop {
            match self.turns.try_begin(job, grant) {
                Turn::Begun(grant) => return Some(grant),
                Turn::Over => return None,
                Turn::Later(turn) => tokio::time::timeout_at(give_up, turn.notified()).await.ok()?,
            }
        }
    }
}
