//! Operators' actions on jobs and queues.

use std::collections::BTreeSet;

use super::{Job, Reference, State};
use queue::store::{CancelVerdict, DiscardVerdict, RequeueVerdict, RescheduleVerdict};

impl Reference {
    pub(in crate::model) fn cancel(&mut self, id: &str) -> CancelVerdict {
        match self.jobs.get(id).map(|job| &job.state) {
            None => CancelVerdict::Absent,
            Some(State::Leased { .. }) => CancelVerdict::Running,
            Some(State::Dead { .. }) => CancelVerdict::Dead,
            Some(State::Parked { .. }) => {
                self.leave_line(id);
                self.jobs.remove(id);
                self.hand_out(&BTreeSet::new());
                CancelVerdict::Removed
            }
            Some(State::Due { .. } | State::Suspect { .. }) => {
                self.jobs.remove(id);
                self.drop_reservation(id);
                CancelVerdict::Removed
            }
        }
    }

    pub(in crate::model) fn reschedule(&mut self, id: &str, delay: u64) -> RescheduleVerdict {
        let Some(job) = self.jobs.get_mut(id) else { return RescheduleVerdict::Absent };
        match &mut job.state {
            State::Leased { .. } => RescheduleVerdict::Running,
            State::Dead { .. } => RescheduleVerdict::Dead,
            State::Parked { .. } => RescheduleVerdict::Parked,
            State::Due { at } | State::Suspect { at } => {
                *at = self.now + delay;
                job.put_off |= delay > 0;
                if delay > 0 {
                    self.drop_reservation(id);
                }
                RescheduleVerdict::Moved
            }
        }
    }

    pub(in crate::model) fn requeue(&mut self, ids: &[String], delay: u64) -> Vec<RequeueVerdict> {
        let at = self.now + delay;
        let requeue = |id: &String| match self.jobs.get_mut(id) {
            Some(job @ Job { state: State::Dead { .. }, .. }) => {
                (job.state, job.failed, job.lost, job.put_off) = (State::Due { at }, 0, 0, delay > 0);
                RequeueVerdict::Requeued
            }
            _ => RequeueVerdict::NotDead,
        };
        ids.iter().map(requeue).collect()
    }

    pub(in crate::model) fn discard(&mut self, ids: &[String]) -> Vec<DiscardVerdict> {
        let discard = |id: &String| match self.jobs.get(id) {
            Some(Job { state: State::Dead { .. }, .. }) => {
                self.jobs.remove(id);
                DiscardVerdict::Discarded
            }
            _ => DiscardVerdict::NotDead,
        };
        ids.iter().map(discard).collect()
    }

    /// Returns the ids of a queue's jobs that died at least `age` ago, the longest dead first.
    pub(in crate::model) fn dead(&self, queue: &str, age: u64) -> Vec<String> {
        let dead = |(id, job): (&String, &Job)| match job.state {
            State::Dead { at, .. } if job.queue == queue && at + age <= self.now => Some((at, id.clone())),
            _ => None,
        };
        let mut dead: Vec<_> = self.jobs.iter().filter_map(dead).collect();
        dead.sort();
        dead.into_iter().map(|(_, id)| id).collect()
    }

    pub(in crate::model) fn discard_older(&mut self, queue: &str, age: u64, limit: usize) -> usize {
        let old: Vec<String> = self.dead(queue, age).into_iter().take(limit).collect();
        self.discard(&old).len()
    }

    pub(in crate::model) fn pause(&mut self, queue: &'static str) -> bool {
        self.paused.insert(queue)
    }

    pub(in crate::model) fn resume(&mut self, queue: &'static str) -> bool {
        self.paused.remove(queue)
    }
}
