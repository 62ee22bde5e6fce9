//! Jobs and their identity.
//!
//! A job is identified by its [`JobId`], `kind:key:number`. Ids are deterministic, so enqueueing the same job twice is
//! harmless and cancelling one needs no lookup. Most jobs are *timers*: they need only their id and have no payload.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    retry::RetryPolicy,
    slots::{SlotGrant, SlotNeed},
};

/// Identity of a job: `kind:key` or `kind:key:number`, at most 200 bytes of `[A-Za-z0-9_:.-]`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(Arc<str>);

/// Error for a text that is not a job id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no job id: expected kind:key or kind:key:number, of letters, digits, '_', '-', '.', at most 200 bytes"
)]
pub struct InvalidJobId(pub String);

impl JobId {
    const MAX_BYTES: usize = 200;

    /// Parses and checks an id.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidJobId> {
        let text = text.into();
        let fits = text.len() <= Self::MAX_BYTES && Self::is_well_formed(&text);
        if fits { Ok(Self(text.into())) } else { Err(InvalidJobId(text)) }
    }

    /// Returns whether the text has two or more non-empty parts, separated by colons. Runs in one pass, because each
    /// taken job is checked.
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

    /// Returns the part before the first colon. It selects the handler.
    pub fn kind(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// Returns the part after the kind.
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

/// Error for a job that can never run, because its id or payload does not fit its kind.
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

/// Type of job: the contract between producers and handlers.
pub trait Job: Sized + Send + 'static {
    /// First part of the job's id. A kind belongs to exactly one queue.
    const KIND: &'static str;
    const QUEUE: &'static str;
    /// Policy after [`Outcome::Retry`](crate::Outcome::Retry), a panic or a timeout.
    const RETRY: RetryPolicy = RetryPolicy::DEFAULT;
    /// Maximum duration of a run. A longer run is aborted and counts as a failed try.
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn id(&self) -> JobId;

    /// Returns the data that the id does not contain. `None` for timers, which then need only one sorted-set member.
    fn payload(&self) -> Option<Value> {
        None
    }

    /// Decodes a job; the inverse of [`id`](Job::id) and [`payload`](Job::payload). After an error the job is dead.
    fn decode(id: &JobId, payload: Option<Value>) -> Result<Self, DecodeError>;
}

/// Request to run a job after a delay.
///
/// It is a delay and not a time, so that no producer's clock matters: the script adds it to Redis' own time.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub queue: &'static str,
    pub id: JobId,
    /// Rounded up to whole milliseconds, so that the job is never early.
    pub delay: Duration,
    pub payload: Option<Value>,
    /// Slots that the job will need when it is due, if its producer knows them. The job is then delivered with them, or
    /// waits in their line. They are a hint: if the job's need has changed, it asks for other slots.
    pub slots: Option<SlotNeed>,
}

impl NewJob {
    pub fn now<J: Job>(job: &J) -> Self {
        Self::after(job, Duration::ZERO)
    }

    pub fn after<J: Job>(job: &J, delay: Duration) -> Self {
        Self { queue: J::QUEUE, id: job.id(), delay, payload: job.payload(), slots: None }
    }

    /// Returns the same job, to be delivered with these slots.
    #[must_use]
    pub fn with_slots(self, slots: SlotNeed) -> Self {
        Self { slots: Some(slots), ..self }
    }

    /// Returns the delay in milliseconds, rounded up.
    pub fn delay_ms(&self) -> u64 {
        round_up_ms(self.delay)
    }
}

/// Queue and id of a job, as needed to cancel it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobAddress {
    pub queue: &'static str,
    pub id: JobId,
}

/// Returns a delay in milliseconds, rounded up so that a job is never early.
pub fn round_up_ms(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// One lease of one job, as passed to a handler.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub queue: &'static str,
    pub id: JobId,
    pub payload: Option<Value>,
    /// Due time, in milliseconds of Redis' clock.
    pub due_ms: u64,
    /// Start of this lease minus the due time.
    pub lateness_ms: u64,
    /// Number of runs that ended in [`Outcome::Retry`](crate::Outcome::Retry), a panic or a timeout.
    pub failed: u32,
    /// Number of leases that ended without a settle, because the process died or lost Redis.
    pub lost: u32,
    /// Slots that came with this delivery, because they were reserved for the job or granted when it was leased.
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
