//! Operators' view of all shards as one queue, and their actions on it. Outside the hot path: most calls ask every
//! shard.

use std::time::Duration;

use super::Shards;
use crate::{
    job::JobId,
    store::{
        CancelVerdict, DeadCursor, DeadEntry, DeadFilter, DeadPage, DiscardVerdict, JobDetail, JobEntry, JobState,
        QueueStats, RequeueVerdict, RescheduleVerdict, RestoreVerdict, StoreError,
    },
};

/// Maximum number of jobs that one call of [`Store::list_jobs`](crate::Store::list_jobs) returns.
const LISTED: usize = 1_000;

impl Shards {
    /// Finds a job as [`Store::find_job`](crate::Store::find_job) does. Asks the other shards, too: while the number of
    /// shards changes, the job may still be in its old shard.
    pub async fn find_job(&self, id: &JobId, queues: &[&str]) -> Result<Option<JobDetail>, StoreError> {
        for store in self.home_first(id) {
            if let Some(found) = store.find_job(id, queues).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Cancels a job as [`Store::cancel`](crate::Store::cancel) does, in whichever shard it is.
    pub async fn cancel(&self, id: &JobId, queues: &[&str]) -> Result<CancelVerdict, StoreError> {
        for store in self.home_first(id) {
            let verdict = store.cancel(id, queues).await?;
            if verdict != CancelVerdict::Absent {
                return Ok(verdict);
            }
        }
        Ok(CancelVerdict::Absent)
    }

    /// Reschedules a job as [`Store::reschedule`](crate::Store::reschedule) does, in whichever shard it is.
    pub async fn reschedule(
        &self,
        id: &JobId,
        queues: &[&str],
        delay: Duration,
    ) -> Result<RescheduleVerdict, StoreError> {
        for store in self.home_first(id) {
            let verdict = store.reschedule(id, queues, delay).await?;
            if verdict != RescheduleVerdict::Absent {
                return Ok(verdict);
            }
        }
        Ok(RescheduleVerdict::Absent)
    }

    /// Pauses a queue in every shard. Returns whether it was running in any of them.
    pub async fn pause_queue(&self, queue: &str) -> Result<bool, StoreError> {
        let mut was_running = false;
        for store in self.stores() {
            was_running |= store.pause_queue(queue).await?;
        }
        Ok(was_running)
    }

    /// Resumes a queue in every shard. Returns whether it was paused in any of them.
    pub async fn resume_queue(&self, queue: &str) -> Result<bool, StoreError> {
        let mut was_paused = false;
        for store in self.stores() {
            was_paused |= store.resume_queue(queue).await?;
        }
        Ok(was_paused)
    }

    /// Returns counts over all shards: sums, and the oldest due job of all. A queue counts as paused if it is paused in
    /// any shard.
    pub async fn queue_stats(&self, queues: &[&str]) -> Result<Vec<QueueStats>, StoreError> {
        let mut total = self.control().queue_stats(queues).await?;
        for store in &self.stores()[1..] {
            for (sum, stats) in total.iter_mut().zip(store.queue_stats(queues).await?) {
                sum.add_shard(&stats);
            }
        }
        Ok(total)
    }

    /// Counts the jobs of these queues in shards above the current number. At zero those shards need not stay open.
    /// Dead jobs count, too, because an operator must still decide about them.
    pub async fn count_left_over(&self, queues: &[&str]) -> Result<u64, StoreError> {
        let mut left_over = 0;
        for store in self.left_over() {
            let stats = store.queue_stats(queues).await?;
            left_over += stats.iter().map(|of| of.due + of.scheduled + of.leased + of.parked + of.dead).sum::<u64>();
        }
        Ok(left_over)
    }

    /// Lists jobs as [`Store::list_jobs`](crate::Store::list_jobs) does, the earliest of all shards first. Reads
    /// `offset + limit` jobs of each shard.
    pub async fn list_jobs(
        &self,
        queue: &str,
        state: JobState,
        offset: usize,
        limit: usize,
    ) -> Result<Vec<JobEntry>, StoreError> {
        if let [store] = self.stores() {
            return store.list_jobs(queue, state, offset, limit).await;
        }
        let (wanted, mut found) = (offset + limit.min(LISTED), Vec::new());
        for store in self.stores() {
            let mut of_shard = Vec::new();
            while of_shard.len() < wanted {
                let page = LISTED.min(wanted - of_shard.len());
                let entries = store.list_jobs(queue, state, of_shard.len(), page).await?;
                let is_last = entries.len() < page;
                of_shard.extend(entries);
                if is_last {
                    break;
                }
            }
            found.extend(of_shard);
        }
        found.sort_by(|a, b| (a.at_ms, &a.id).cmp(&(b.at_ms, &b.id)));
        Ok(found.into_iter().skip(offset).take(limit.min(LISTED)).collect())
    }

    /// Lists dead jobs as [`Store::list_dead`](crate::Store::list_dead) does, the longest dead of all shards first. The
    /// same cursor works in each shard.
    pub async fn list_dead(
        &self,
        queue: &str,
        filter: &DeadFilter,
        after: Option<&DeadCursor>,
    ) -> Result<DeadPage, StoreError> {
        let mut page = DeadPage { entries: Vec::new(), next: None };
        for store in self.stores() {
            let of_shard = store.list_dead(queue, filter, after).await?;
            page.entries.extend(of_shard.entries);
            // All shards have been read at least up to the smallest cursor.
            page.next = match (page.next, of_shard.next) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, other) => one.or(other),
            };
        }
        if let Some(next) = &page.next {
            page.entries.retain(|entry| entry.cursor() <= *next);
        }
        page.entries.sort_by_key(DeadEntry::cursor);
        Ok(page)
    }

    /// Requeues jobs as [`Store::requeue`](crate::Store::requeue) does, in whichever shard each is dead.
    pub async fn requeue(
        &self,
        ids: &[impl AsRef<str>],
        queues: &[&str],
        delay: Duration,
    ) -> Result<Vec<RequeueVerdict>, StoreError> {
        let mut verdicts = vec![RequeueVerdict::NotDead; ids.len()];
        for store in self.stores() {
            let (places, rest) = those_with(&verdicts, RequeueVerdict::NotDead, ids);
            for (place, verdict) in places.into_iter().zip(store.requeue(&rest, queues, delay).await?) {
                verdicts[place] = verdict;
            }
        }
        Ok(verdicts)
    }

    /// Discards jobs as [`Store::discard`](crate::Store::discard) does, in whichever shard each is dead.
    pub async fn discard(&self, ids: &[impl AsRef<str>], queues: &[&str]) -> Result<Vec<DiscardVerdict>, StoreError> {
        let mut verdicts = vec![DiscardVerdict::NotDead; ids.len()];
        for store in self.stores() {
            let (places, rest) = those_with(&verdicts, DiscardVerdict::NotDead, ids);
            for (place, verdict) in places.into_iter().zip(store.discard(&rest, queues).await?) {
                verdicts[place] = verdict;
            }
        }
        Ok(verdicts)
    }

    /// Discards as [`Store::discard_dead_older_than`](crate::Store::discard_dead_older_than) does, one shard after the
    /// other.
    pub async fn discard_dead_older_than(&self, queue: &str, age: Duration, limit: usize) -> Result<usize, StoreError> {
        let mut discarded = 0;
        for store in self.stores() {
            if discarded < limit {
                discarded += store.discard_dead_older_than(queue, age, limit - discarded).await?;
            }
        }
        Ok(discarded)
    }

    /// Restores jobs as [`Store::restore_dead`](crate::Store::restore_dead) does, each in its shard. A job whose id
    /// cannot be read goes to the control shard.
    pub async fn restore_dead(&self, queue: &str, jobs: &[DeadEntry]) -> Result<Vec<RestoreVerdict>, StoreError> {
        let shard_of = |job: &DeadEntry| JobId::parse(job.id.clone()).map_or(0, |id| self.shard_of(&id));
        let mut answers = Vec::new();
        for (store, places, of_shard) in self.split(jobs, shard_of) {
            answers.extend(places.into_iter().zip(store.restore_dead(queue, &of_shard).await?));
        }
        Ok(super::in_order(answers))
    }
}

/// Returns the ids whose verdict is still `open`, with their positions.
fn those_with<'a, V: PartialEq>(verdicts: &[V], open: V, ids: &'a [impl AsRef<str>]) -> (Vec<usize>, Vec<&'a str>) {
    let rest = ids.iter().enumerate().filter(|(place, _)| verdicts[*place] == open);
    rest.map(|(place, id)| (place, id.as_ref())).unzip()
}
