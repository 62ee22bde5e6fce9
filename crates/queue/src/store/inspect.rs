//! Counting, listing and finding jobs; pausing queues. For operators and metrics, outside the hot path.

use serde::{Deserialize, Serialize};

use super::{
    client::Store,
    dead::DeadRecord,
    error::StoreError,
    script::{FIND, LIST, STATS},
};
use crate::job::JobId;

/// Counts of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStats {
    pub queue: String,
    /// Due and waiting for a worker.
    pub due: u64,
    /// Due later.
    pub scheduled: u64,
    /// Being performed.
    pub leased: u64,
    pub dead: u64,
    pub paused: bool,
    /// How long the oldest due job has waited, in ms; `None` when nothing is due.
    pub oldest_due_ms: Option<u64>,
    /// Jobs falling due within the next 60 s.
    pub next_minute: u64,
    /// Jobs whose last deliveries were lost, waiting to run with nothing beside them. Counted in `due` and `scheduled`, too.
    pub suspects: u64,
    /// Jobs that wait in line for slots.
    pub parked: u64,
    /// Jobs falling due from 30 s to 90 s from now: the minute around the moment at which a replica asked for now has started.
    pub falling_due: u64,
}

impl QueueStats {
    /// Adds the same queue of another shard.
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

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waiting, due now or later.
    Due,
    /// Waiting to run with nothing beside it: its last deliveries were lost.
    Suspect,
    /// Waiting in line for slots.
    Parked,
    /// Being performed.
    Leased,
    Dead,
}

impl JobState {
    fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobEntry {
    pub id: String,
    /// Due, start of the wait in line, lease expiry or death, by the state listed; in ms.
    pub at_ms: u64,
    pub failed: u32,
    pub lost: u32,
    /// Of dead jobs.
    pub error: Option<String>,
}

/// Everything known of one job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobDetail {
    pub id: String,
    pub queue: String,
    pub state: JobState,
    /// Due, start of the wait in line, lease expiry or death, by the state; in ms.
    pub at_ms: u64,
    /// Of leased jobs: the due it was leased with, in ms.
    pub leased_due_ms: Option<u64>,
    /// Of leased jobs: the earliest due wanted meanwhile, in ms.
    pub again_ms: Option<u64>,
    /// Of leased jobs: whose lease it is.
    pub token: Option<String>,
    pub failed: u32,
    pub lost: u32,
    /// The envelope `{"v":1,"slots":..,"payload":..}` as it stands; `None` for most timers.
    pub envelope: Option<String>,
    /// Of dead jobs.
    pub dead: Option<DeadRecord>,
    /// Of parked jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked: Option<ParkedPlace>,
    /// When the slots end that it holds, or has reserved, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_end_ms: Option<u64>,
}

/// Where a parked job waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParkedPlace {
    pub group: String,
    pub own: String,
    /// Since when it waits, in ms; a reservation that lapsed changes nothing of it.
    pub since_ms: u64,
    /// This own name is held: the job joins its group's line when it is free.
    pub behind_own: Option<String>,
    /// The job that holds it.
    pub own_held_by: Option<String>,
    /// Jobs before it in the line.
    pub before: u64,
    /// The first ten of them.
    pub first_before: Vec<String>,
}

impl Store {
    /// Counts of these queues, in their order. Cheap at any size.
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

    /// One page of a queue's jobs in one state, the earliest first; at most 1,000.
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

    /// Looks for one job in these queues: all that is known of it, in one call.
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

    /// Stops a queue: its due jobs wait, its running jobs finish. Answers whether it was running.
    pub async fn pause_queue(&self, queue: &str) -> Result<bool, StoreError> {
        self.run_query("pause", redis::cmd("SADD").arg(self.keys.paused_queues()).arg(queue)).await
    }

    /// Answers whether a queue is stopped.
    pub async fn is_queue_paused(&self, queue: &str) -> Result<bool, StoreError> {
        self.run_query("paused", redis::cmd("SISMEMBER").arg(self.keys.paused_queues()).arg(queue)).await
    }

    /// Lets a paused queue run again, at once. Answers whether it was paused.
    pub async fn resume_queue(&self, queue: &str) -> Result<bool, StoreError> {
        let resumed = self.run_query("resume", redis::cmd("SREM").arg(self.keys.paused_queues()).arg(queue)).await?;
        self.publish_wake(queue).await?;
        Ok(resumed)
    }
}
