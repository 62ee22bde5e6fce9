//! Dead letters: reading them in pages, and deciding on them. For operators, outside the hot path.
//!
//! There may be 100,000s of them: a call looks at 500 at most, so Redis never stands still for an operator.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    bounds::BATCH,
    client::Store,
    error::StoreError,
    script::{DEAD, DISCARD, DISCARD_OLDER, NamedScript, REQUEUE, RESTORE_DEAD},
};
use crate::job::round_up_ms;

/// The record of a dead job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadRecord {
    pub queue: String,
    pub error: String,
    pub failed: u32,
    pub lost: u32,
    pub due_ms: u64,
    pub died_ms: u64,
    /// The envelope, such as `{"v":1,"payload":..}`, or null; a text when it is no JSON, which may be what the job died of.
    pub payload: serde_json::Value,
    /// The envelope byte for byte; `None` for timers that need no slots.
    #[serde(skip)]
    pub envelope: Option<String>,
}

impl DeadRecord {
    /// Reads the text that `bury` of `lib.lua` writes. `None` when another program wrote it.
    pub(super) fn parse_record(text: &str) -> Option<Self> {
        const PAYLOAD: &str = ",\"payload\":";
        let (head, envelope) = text.strip_suffix('}')?.split_once(PAYLOAD)?;
        let mut record: Self = serde_json::from_str(&format!("{head}{PAYLOAD}null}}")).ok()?;
        record.payload = serde_json::from_str(envelope).unwrap_or_else(|_| envelope.into());
        record.envelope = (envelope != "null").then(|| envelope.to_owned());
        Some(record)
    }

    /// As [`parse_record`](Self::read); an unreadable record is stood in for, so that its job can be seen and decided on.
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
        // The list goes by this time of death, so cursors must too.
        Self { died_ms, ..record }
    }
}

/// A dead job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadEntry {
    pub id: String,
    #[serde(flatten)]
    pub record: DeadRecord,
}

impl DeadEntry {
    /// The place in the list behind this job.
    pub fn cursor(&self) -> DeadCursor {
        DeadCursor { died_ms: self.record.died_ms, id: self.id.clone() }
    }
}

/// Which dead jobs to list. By default all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// Only those whose error contains this text.
    pub error: Option<String>,
    /// Only those dead for at least this long.
    pub older_than: Duration,
}

/// A place in the list of a queue's dead jobs: behind this one. As text `died_ms:id`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadCursor {
    died_ms: u64,
    id: String,
}

/// Why a text is no place in the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no cursor: expected the one that came with the page before")]
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

/// One page of dead jobs, the longest dead first. It may be empty though more follow: none of those looked at fits.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadPage {
    pub entries: Vec<DeadEntry>,
    /// Where to go on; `None` at the end.
    pub next: Option<DeadCursor>,
}

/// What became of a dead job that was to be requeued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueVerdict {
    /// It is due, no try spent, its payload as it was.
    Requeued,
    /// It is not dead; nothing changed.
    NotDead,
}

/// What became of a dead job that was to be discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardVerdict {
    /// It is forgotten, and may be enqueued again.
    Discarded,
    /// It is not dead; nothing changed.
    NotDead,
}

/// What became of a dead job that was to be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreVerdict {
    /// It was absent and is dead again, as it was.
    Restored,
    /// It is due or leased; nothing changed.
    Lives,
    /// It is dead already; nothing changed.
    Dead,
}

impl Store {
    /// The next page of a queue's dead jobs, after `after` or from the beginning.
    ///
    /// Jobs that are requeued, discarded or die meanwhile make no other job appear twice or be left out.
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

    /// Gives dead jobs another life, each due after this delay. Answers one verdict per id, in their order.
    ///
    /// Their tries start from zero, their payloads are byte for byte what they were: what could not be read then still cannot.
    /// Any number of ids; they go in batches of 500, each batch atomic.
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

    /// Forgets dead jobs. Answers one verdict per id, in their order. Any number of ids, as in
    /// [`requeue`](Self::requeue).
    pub async fn discard(&self, ids: &[impl AsRef<str>], queues: &[&str]) -> Result<Vec<DiscardVerdict>, StoreError> {
        let codes = self.run_decision(&DISCARD, None, ids, queues).await?;
        Ok(codes
            .into_iter()
            .map(|code| if code == 1 { DiscardVerdict::Discarded } else { DiscardVerdict::NotDead })
            .collect())
    }

    /// Forgets a queue's jobs that are dead for `age` or longer, the oldest first, at most `limit` and 500 per call.
    /// Answers how many; call again until it is fewer.
    pub async fn discard_dead_older_than(&self, queue: &str, age: Duration, limit: usize) -> Result<usize, StoreError> {
        let mut call = self.job_script(&DISCARD_OLDER, [queue]);
        call.push_arg(round_up_ms(age)).push_arg(limit.min(BATCH));
        self.run_script(&call).await
    }

    /// Puts jobs back among the dead of a queue that has lost them, with their time of death, error, tries and payload
    /// as they were. Answers one verdict per job, in their order. Restoring twice is harmless.
    ///
    /// Any number of jobs; they go in batches of 500, each batch atomic.
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
    fn a_record_is_read_whatever_its_error_and_payload() {
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
    fn a_cursor_survives_being_written_down() {
        let cursor = DeadCursor { died_ms: 17, id: "timeout:ORD-1:3".to_owned() };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        assert!("timeout:ORD-1".parse::<DeadCursor>().is_err());
    }
}
