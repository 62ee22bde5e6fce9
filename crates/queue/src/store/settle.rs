//! Ending leases with an outcome.

use std::time::Duration;

use super::{
    bounds::BATCH,
    client::{QueueNumbers, Store, push_job},
    error::StoreError,
    leased::{LeaseToken, LeasedJob},
    script::SETTLE,
};
use crate::{
    job::{JobAddress, JobId, NewJob, round_up_ms},
    outcome::Outcome,
    retry::RetryPolicy,
    slots::SlotNeed,
};

/// End of a lease, after the retry policy was applied.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseEnd {
    Done,
    /// The job runs again, with no try spent.
    Snooze {
        delay: Duration,
    },
    /// The job waits in line for these slots, with no try spent.
    Park(SlotNeed),
    /// The job runs again, with one try spent.
    Retry {
        delay: Duration,
    },
    /// The job is dead: its last try is spent.
    Spent {
        error: String,
    },
    /// The job is dead: it can never succeed.
    Dead {
        error: String,
    },
}

/// End of one lease, to write to Redis.
#[derive(Debug, Clone, PartialEq)]
pub struct SettleRequest {
    pub queue: &'static str,
    pub id: JobId,
    pub token: LeaseToken,
    pub end: LeaseEnd,
    /// Jobs to insert in the same atomic step.
    pub then: Vec<NewJob>,
    /// Jobs to cancel in the same step, before the insert, if they are due.
    pub superseded: Vec<JobAddress>,
}

impl SettleRequest {
    /// Applies a job's retry policy to its outcome. `random` is in 0..1 and determines the jitter.
    pub fn new(leased: &LeasedJob, outcome: Outcome, retry: &RetryPolicy, random: f64) -> Self {
        let delivery = &leased.delivery;
        let (mut then, mut superseded) = (Vec::new(), Vec::new());
        let end = match outcome {
            Outcome::Done { then: follow_ups, superseded: others } => {
                (then, superseded) = (follow_ups, others);
                // The end of the job's own lease already removes the job.
                superseded.retain(|job| job.id != delivery.id);
                LeaseEnd::Done
            }
            Outcome::Snooze { delay } => LeaseEnd::Snooze { delay },
            Outcome::Park(need) => LeaseEnd::Park(need),
            Outcome::Retry(error) => {
                let failed = delivery.failed.saturating_add(1);
                retry.delay_after(failed, random).map_or_else(
                    || LeaseEnd::Spent { error: shorten_error(format!("failed {failed} tries; last: {error}")) },
                    |delay| LeaseEnd::Retry { delay },
                )
            }
            Outcome::Dead(error) => LeaseEnd::Dead { error: shorten_error(error) },
        };
        let ended = Self::end_lease(delivery.queue, delivery.id.clone(), leased.token.clone(), end);
        Self { then, superseded, ..ended }
    }

    /// Creates a request that ends a lease without follow-ups.
    pub fn end_lease(queue: &'static str, id: JobId, token: LeaseToken, end: LeaseEnd) -> Self {
        Self { queue, id, token, end, then: Vec::new(), superseded: Vec::new() }
    }

    /// Returns whether two adjacent requests fit into one run of settle.lua: only their ids differ, and both have no
    /// follow-ups.
    fn ends_alike(&self, next: &Self) -> bool {
        self.batch_weight() == 1
            && next.batch_weight() == 1
            && self.queue == next.queue
            && self.token == next.token
            && self.end == next.end
    }

    /// Returns how much of a batch's limit the request uses.
    fn batch_weight(&self) -> usize {
        1 + self.then.len() + self.superseded.len()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettleVerdict {
    /// Written, with its follow-ups. A follow-up that is dead stays dead and is listed here, so that an order does not
    /// wait for a job that will not run.
    Settled { dead_follow_ups: Vec<JobId> },
    /// The lease was lost: nothing changed, and no follow-up was inserted.
    Refused,
}

impl Store {
    /// Ends leases. Returns one verdict per lease, in their order.
    ///
    /// Each lease ends atomically with its follow-ups and superseded jobs. One call has at most 500 jobs, follow-ups
    /// and superseded jobs together. A job with more than that has its own call. After an error a settle may be
    /// repeated; requests that were already written are then refused.
    pub async fn settle(&self, settles: &[SettleRequest]) -> Result<Vec<SettleVerdict>, StoreError> {
        let mut verdicts = Vec::with_capacity(settles.len());
        let mut rest = settles;
        while !rest.is_empty() {
            let mut weight = 0;
            let fitting = rest.iter().take_while(|settle| {
                weight += settle.batch_weight();
                weight <= BATCH
            });
            let (batch, later) = rest.split_at(fitting.count().max(1));
            verdicts.extend(self.settle_batch(batch).await?);
            rest = later;
        }
        Ok(verdicts)
    }

    async fn settle_batch(&self, batch: &[SettleRequest]) -> Result<Vec<SettleVerdict>, StoreError> {
        let mut queues = QueueNumbers::default();
        for settle in batch {
            queues.number_of(settle.queue);
            for job in &settle.then {
                queues.number_of(job.queue);
            }
            for job in &settle.superseded {
                queues.number_of(job.queue);
            }
        }
        let mut call = self.job_script(&SETTLE, queues.names());
        for run in batch.chunk_by(SettleRequest::ends_alike) {
            let first = &run[0];
            call.push_arg(queues.number_of(first.queue)).push_arg(first.token.as_str());
            match &first.end {
                LeaseEnd::Done => call.push_arg("done").push_arg(""),
                LeaseEnd::Snooze { delay } => call.push_arg("snooze").push_arg(round_up_ms(*delay)),
                LeaseEnd::Park(need) => {
                    let hold_ms = round_up_ms(need.hold());
                    call.push_arg("park").push_arg(format!("{} {} {hold_ms}", need.group(), need.own()))
                }
                LeaseEnd::Retry { delay } => call.push_arg("retry").push_arg(round_up_ms(*delay)),
                LeaseEnd::Spent { error } => call.push_arg("spent").push_arg(error),
                LeaseEnd::Dead { error } => call.push_arg("dead").push_arg(error),
            };
            call.push_arg(first.then.len()).push_arg(first.superseded.len()).push_arg(run.len());
            for settle in run {
                call.push_arg(settle.id.as_str());
            }
            for job in &first.then {
                push_job(&mut call, &mut queues, job);
            }
            for job in &first.superseded {
                call.push_arg(queues.number_of(job.queue)).push_arg(job.id.as_str());
            }
        }
        let (refused, left_dead): (Vec<usize>, Vec<String>) = self.run_patiently(&call).await?;
        let mut verdicts = vec![SettleVerdict::Settled { dead_follow_ups: Vec::new() }; batch.len()];
        for position in refused {
            let verdict = position.checked_sub(1).and_then(|position| verdicts.get_mut(position));
            *verdict.ok_or_else(|| StoreError::invalid_answer(SETTLE.name, position))? = SettleVerdict::Refused;
        }
        for pair in left_dead.chunks_exact(2) {
            let position = pair[0].parse::<usize>().ok().and_then(|position| position.checked_sub(1));
            let verdict = position.and_then(|position| verdicts.get_mut(position));
            if let (Some(SettleVerdict::Settled { dead_follow_ups }), Ok(id)) = (verdict, JobId::parse(pair[1].clone()))
            {
                dead_follow_ups.push(id);
            }
        }
        Ok(verdicts)
    }
}

/// Shortens the error of a dead job. It is kept until an operator reads it, so it must have room for a message but not
/// for a dump.
fn shorten_error(mut error: String) -> String {
    const MAX_BYTES: usize = 2_000;
    if error.len() > MAX_BYTES {
        error.truncate(error.floor_char_boundary(MAX_BYTES));
        error.push('…');
    }
    error
}
