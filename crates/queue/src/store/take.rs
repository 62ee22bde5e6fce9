//! Leasing due jobs.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use redis::{FromRedisValue, Value};
use tracing::warn;

use super::{
    client::Store,
    ended_slots::EndedSlots,
    error::StoreError,
    leased::{LeaseToken, LeasedJob},
    script::TAKE,
    settle::{LeaseEnd, SettleRequest},
};
use crate::{
    job::{Delivery, JobId},
    outcome::Outcome,
    slots::{SlotGrant, SlotNeed},
};

/// Lost deliveries in a row after which a job is dead.
const MAX_LOST: u32 = 5;

/// Lost deliveries in a row that make a job a suspect, which then runs alone. Same as `SUSPECT_AT` in lib.lua.
pub(crate) const SUSPECT_AT: u32 = 2;

/// Delay of a job whose envelope has a newer version than this process knows.
const NEWER_ENVELOPE_DELAY: Duration = Duration::from_secs(60);

/// Jobs that a take may lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeMode {
    /// Normal jobs. The take asks for the turn if suspects are due.
    Normal,
    /// Normal jobs. The take gives the turn back.
    Rest,
    /// No jobs, whatever the permits. The take keeps the turn. For a process that waits until its jobs are settled, or
    /// that runs a suspect.
    Quiesce,
    /// One suspect and nothing else. Without a suspect or the turn, the same as `Rest`. Only for a process that has no
    /// jobs.
    Alone,
}

#[derive(Debug, Clone)]
pub struct TakeRequest<'a> {
    /// Queues of the process, each with the number of jobs wanted; at most 1,000 are leased per queue. With 0 the take
    /// still rescues.
    pub queues: &'a [(&'static str, usize)],
    /// New token for each take.
    pub token: &'a LeaseToken,
    pub lease: Duration,
    pub mode: TakeMode,
}

/// Additional tasks of a take.
#[derive(Debug)]
pub struct TakeErrands<'a> {
    /// Slots to free and hand over, at most 500. The take leases the next jobs in line.
    pub ended: &'a [EndedSlots],
    /// Whether to look for expired leases and slots. A few takes per second should do this; it costs about as much as
    /// the rest of the take.
    pub finds_expired: bool,
}

/// Job that died of lost deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadJob {
    pub queue: &'static str,
    pub id: JobId,
    pub error: String,
}

#[derive(Debug)]
pub enum TakeAnswer {
    /// Redis has lost the jobs (new, or flushed). The take leases none until a rebuild has published its horizon.
    NoEpoch,
    Jobs {
        /// Leased jobs: per queue those with reserved slots first, then the oldest due.
        jobs: Vec<LeasedJob>,
        /// Leases of jobs whose envelope cannot be read. The caller settles them as given, without running them. Their
        /// slots are being released.
        unreadable: Vec<SettleRequest>,
        /// Redis' time of this take, in ms.
        now_ms: u64,
        /// Time of the next take, in ms: the earliest due time of the queues with permits left, the end of the first
        /// slots (which may go to a parked job), or the next check for a job beyond the horizon.
        next_due_ms: Option<u64>,
        /// Jobs that this take found dead.
        dead: Vec<DeadJob>,
        /// Whether suspects were due at the start of this take.
        suspects: bool,
        /// Whether this process has the turn to run suspects. It then takes in mode `Quiesce` until it has no jobs, and
        /// in mode `Alone` after that.
        has_turn: bool,
        /// Whether the take reached its limit of 1,000 rescued leases. The caller then takes again at once.
        more_expired: bool,
        /// Whether a rebuild is in progress. Jobs due beyond its horizon are not leased yet.
        is_rebuilding: bool,
    },
}

impl Store {
    /// Rescues up to 1,000 expired leases of these queues, then leases due jobs.
    ///
    /// Do not drop the future before it completes: jobs leased by an abandoned call run only when the lease expires.
    pub async fn take(&self, request: &TakeRequest<'_>) -> Result<TakeAnswer, StoreError> {
        self.take_beside(request, &TakeErrands { ended: &[], finds_expired: true }).await
    }

    /// Takes as [`take`](Self::take) does, with additional tasks.
    pub async fn take_beside(
        &self,
        request: &TakeRequest<'_>,
        errands: &TakeErrands<'_>,
    ) -> Result<TakeAnswer, StoreError> {
        let mut call = self.job_script(&TAKE, request.queues.iter().map(|(queue, _)| *queue));
        call.push_arg(u64::try_from(request.lease.as_millis()).unwrap_or(u64::MAX))
            .push_arg(request.token.as_str())
            .push_arg(MAX_LOST)
            .push_arg(match request.mode {
                TakeMode::Normal => "normal",
                TakeMode::Rest => "rest",
                TakeMode::Quiesce => "quiesce",
                TakeMode::Alone => "alone",
            })
            .push_arg(u8::from(errands.finds_expired))
            .push_arg(errands.ended.len());
        for EndedSlots { job, grant } in errands.ended {
            call.push_arg(job.as_str()).push_arg(grant.holder());
        }
        for (_, permits) in request.queues {
            call.push_arg(*permits);
        }
        let begun = Instant::now();
        let answer: Vec<Value> = self.run_patiently(&call).await?;
        read_answer(self, request, answer, begun).map_err(|reason| StoreError::invalid_answer(TAKE.name, reason))
    }
}

fn read_answer(
    store: &Store,
    request: &TakeRequest<'_>,
    answer: Vec<Value>,
    begun: Instant,
) -> Result<TakeAnswer, String> {
    let mut answer = answer.into_iter();
    if read_value::<u8>(answer.next())? == 0 {
        return Ok(TakeAnswer::NoEpoch);
    }
    let now_ms: u64 = read_value(answer.next())?;
    let next_due_ms: i64 = read_value(answer.next())?;
    let suspects: bool = read_value(answer.next())?;
    let has_turn: bool = read_value(answer.next())?;
    let more_expired: bool = read_value(answer.next())?;
    let mut dead_values = read_value::<Vec<Value>>(answer.next())?.into_iter();
    let mut groups = read_value::<Vec<Value>>(answer.next())?.into_iter();
    let handed: Vec<(String, u64, String, String)> = read_value(answer.next())?;
    let is_rebuilding: bool = read_value(answer.next())?;
    let grant = |(id, hold_ms, group, own): (String, u64, String, String)| {
        let hold = Duration::from_millis(hold_ms);
        match SlotNeed::new(group, own, hold) {
            Ok(need) => Some((id, SlotGrant::new(request.token.to_shared(), need, begun + hold))),
            Err(error) => {
                warn!(job.id = %id, %error, "Cannot read the slots of a job; they end by time.");
                None
            }
        }
    };
    let mut grants: HashMap<_, _> = handed.into_iter().filter_map(grant).collect();

    let queue = |number: usize| {
        request.queues.get(number.wrapping_sub(1)).map(|(queue, _)| *queue).ok_or("unknown queue number".to_owned())
    };
    let mut dead = Vec::new();
    while let Some(number) = dead_values.next() {
        let queue = queue(read_value(Some(number))?)?;
        let id: String = read_value(dead_values.next())?;
        let error = read_value(dead_values.next())?;
        if let Some(id) = readable_id(queue, id) {
            dead.push(DeadJob { queue, id, error });
        }
    }
    let mut jobs = Vec::new();
    let mut unreadable = Vec::new();
    while let Some(number) = groups.next() {
        let queue = queue(read_value(Some(number))?)?;
        for found in read_group(&mut groups)? {
            let Some(id) = readable_id(queue, found.id) else { continue };
            let token = request.token.clone();
            match found.envelope.as_deref().map(open_envelope).transpose() {
                Ok(payload) => {
                    let payload = payload.flatten();
                    let (due_ms, failed, lost) = (found.due_ms, found.failed, found.lost);
                    let lateness_ms = now_ms.saturating_sub(due_ms);
                    let slots = if grants.is_empty() { None } else { grants.remove(id.as_str()) };
                    jobs.push(LeasedJob {
                        delivery: Delivery { queue, id, payload, due_ms, lateness_ms, failed, lost, slots },
                        token,
                    });
                }
                Err(Outcome::Snooze { delay }) => {
                    warn!(job.id = %id, queue, "The job's envelope is of a newer version; it is snoozed until this process is updated.");
                    unreadable.push(SettleRequest::end_lease(queue, id, token, LeaseEnd::Snooze { delay }));
                }
                Err(Outcome::Dead(error)) => {
                    unreadable.push(SettleRequest::end_lease(queue, id, token, LeaseEnd::Dead { error }));
                }
                Err(_) => {}
            }
        }
    }
    // These grants belong to jobs that cannot be read.
    for (id, grant) in grants {
        if let Ok(job) = JobId::parse(id) {
            store.release_unused_slots(EndedSlots { job, grant });
        }
    }
    let next_due_ms = u64::try_from(next_due_ms).ok();
    Ok(TakeAnswer::Jobs {
        jobs,
        unreadable,
        now_ms,
        next_due_ms,
        dead,
        suspects,
        has_turn,
        more_expired,
        is_rebuilding,
    })
}

/// Job as leased by take.lua.
struct FoundJob {
    id: String,
    due_ms: u64,
    failed: u32,
    lost: u32,
    envelope: Option<String>,
}

/// Reads the jobs of one group: ids, due times, tries of the jobs that have some, and envelopes.
fn read_group(values: &mut impl Iterator<Item = Value>) -> Result<Vec<FoundJob>, String> {
    let ids: Vec<String> = read_value(values.next())?;
    let dues: Vec<u64> = read_value(values.next())?;
    let tried: Vec<(usize, u32, u32)> = read_value(values.next())?;
    let mut envelopes = read_value::<Vec<Option<String>>>(values.next())?.into_iter();
    if dues.len() != ids.len() {
        return Err("not one due per job".to_owned());
    }
    let found = |(id, due_ms)| FoundJob { id, due_ms, failed: 0, lost: 0, envelope: envelopes.next().flatten() };
    let mut jobs: Vec<FoundJob> = ids.into_iter().zip(dues).map(found).collect();
    for (position, failed, lost) in tried {
        let job = position.checked_sub(1).and_then(|position| jobs.get_mut(position)).ok_or("tries of no job")?;
        (job.failed, job.lost) = (failed, lost);
    }
    Ok(jobs)
}

/// Returns the payload of an envelope, or the outcome for a job whose envelope cannot be read.
fn open_envelope(envelope: &str) -> Result<Option<serde_json::Value>, Outcome> {
    let dead = |reason: String| Outcome::Dead(format!("the envelope cannot be read: {reason}"));
    let mut envelope: serde_json::Value = serde_json::from_str(envelope).map_err(|error| dead(error.to_string()))?;
    match envelope["v"].as_u64() {
        Some(1) => Ok(envelope.get_mut("payload").map(serde_json::Value::take)),
        Some(2..) => Err(Outcome::Snooze { delay: NEWER_ENVELOPE_DELAY }),
        _ => Err(dead("it has no version".to_owned())),
    }
}

/// Parses an id. A member that does not parse was not written by this software. It cannot run, and dies of lost
/// deliveries.
fn readable_id(queue: &str, id: String) -> Option<JobId> {
    JobId::parse(id).inspect_err(|error| warn!(queue, %error, "The queue contains an invalid job id.")).ok()
}

fn read_value<T: FromRedisValue>(value: Option<Value>) -> Result<T, String> {
    T::from_redis_value(value.ok_or("too short")?).map_err(|error| error.to_string())
}
