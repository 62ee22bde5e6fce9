//! Dead jobs: listing them in pages, requeueing, discarding and restoring them. For operators, outside the hot path.
//!
//! There may be several 100,000 of them. One call examines at most 500, so an operator never blocks Redis.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    bounds::BATCH,
    client::Store,
    error::StoreError,
    script::{DEAD, DISCARD, DISCARD_OLDER, NamedScript, REQUEUE, RESTORE_DEAD},
};
use crate::job::round_up_ms;

/// Record of a dead job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadRecord {
    pub queue: String,
    pub error: String,
    pub failed: u32,
    pub lost: u32,
    pub due_ms: u64,
    pub died_ms: u64,
    /// Envelope, such as `{"v":1,"payload":..}`, or null. A text if the envelope is not JSON, which may be why the job
    /// died.
    pub payload: serde_json::Value,
    /// Envelope, byte for byte; `None` for timers that need no slots.
    #[serde(skip)]
    pub envelope: Option<String>,
}

impl DeadRecord {
    /// Parses the text that `bury` of `lib.lua` writes. Returns `None` if another program wrote it.
    pub(super) fn parse_record(text: &str) -> Option<Self> {
        const PAYLOAD: &str = ",\"payload\":";
        let (head, envelope) = text.strip_suffix('}')?.split_once(PAYLOAD)?;
        let mut record: Self = serde_json::from_str(&format!("{head}{PAYLOAD}null}}")).ok()?;
        record.payload = serde_json::from_str(envelope).unwrap_or_else(|_| envelope.into());
        record.envelope = (envelope != "null").then(|| envelope.to_owned());
        Some(record)
    }

    /// Parses the text as [`parse_record`](Self::parse_record) does. Replaces an unreadable record, so that an operator can
    /// see the job and decide.
    pub(super) fn parse_or_unreadable(text: Option<&str>, queue: &str, died_ms: u64) -> Self {
        let record = text.and_then(Self::parse_record).unwrap_or_else(|| Self {
            queue: queue.to_owned(),
            error: "the record of this job cannot be read".to_owned(),
            failed: 0,
            lost: 0,
            due_ms: died_ms,
            died_ms,
            payload: serde_json::Value::Null,
            envelope: None,
        });
        // The list is sorted by this time of death, so cursors must use it, too.
        Self { died_ms, ..record }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadEntry {
    pub id: String,
    #[serde(flatten)]
    pub record: DeadRecord,
}

impl DeadEntry {
    /// Returns the place in the list after this job.
    pub fn cursor(&self) -> DeadCursor {
        DeadCursor { died_ms: self.record.died_ms, id: self.id.clone() }
    }
}

/// Selection of dead jobs to list. The default selects all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// Text that the error must contain.
    pub error: Option<String>,
    /// Minimum time since the death.
    pub older_than: Duration,
}

/// Place in the list of a queue's dead jobs, directly after the job that it names. Its text form is `died_ms:id`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadCursor {
    died_ms: u64,
    id: String,
}

/// Error for a text that is not a cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a cursor: expected the one from the previous page")]
pub struct InvalidCursor(String);

impl fmt::Display for DeadCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.died_ms, self.id)
    }
}

impl FromStr for DeadCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let parts = text.split_once(':').and_then(|(died_ms, id)| Some((died_ms.parse().ok()?, id.to_owned())));
        parts.map(|(died_ms, id)| Self { died_ms, id }).ok_or_else(|| InvalidCursor(text.to_owned()))
    }
}

/// One page of dead jobs, the longest dead first. It may be empty although more pages follow, if none of the examined
/// jobs matches.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadPage {
    pub entries: Vec<DeadEntry>,
    /// Cursor for the next page; `None` at the end.
    pub next: Option<DeadCursor>,
}

/// Result of requeueing one dead job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueVerdict {
    /// The job is due, with no try spent and its payload unchanged.
    Requeued,
    /// The job is not dead; nothing changed.
    NotDead,
}

/// Result of discarding one dead job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardVerdict {
    /// The job is deleted and may be enqueued again.
    Discarded,
    /// The job is not dead; nothing changed.
    NotDead,
}

/// Result of restoring one dead job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreVerdict {
    /// The job was absent and is dead again, as it was.
    Restored,
    /// The job is due, parked or leased; nothing changed.
    Lives,
    /// The job is dead already; nothing changed.
    Dead,
}

impl Store {
    /// Returns the next page of a queue's dead jobs, after `after` or from the start.
    ///
    /// If other jobs are requeued, discarded or die between two calls, no job appears twice or is left out.
    pub async fn list_dead(
        &self,
        queue: &str,
        filter: &DeadFilter,
        after: Option<&DeadCursor>,
    ) -> Result<DeadPage, StoreError> {
        let mut call = self.job_script(&DEAD, [queue]);
        call.push_arg(round_up_ms(filter.older_than)).push_arg(BATCH);
        match after {
            Some(after) => call.push_arg(after.died_ms).push_arg(after.id.as_str()),
            None => call.push_arg("").push_arg(""),
        };
        let answer: Vec<redis::Value> = self.run_idempotent(&call).await?;
        let unknown = |error: redis::ParsingError| StoreError::invalid_answer(DEAD.name, error);
        let mut values = answer.into_iter();
        let more: bool = redis::from_redis_value(values.next().unwrap_or(redis::Value::Nil)).map_err(unknown)?;
        let mut page = DeadPage { entries: Vec::new(), next: None };
        for value in values {
            let (id, died_ms, record): (String, u64, Option<String>) =
                redis::from_redis_value(value).map_err(unknown)?;
            page.next = more.then(|| DeadCursor { died_ms, id: id.clone() });
            let record = DeadRecord::parse_or_unreadable(record.as_deref(), queue, died_ms);
            if filter.error.as_ref().is_none_or(|wanted| record.error.contains(wanted)) {
                page.entries.push(DeadEntry { id, record });
            }
        }
        Ok(page)
    }

    /// Requeues dead jobs, each due after this delay. Returns one verdict per id, in their order.
    ///
    /// Their tries start from zero. Their payloads are unchanged, so a payload that could not be read before still
    /// cannot. The call accepts any number of ids and sends them in batches of 500, each batch atomic.
    pub async fn requeue(
        &self,
        ids: &[impl AsRef<str>],
        queues: &[&str],
        delay: Duration,
    ) -> Result<Vec<RequeueVerdict>, StoreError> {
        let codes = self.run_decision(&REQUEUE, Some(delay), ids, queues).await?;
        Ok(codes
            .into_iter()
            .map(|code| if code == 1 { RequeueVerdict::Requeued } else { RequeueVerdict::NotDead })
            .collect())
    }

    /// Deletes dead jobs. Returns one verdict per id, in their order. Accepts any number of ids, as
    /// [`requeue`](Self::requeue) does.
    pub async fn discard(&self, ids: &[impl AsRef<str>], queues: &[&str]) -> Result<Vec<DiscardVerdict>, StoreError> {
        let codes = self.run_decision(&DISCARD, None, ids, queues).await?;
        Ok(codes
            .into_iter()
            .map(|code| if code == 1 { DiscardVerdict::Discarded } else { DiscardVerdict::NotDead })
            .collect())
    }

    /// Deletes jobs of a queue that have been dead for `age` or longer, the oldest first. One call deletes at most
    /// `limit` jobs and never more than 500. Returns the number of deleted jobs; call again until it is lower than the
    /// limit.
    pub async fn discard_dead_older_than(&self, queue: &str, age: Duration, limit: usize) -> Result<usize, StoreError> {
        let mut call = self.job_script(&DISCARD_OLDER, [queue]);
        call.push_arg(round_up_ms(age)).push_arg(limit.min(BATCH));
        self.run_script(&call).await
    }

    /// Restores the dead jobs of a queue that has lost them, with time of death, error, tries and payload. Returns one
    /// verdict per job, in their order. Restoring twice is harmless.
    ///
    /// The call accepts any number of jobs and sends them in batches of 500, each batch atomic.
    pub async fn restore_dead(&self, queue: &str, jobs: &[DeadEntry]) -> Result<Vec<RestoreVerdict>, StoreError> {
        let mut verdicts = Vec::with_capacity(jobs.len());
        for batch in jobs.chunks(BATCH) {
            let mut call = self.job_script(&RESTORE_DEAD, [queue]);
            for DeadEntry { id, record } in batch {
                call.push_arg(id)
                    .push_arg(record.died_ms)
                    .push_arg(record.due_ms)
                    .push_arg(record.failed)
                    .push_arg(record.lost);
                call.push_arg(&record.error).push_arg(record.envelope.as_deref().unwrap_or_default());
            }
            let codes: Vec<u8> = self.run_idempotent(&call).await?;
            if codes.len() != batch.len() {
                return Err(StoreError::invalid_answer(RESTORE_DEAD.name, "not one code per job"));
            }
            for code in codes {
                verdicts.push(match code {
                    1 => RestoreVerdict::Restored,
                    2 => RestoreVerdict::Lives,
                    3 => RestoreVerdict::Dead,
                    other => return Err(StoreError::invalid_answer(RESTORE_DEAD.name, other)),
                });
            }
        }
        Ok(verdicts)
    }

    async fn run_decision(
        &self,
        script: &'static NamedScript,
        delay: Option<Duration>,
        ids: &[impl AsRef<str>],
        queues: &[&str],
    ) -> Result<Vec<u8>, StoreError> {
        let mut codes = Vec::with_capacity(ids.len());
        for batch in ids.chunks(BATCH) {
            let mut call = self.job_script(script, queues.iter().copied());
            if let Some(delay) = delay {
                call.push_arg(round_up_ms(delay));
            }
            for id in batch {
                call.push_arg(id.as_ref());
            }
            let answer: Vec<u8> = self.run_script(&call).await?;
            if answer.len() != batch.len() {
                return Err(StoreError::invalid_answer(script.name, "not one code per job"));
            }
            codes.extend(answer);
        }
        Ok(codes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_parses_with_tricky_error_and_payload() {
        let record = |error: &str, payload: &str| {
            let error = serde_json::to_string(error).unwrap();
            format!(r#"{{"queue":"q","error":{error},"failed":1,"lost":2,"due_ms":3,"died_ms":4,"payload":{payload}}}"#)
        };
        let tricky = r#"x,"payload":{"v":1}}"#;
        let read = DeadRecord::parse_record(&record(tricky, r#"{"v":1,"payload":",\"payload\":"}"#)).unwrap();
        assert_eq!((read.error.as_str(), read.failed, read.died_ms), (tricky, 1, 4));
        assert_eq!(read.payload["payload"], ",\"payload\":");
        assert_eq!(DeadRecord::parse_record(&record("e", "{nonsense")).unwrap().payload, "{nonsense");
        assert_eq!(DeadRecord::parse_record("[]"), None);
    }

    #[test]
    fn cursor_round_trips_as_text() {
        let cursor = DeadCursor { died_ms: 17, id: "timeout:ORD-1:3".to_owned() };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        assert!("timeout:ORD-1".parse::<DeadCursor>().is_err());
    }
}
