//! Counting, listing and finding jobs; pausing queues. For operators and metrics, outside the hot path.

use serde::{Deserialize, Serialize};

use super::{
    client::Store,
    dead::DeadRecord,
    error::StoreError,
    script::{FIND, LIST, OLDEST, STATS},
};
use crate::job::JobId;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStats {
    pub queue: String,
    /// Jobs that are due and wait for a worker.
    pub due: u64,
    /// Jobs that are due later.
    pub scheduled: u64,
    /// Running jobs.
    pub leased: u64,
    pub dead: u64,
    pub paused: bool,
    /// Time that the oldest due job has waited, in ms. `None` if no job is due.
    pub oldest_due_ms: Option<u64>,
    /// Jobs that become due within the next 60 s.
    pub next_minute: u64,
    /// Jobs whose last deliveries were lost; each waits to run alone. `due` and `scheduled` include them.
    pub suspects: u64,
    /// Jobs that wait in line for slots.
    pub parked: u64,
    /// Jobs that become due between 30 s and 90 s from now. A replica that is requested now starts in the middle of
    /// that minute.
    pub falling_due: u64,
}

impl QueueStats {
    /// Adds the counts of the same queue in another shard.
    pub(crate) fn add_shard(&mut self, other: &Self) {
        self.due += other.due;
        self.scheduled += other.scheduled;
        self.leased += other.leased;
        self.dead += other.dead;
        self.paused |= other.paused;
        self.oldest_due_ms = self.oldest_due_ms.max(other.oldest_due_ms);
        self.next_minute += other.next_minute;
        self.suspects += other.suspects;
        self.parked += other.parked;
        self.falling_due += other.falling_due;
    }
}

/// Oldest due job of a queue, without suspects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OldestDue {
    /// `None` if no job is due.
    pub id: Option<String>,
    /// Time that it has waited, in ms.
    pub late_ms: u64,
    /// Whether a job of the queue has a lease that has not ended.
    pub is_served: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waiting; due now or later.
    Due,
    /// Waiting to run alone, because its last deliveries were lost.
    Suspect,
    /// Waiting in line for slots.
    Parked,
    /// Running.
    Leased,
    Dead,
}

impl JobState {
    fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Entry of a list of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobEntry {
    pub id: String,
    /// Due time, start of the wait in line, lease expiry or time of death, depending on the listed state; in ms.
    pub at_ms: u64,
    pub failed: u32,
    pub lost: u32,
    /// Error of a dead job.
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobDetail {
    pub id: String,
    pub queue: String,
    pub state: JobState,
    /// Due time, start of the wait in line, lease expiry or time of death, depending on the state; in ms.
    pub at_ms: u64,
    /// For leased jobs: the due time at the lease, in ms.
    pub leased_due_ms: Option<u64>,
    /// For leased jobs: the earliest due time requested during the lease, in ms.
    pub again_ms: Option<u64>,
    /// For leased jobs: the token of the lease.
    pub token: Option<String>,
    pub failed: u32,
    pub lost: u32,
    /// Envelope `{"v":1,"slots":..,"payload":..}`, unchanged; `None` for most timers.
    pub envelope: Option<String>,
    /// Record of a dead job.
    pub dead: Option<DeadRecord>,
    /// Place in which a parked job waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked: Option<ParkedPlace>,
    /// End of the slots that the job holds or has reserved, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_end_ms: Option<u64>,
}

/// Place of a parked job in the line for its slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParkedPlace {
    pub group: String,
    pub own: String,
    /// Start of the wait, in ms. An expired reservation does not change it.
    pub since_ms: u64,
    /// Own name that is in use. The job joins its group's line when the name is free.
    pub behind_own: Option<String>,
    /// Job that holds that own name.
    pub own_held_by: Option<String>,
    /// Number of jobs before this one in the line.
    pub before: u64,
    pub first_before: Vec<String>,
}

impl Store {
    /// Returns the counts of these queues, in their order. The cost does not depend on the number of jobs.
    pub async fn queue_stats(&self, queues: &[&str]) -> Result<Vec<QueueStats>, StoreError> {
        type Row = (u64, u64, u64, u64, bool, i64, u64, u64, u64, u64);
        let call = self.job_script(&STATS, queues.iter().copied());
        let rows: Vec<Row> = self.run_script(&call).await?;
        let stats = queues.iter().zip(rows).map(
            |(queue, (due, scheduled, leased, dead, paused, oldest, next_minute, suspects, parked, falling_due))| {
                let oldest_due_ms = u64::try_from(oldest).ok();
                QueueStats {
                    queue: (*queue).to_owned(),
                    due,
                    scheduled,
                    leased,
                    dead,
                    paused,
                    oldest_due_ms,
                    next_minute,
                    suspects,
                    parked,
                    falling_due,
                }
            },
        );
        Ok(stats.collect())
    }

    /// Returns the oldest due job of each of these queues, in their order. Cheaper than [`queue_stats`](Self::queue_stats).
    pub async fn oldest_due(&self, queues: &[&str]) -> Result<Vec<OldestDue>, StoreError> {
        let call = self.job_script(&OLDEST, queues.iter().copied());
        let rows: Vec<(String, u64, bool)> = self.run_script(&call).await?;
        let oldest = rows.into_iter().map(|(id, late_ms, is_served)| OldestDue {
            id: Some(id).filter(|id| !id.is_empty()),
            late_ms,
            is_served,
        });
        Ok(oldest.collect())
    }

    /// Returns one page of a queue's jobs in one state, the earliest first; at most 1,000.
    pub async fn list_jobs(
        &self,
        queue: &str,
        state: JobState,
        offset: usize,
        limit: usize,
    ) -> Result<Vec<JobEntry>, StoreError> {
        let mut call = self.job_script(&LIST, [queue]);
        call.push_arg(state.as_str()).push_arg(offset).push_arg(limit);
        let rows: Vec<(String, u64, u32, u32, Option<String>)> = self.run_script(&call).await?;
        let entries =
            rows.into_iter().map(|(id, at_ms, failed, lost, error)| JobEntry { id, at_ms, failed, lost, error });
        Ok(entries.collect())
    }

    /// Finds one job in these queues. Returns all its data in one call.
    pub async fn find_job(&self, id: &JobId, queues: &[&str]) -> Result<Option<JobDetail>, StoreError> {
        type Place = (String, String, u64, String, u64, Vec<String>, Option<String>);
        type Row =
            (usize, String, u64, Option<String>, u32, u32, Option<String>, Option<String>, Option<Place>, Option<u64>);
        let mut call = self.job_script(&FIND, queues.iter().copied());
        call.push_arg(id.as_str());
        let Some((number, state, at_ms, lease, failed, lost, envelope, dead, parked, slots_end_ms)) =
            self.run_script::<Option<Row>>(&call).await?
        else {
            return Ok(None);
        };
        let queue =
            queues.get(number.wrapping_sub(1)).ok_or_else(|| StoreError::invalid_answer(FIND.name, "queue number"))?;
        let state = match state.as_str() {
            "due" => JobState::Due,
            "suspect" => JobState::Suspect,
            "parked" => JobState::Parked,
            "leased" => JobState::Leased,
            _ => JobState::Dead,
        };
        let mut lease = lease.as_deref().unwrap_or_default().split(' ');
        let token = lease.next().filter(|token| !token.is_empty()).map(str::to_owned);
        let mut next_ms = || lease.next().and_then(|ms| ms.parse().ok());
        Ok(Some(JobDetail {
            id: id.to_string(),
            queue: (*queue).to_owned(),
            state,
            at_ms,
            leased_due_ms: next_ms(),
            again_ms: next_ms(),
            token,
            failed,
            lost,
            envelope,
            parked: parked.map(|(group, own, since_ms, behind, before, first_before, own_held_by)| ParkedPlace {
                group,
                own,
                since_ms,
                behind_own: Some(behind).filter(|behind| behind != "-"),
                own_held_by,
                before,
                first_before,
            }),
            slots_end_ms,
            dead: (state == JobState::Dead).then(|| DeadRecord::parse_or_unreadable(dead.as_deref(), queue, at_ms)),
        }))
    }

    /// Pauses a queue: its due jobs wait, its running jobs finish. Returns whether it was running before.
    pub async fn pause_queue(&self, queue: &str) -> Result<bool, StoreError> {
        self.run_query("pause", redis::cmd("SADD").arg(self.keys.paused_queues()).arg(queue)).await
    }

    pub async fn is_queue_paused(&self, queue: &str) -> Result<bool, StoreError> {
        self.run_query("paused", redis::cmd("SISMEMBER").arg(self.keys.paused_queues()).arg(queue)).await
    }

    /// Resumes a paused queue at once. Returns whether it was paused.
    pub async fn resume_queue(&self, queue: &str) -> Result<bool, StoreError> {
        let resumed = self.run_query("resume", redis::cmd("SREM").arg(self.keys.paused_queues()).arg(queue)).await?;
        self.publish_wake(queue).await?;
        Ok(resumed)
    }
}
