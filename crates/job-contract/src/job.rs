//! What a job is.
//!
//! A job's identity is its [`JobId`], `kind:key:number`. Ids are deterministic, so enqueueing the same job twice is
//! harmless and cancelling one needs no lookup. Most jobs are *timers*: the id says everything and there is no payload.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    retry::RetryPolicy,
    slots::{SlotGrant, SlotNeed},
};

/// Identity of a job: `kind:key` or `kind:key:number`, at most 200 bytes of `[A-Za-z0-9_:.-]`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(Arc<str>);

/// Why a text is no job id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no job id: expected kind:key or kind:key:number, of letters, digits, '_', '-', '.', at most 200 bytes"
)]
pub struct InvalidJobId(pub String);

impl JobId {
    const MAX_BYTES: usize = 200;

    /// Checks and wraps a text.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidJobId> {
        let text = text.into();
        let fits = text.len() <= Self::MAX_BYTES && Self::is_well_formed(&text);
        if fits { Ok(Self(text.into())) } else { Err(InvalidJobId(text)) }
    }

    /// Two parts or more with a colon between them, none of them empty. In one pass, for each job that is taken is checked.
    fn is_well_formed(text: &str) -> bool {
        let (mut colons, mut before) = (0, b':');
        for byte in text.bytes() {
            match byte {
                b':' if before == b':' => return false,
                b':' => colons += 1,
                b'_' | b'.' | b'-' => {}
                _ if byte.is_ascii_alphanumeric() => {}
                _ => return false,
            }
            before = byte;
        }
        colons > 0 && before != b':'
    }

    /// The part before the first colon: which handler performs the job.
    pub fn kind(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// The part after the kind.
    pub fn key(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, key)| key)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for JobId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A job that can never be performed: its id or payload does not say what its kind needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("job {id} cannot be read: {reason}")]
pub struct DecodeError {
    pub id: JobId,
    pub reason: String,
}

impl DecodeError {
    pub fn new(id: &JobId, reason: impl fmt::Display) -> Self {
        Self { id: id.clone(), reason: reason.to_string() }
    }
}

/// A type of job: the contract between who enqueues it and who performs it.
pub trait Job: Sized + Send + 'static {
    /// First part of the job's id. A kind belongs to exactly one queue.
    const KIND: &'static str;
    const QUEUE: &'static str;
    /// What [`Outcome::Retry`](crate::Outcome::Retry), a panic or a timeout leads to.
    const RETRY: RetryPolicy = RetryPolicy::DEFAULT;
    /// A run longer than this is aborted and counts as a failed try.
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn id(&self) -> JobId;

    /// What the id does not say. `None` for timers, which then cost nothing but one sorted-set member.
    fn payload(&self) -> Option<Value> {
        None
    }

    /// The inverse of [`id`](Job::id) and [`payload`](Job::payload). An error sends the job to the dead letters.
    fn decode(id: &JobId, payload: Option<Value>) -> Result<Self, DecodeError>;
}

/// A request to have a job run after a delay.
///
/// A delay and not a time, so that no producer's clock matters: the script adds it to Redis' own time.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub queue: &'static str,
    pub id: JobId,
    /// Rounded up to whole milliseconds: never early.
    pub delay: Duration,
    pub payload: Option<Value>,
    /// The slots that it will need when it is due, where its producer knows: it is then delivered with them, or waits in their line until
    /// it has them. A hint: a job whose need has changed meanwhile asks for others.
    pub slots: Option<SlotNeed>,
}

impl NewJob {
    pub fn now<J: Job>(job: &J) -> Self {
        Self::after(job, Duration::ZERO)
    }

    pub fn after<J: Job>(job: &J, delay: Duration) -> Self {
        Self { queue: J::QUEUE, id: job.id(), delay, payload: job.payload(), slots: None }
    }

    /// The same job, to be delivered with these slots.
    #[must_use]
    pub fn with_slots(self, slots: SlotNeed) -> Self {
        Self { slots: Some(slots), ..self }
    }

    /// The delay in milliseconds, rounded up.
    pub fn delay_ms(&self) -> u64 {
        round_up_ms(self.delay)
    }
}

/// Where a job lies, as far as cancelling it needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobAddress {
    pub queue: &'static str,
    pub id: JobId,
}

/// Returns a delay in milliseconds, rounded up: never early.
pub fn round_up_ms(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// One lease of one job: what a handler is given to work on.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub queue: &'static str,
    pub id: JobId,
    pub payload: Option<Value>,
    /// When the job was to run, in milliseconds of Redis' clock.
    pub due_ms: u64,
    /// Start of this lease minus due.
    pub lateness_ms: u64,
    /// Runs that ended in [`Outcome::Retry`](crate::Outcome::Retry), a panic or a timeout.
    pub failed: u32,
    /// Leases that ended without a settle: the process died or lost Redis.
    pub lost: u32,
    /// Slots that this delivery holds already, because the job was parked for them.
    pub slots: Option<SlotGrant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_contains_kind_and_key() {
        let id = JobId::parse("timeout:ORD-1:3").unwrap();
        assert_eq!((id.kind(), id.key()), ("timeout", "ORD-1:3"));
    }

    #[test]
    fn id_with_unsafe_characters_is_refused() {
        for bad in ["", "timeout", "timeout:", ":ORD-1", "timeout:a b", "timeout:ä:1", "timeout::1", &"x:".repeat(101)]
        {
            assert!(JobId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn delay_is_rounded_up_to_milliseconds() {
        let id = JobId::parse("k:1").unwrap();
        let job = |delay| NewJob { queue: "q", id: id.clone(), delay, payload: None, slots: None };
        assert_eq!(job(Duration::from_micros(1_001)).delay_ms(), 2);
        assert_eq!(job(Duration::from_millis(2)).delay_ms(), 2);
        assert_eq!(job(Duration::ZERO).delay_ms(), 0);
    }
}
