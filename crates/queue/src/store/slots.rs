//! Slots that pass from job to job: a limited number in total and per group. Design: docs/design/slots.md.
//!
//! A job asks for its slots. If it does not get them, its run ends with [`Outcome::Park`](crate::Outcome::Park) and the
//! job waits in the line of its group. Freed slots go to the first job of the group whose turn it is, and that job is
//! due at once. The end of slots is fixed when they are granted; they cannot be renewed.

use std::{sync::Arc, time::Duration};

use job_contract::{InvalidSlotNeed, SlotGrant, SlotNeed};
use serde::Serialize;

use super::{
    bounds::BATCH,
    client::{QueueNumbers, Store, encode_envelope},
    ended_slots::EndedSlots,
    error::StoreError,
    script::{COMPARE_SLOTS, LIST_SLOTS, NamedScript, PARK, RELEASE_SLOTS, RESTORE_SLOTS, SET_SLOT_LIMITS, SLOT_STATS},
};
use crate::job::{JobId, NewJob, round_up_ms};

/// Result of freeing slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseVerdict {
    Freed,
    /// The slots had ended already, or belong to another run. Nothing changed.
    NotHeld,
}

/// Numbers of slots to set. Numbers that are not given stay the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotLimits {
    /// Number of slots of the shard; `None` keeps it.
    pub all: Option<u32>,
    /// Number of slots of each listed group; `None` removes the limit. A group without a limit gets no slots.
    pub groups: Vec<(Arc<str>, Option<u32>)>,
}

impl SlotLimits {
    /// Sets the total number of slots.
    pub fn for_shard(all: u32) -> Self {
        Self { all: Some(all), groups: Vec::new() }
    }

    /// Adds the number of slots of a group.
    pub fn with_group(mut self, group: impl Into<String>, most: u32) -> Result<Self, InvalidSlotNeed> {
        self.groups.push((SlotNeed::check_name(group.into())?, Some(most)));
        Ok(self)
    }
}

/// Work that is still running and holds slots that Redis may have lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OngoingWork {
    pub queue: &'static str,
    pub id: JobId,
    pub need: SlotNeed,
    /// Remaining time of its slots.
    pub left: Duration,
}

/// Job to put into the line for its slots.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingJob {
    /// Its delay is ignored.
    pub job: NewJob,
    pub need: SlotNeed,
}

/// Result of parking a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkVerdict {
    /// The job was absent and waits in line.
    Parked,
    /// The job is due, leased or dead; nothing changed.
    Elsewhere,
    /// The job was parked already and keeps its place.
    Kept,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupSlots {
    pub group: String,
    pub limit: u32,
    /// Slots held or reserved. More than the limit after the limit was lowered.
    pub in_use: u32,
    /// Jobs in the line, without those that wait for their own name.
    pub waiting: u64,
    /// Time that the first of them has waited, in ms.
    pub first_waits_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotStats {
    pub limit: u32,
    /// Slots held or reserved. More than the limit after the limit was lowered.
    pub in_use: u64,
    /// Jobs of all groups that wait for slots.
    pub parked: u64,
    /// The requested groups, in their order.
    pub groups: Vec<GroupSlots>,
}

/// A job that holds slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotHolder {
    pub id: String,
    /// End of its slots, in ms.
    pub ends_ms: u64,
    pub group: String,
    pub own: String,
    /// Whether they are only reserved: the job is due and no worker has taken it yet.
    pub reserved: bool,
}

impl Store {
    /// Frees the slots of ended work and hands them over. Returns one verdict per job, in their order.
    ///
    /// The call accepts any number of jobs and sends them in batches of 500, each batch atomic. Freeing twice is
    /// harmless.
    pub async fn release_slots(&self, ended: &[EndedSlots]) -> Result<Vec<ReleaseVerdict>, StoreError> {
        let mut verdicts = Vec::with_capacity(ended.len());
        for batch in ended.chunks(BATCH) {
            let held = batch.iter().map(|EndedSlots { job, grant }| (job.as_str(), grant.holder()));
            verdicts.extend(self.release_held(held).await?);
        }
        Ok(verdicts)
    }

    /// Frees the slots of one batch. Each item is a job and the holder of its slots.
    pub(super) async fn release_held<'a>(
        &self,
        held: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Vec<ReleaseVerdict>, StoreError> {
        let (jobs, mut call) = (held.len(), self.job_script(&RELEASE_SLOTS, []));
        for (job, holder) in held {
            call.push_arg(job).push_arg(holder);
        }
        let codes = read_codes(&RELEASE_SLOTS, jobs, self.run_idempotent(&call).await?)?;
        let verdict = |code: u8| if code == 1 { ReleaseVerdict::Freed } else { ReleaseVerdict::NotHeld };
        Ok(codes.into_iter().map(verdict).collect())
    }

    /// Returns whether Redis still has a job's slots. Slots that have not ended may be missing after a flush or a
    /// failover to a replica that did not have them yet. Another job may then have them.
    pub async fn holds_slots(&self, job: &JobId, grant: &SlotGrant) -> Result<bool, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(self.keys().slot_holds()).arg(job.as_str());
        let held: Option<String> = self.run_command("slots of a job", &command).await?;
        // The holder is the last word, as slots.lua writes it.
        Ok(held.is_some_and(|held| held.rsplit(' ').next() == Some(grant.holder())))
    }

    /// Sets the number of slots of the shard and of some groups, and hands out the slots that this frees. Slots above a
    /// lowered limit stay until they end.
    ///
    /// Limits are lost with Redis' data, and without them no slots are granted. Set them before a rebuild finishes, and
    /// also at regular intervals, because a process of an older version may do the rebuild. Unchanged limits cost one
    /// call per 500 groups and write nothing. [`slot_stats`](Self::slot_stats) reads them.
    pub async fn set_slot_limits(&self, limits: &SlotLimits) -> Result<(), StoreError> {
        let mut all = limits.all.map(|all| all.to_string()).unwrap_or_default();
        let mut batches: Vec<&[(Arc<str>, Option<u32>)]> = limits.groups.chunks(BATCH).collect();
        if batches.is_empty() {
            batches.push(&[]);
        }
        for batch in batches {
            let mut call = self.job_script(&SET_SLOT_LIMITS, []);
            call.push_arg(std::mem::take(&mut all));
            for (group, most) in batch {
                call.push_arg(&**group).push_arg(most.map(|most| most.to_string()).unwrap_or_default());
            }
            self.run_idempotent::<u8>(&call).await?;
        }
        Ok(())
    }

    pub(super) async fn hand_out_slots(&self) -> Result<(), StoreError> {
        self.set_slot_limits(&SlotLimits::default()).await
    }

    /// Counts the slots of running work, regardless of limits. For a rebuild, before its epoch is written. These slots
    /// end by time; no holder frees them earlier.
    pub async fn restore_slots(&self, works: &[OngoingWork]) -> Result<(), StoreError> {
        for batch in works.chunks(BATCH) {
            let mut queues = QueueNumbers::default();
            let numbers: Vec<usize> = batch.iter().map(|work| queues.number_of(work.queue)).collect();
            let mut call = self.job_script(&RESTORE_SLOTS, queues.names());
            for (work, number) in batch.iter().zip(numbers) {
                call.push_arg(number).push_arg(work.id.as_str()).push_arg(work.need.group()).push_arg(work.need.own());
                call.push_arg(round_up_ms(work.left));
            }
            read_codes(&RESTORE_SLOTS, batch.len(), self.run_idempotent(&call).await?)?;
        }
        Ok(())
    }

    /// Parks absent jobs in this order, each at the end of its group's line. For a rebuild, after
    /// [`restore_slots`](Self::restore_slots). Returns one verdict per job, in their order.
    pub async fn park_jobs(&self, jobs: &[WaitingJob]) -> Result<Vec<ParkVerdict>, StoreError> {
        let mut verdicts = Vec::with_capacity(jobs.len());
        for batch in jobs.chunks(BATCH) {
            let mut queues = QueueNumbers::default();
            let numbers: Vec<usize> = batch.iter().map(|waiting| queues.number_of(waiting.job.queue)).collect();
            let mut call = self.job_script(&PARK, queues.names());
            for (WaitingJob { job, need }, number) in batch.iter().zip(numbers) {
                call.push_arg(number).push_arg(job.id.as_str()).push_arg(encode_envelope(job));
                call.push_arg(need.group()).push_arg(need.own()).push_arg(round_up_ms(need.hold()));
            }
            for code in read_codes(&PARK, batch.len(), self.run_idempotent(&call).await?)? {
                verdicts.push(match code {
                    1 => ParkVerdict::Parked,
                    2 => ParkVerdict::Elsewhere,
                    3 => ParkVerdict::Kept,
                    other => return Err(StoreError::invalid_answer(PARK.name, other)),
                });
            }
        }
        Ok(verdicts)
    }

    /// Returns limits and counts of the shard and of these groups, at most 500. A limit is 0 if none is set.
    pub async fn slot_stats(&self, groups: &[impl AsRef<str>]) -> Result<SlotStats, StoreError> {
        type Group = (u32, u32, u64, i64);
        let mut call = self.job_script(&SLOT_STATS, []);
        let groups = &groups[..groups.len().min(BATCH)];
        for group in groups {
            call.push_arg(group.as_ref());
        }
        let unknown = |error: redis::ParsingError| StoreError::invalid_answer(SLOT_STATS.name, error);
        let mut answer = self.run_idempotent::<Vec<redis::Value>>(&call).await?.into_iter();
        let mut next = || answer.next().unwrap_or(redis::Value::Nil);
        let now_ms: u64 = redis::from_redis_value(next()).map_err(unknown)?;
        let (limit, in_use, parked) = redis::from_redis_value(next()).map_err(unknown)?;
        let mut counted = Vec::with_capacity(groups.len());
        for group in groups {
            let (limit, in_use, waiting, since_ms): Group = redis::from_redis_value(next()).map_err(unknown)?;
            let first_waits_ms = u64::try_from(since_ms).ok().map(|since_ms| now_ms.saturating_sub(since_ms));
            counted.push(GroupSlots { group: group.as_ref().to_owned(), limit, in_use, waiting, first_waits_ms });
        }
        Ok(SlotStats { limit, in_use, parked, groups: counted })
    }

    /// Returns one page of the jobs that hold slots, those whose slots end first; at most 1,000.
    pub async fn list_slot_holders(&self, offset: usize, limit: usize) -> Result<Vec<SlotHolder>, StoreError> {
        let mut call = self.job_script(&LIST_SLOTS, []);
        call.push_arg(offset).push_arg(limit);
        let rows: Vec<(String, u64, String, String, bool)> = self.run_idempotent(&call).await?;
        let holders = rows.into_iter().map(|(id, ends_ms, group, own, reserved)| SlotHolder {
            id,
            ends_ms,
            group,
            own,
            reserved,
        });
        Ok(holders.collect())
    }

    /// Compares the records of slots with each other. Returns the job, group or own name of each difference, and a text.
    /// Returns nothing if more than `most` jobs hold slots; at most 5,000 are compared.
    pub async fn compare_slots(&self, most: usize) -> Result<Vec<(String, String)>, StoreError> {
        let mut call = self.job_script(&COMPARE_SLOTS, []);
        call.push_arg(most);
        self.run_idempotent(&call).await
    }
}

fn read_codes(script: &'static NamedScript, jobs: usize, codes: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    if codes.len() == jobs { Ok(codes) } else { Err(StoreError::invalid_answer(script.name, "not one code per job")) }
}
