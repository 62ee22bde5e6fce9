//! Steps about slots, with few groups and own names, so that the jobs compete.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    reference::Wanted,
    slots::Asked,
    steps::{JOBS, Sides, name, queue_of, same},
};
use crate::support::id;
use queue::{
    JobId, LeasedJob, NewJob, SlotGrant, SlotNeed,
    store::{EndedSlots, OngoingWork, ReleaseVerdict, SlotLimits, SlotVerdict, TakeMode, WaitingJob},
};

/// A step selects one of the latest grants, which may have ended.
#[derive(Debug, Clone)]
pub(super) enum SlotStep {
    Acquire {
        job: usize,
        need: SlotNeed,
    },
    /// Exchanges the slots of this grant, which may have ended.
    Exchange {
        grant: usize,
        need: SlotNeed,
    },
    Release(Vec<usize>),
    SetLimits {
        all: Option<u32>,
        groups: Vec<(u8, Option<u32>)>,
    },
    /// Restart of Redis: the epoch names another server.
    Restart,
    Rebuild {
        open: Vec<(usize, SlotNeed)>,
        waiting: Vec<(usize, SlotNeed)>,
    },
    Park(Vec<(usize, SlotNeed)>),
}

pub(super) fn need() -> impl Strategy<Value = SlotNeed> {
    let hold = prop::sample::select(vec![500, 3_000, 8_000]);
    (0..2_u8, 0..4_u8, hold).prop_map(|(group, own, hold)| make_need(group, own, hold))
}

fn make_need(group: u8, own: u8, hold_ms: u64) -> SlotNeed {
    SlotNeed::new(group_name(group), format!("own{own}"), Duration::from_millis(hold_ms)).unwrap()
}

fn group_name(group: u8) -> String {
    format!("server{group}")
}

pub(super) fn step() -> impl Strategy<Value = SlotStep> {
    let needs = |most| prop::collection::vec((0..JOBS, need()), 0..most);
    let group = (0..2_u8, prop::option::weighted(0.9, 0..3_u32));
    let limits = (prop::option::of(0..4_u32), prop::collection::vec(group, 0..3));
    prop_oneof![
        4 => (0..JOBS, need()).prop_map(|(job, need)| SlotStep::Acquire { job, need }),
        2 => (any::<usize>(), need()).prop_map(|(grant, need)| SlotStep::Exchange { grant, need }),
        4 => prop::collection::vec(any::<usize>(), 1..4).prop_map(SlotStep::Release),
        3 => limits.prop_map(|(all, groups)| SlotStep::SetLimits { all, groups }),
        1 => Just(SlotStep::Restart),
        1 => (needs(3), needs(5)).prop_map(|(open, waiting)| SlotStep::Rebuild { open, waiting }),
        4 => needs(4).prop_map(SlotStep::Park),
    ]
}

/// Grants that processes remember.
#[derive(Debug, Default)]
pub(super) struct Grants(Vec<(JobId, SlotGrant)>);

impl Grants {
    pub(super) fn record_handed(&mut self, jobs: &[LeasedJob]) {
        let handed = jobs.iter().map(|leased| &leased.delivery);
        self.0.extend(handed.filter_map(|job| Some((job.id.clone(), job.slots.clone()?))));
    }

    /// Returns the selected grants for both sides.
    pub(super) fn pick_ended(&self, picks: &[usize]) -> (Vec<EndedSlots>, Vec<(String, String)>) {
        let ended = self.pick(picks);
        let texts = ended.iter().map(|ended| (ended.job.to_string(), ended.grant.holder().to_owned())).collect();
        (ended, texts)
    }

    fn pick(&self, picks: &[usize]) -> Vec<EndedSlots> {
        let latest = &self.0[self.0.len().saturating_sub(6)..];
        let picked = picks.iter().filter_map(|pick| latest.get(pick % latest.len().max(1)));
        picked.map(|(job, grant)| EndedSlots { job: job.clone(), grant: grant.clone() }).collect()
    }
}

fn waiting_jobs(needs: &[(usize, SlotNeed)]) -> (Vec<WaitingJob>, Vec<(Wanted, SlotNeed)>) {
    let pair = |(job, need): &(usize, SlotNeed)| {
        let (queue, text) = name(*job);
        let new = NewJob { queue, id: id(&text), delay: Duration::ZERO, payload: None, slots: None };
        let wanted = Wanted { queue, id: text, delay: 0, envelope: None, slots: None };
        (WaitingJob { job: new, need: need.clone() }, (wanted, need.clone()))
    };
    needs.iter().map(pair).unzip()
}

impl Sides<'_> {
    pub(super) async fn take_slot_step(&mut self, step: &SlotStep) -> Result<(), String> {
        match step {
            SlotStep::Acquire { job, need } => self.acquire(*job, need).await,
            SlotStep::Exchange { grant, need } => match self.grants.pick(&[*grant]).pop() {
                Some(held) => self.exchange(&held, need).await,
                None => Ok(()),
            },
            SlotStep::Release(picks) => {
                let (ended, texts) = self.grants.pick_ended(picks);
                self.release_slots(&ended, &texts).await
            }
            SlotStep::SetLimits { all, groups } => {
                let groups: Vec<_> = groups.iter().map(|(group, most)| (group_name(*group), *most)).collect();
                self.set_limits(*all, &groups).await;
                Ok(())
            }
            SlotStep::Restart => {
                if self.reference.epoch {
                    self.bench.redis::<()>(&["SET", "{dq:0}:epoch", "other epoch"]).await;
                }
                self.reference.open = false;
                Ok(())
            }
            SlotStep::Rebuild { open, waiting } => self.rebuild(open, waiting).await,
            SlotStep::Park(needs) => self.park_jobs(needs).await,
        }
    }

    async fn acquire(&mut self, job: usize, need: &SlotNeed) -> Result<(), String> {
        let (queue, job) = name(job);
        let job_id = id(&job);
        let answer = self.bench.store.acquire_slots(queue, &job_id, need).await.unwrap();
        self.record_asked(answer, queue, job_id, need)
    }

    async fn exchange(&mut self, held: &EndedSlots, need: &SlotNeed) -> Result<(), String> {
        let queue = queue_of(held.job.as_str());
        let answer = self.bench.store.exchange_slots(queue, &held.job, &held.grant, need).await.unwrap();
        self.reference.give_up(held.job.as_str(), held.grant.holder());
        self.record_asked(answer, queue, held.job.clone(), need)
    }

    fn record_asked(
        &mut self,
        answer: SlotVerdict,
        queue: &'static str,
        job: JobId,
        need: &SlotNeed,
    ) -> Result<(), String> {
        let (holder, asked) = match &answer {
            SlotVerdict::Granted(grant) => (grant.holder(), Asked::Granted),
            SlotVerdict::Busy => ("none", Asked::Busy),
            SlotVerdict::Closed => ("none", Asked::Closed),
        };
        same(&asked, &self.reference.acquire(queue, job.as_str(), need, holder))?;
        if let SlotVerdict::Granted(grant) = answer {
            self.grants.0.push((job, grant));
        }
        Ok(())
    }

    async fn release_slots(&mut self, ended: &[EndedSlots], texts: &[(String, String)]) -> Result<(), String> {
        if ended.is_empty() {
            return Ok(());
        }
        let freed = self.bench.store.release_slots(ended).await.unwrap();
        let freed: Vec<bool> = freed.into_iter().map(|verdict| verdict == ReleaseVerdict::Freed).collect();
        same(&freed, &self.reference.release_slots(texts))
    }

    async fn set_limits(&mut self, all: Option<u32>, groups: &[(String, Option<u32>)]) {
        let named = groups.iter().map(|(group, most)| (group.as_str().into(), *most)).collect();
        self.bench.store.set_slot_limits(&SlotLimits { all, groups: named }).await.unwrap();
        self.reference.set_limits(all, groups);
    }

    async fn park_jobs(&mut self, needs: &[(usize, SlotNeed)]) -> Result<(), String> {
        let (waiting, wanted) = waiting_jobs(needs);
        if waiting.is_empty() {
            return Ok(());
        }
        same(&self.bench.store.park_jobs(&waiting).await.unwrap(), &self.reference.park_jobs(&wanted))
    }

    async fn rebuild(&mut self, open: &[(usize, SlotNeed)], waiting: &[(usize, SlotNeed)]) -> Result<(), String> {
        let store = &self.bench.store;
        let (run_id, marker) = (store.run_id().await.unwrap(), store.begin_rebuild().await.unwrap());
        self.reference.begin_rebuild(marker.clone());
        let works: Vec<_> = open
            .iter()
            .map(|(job, need)| {
                let (queue, job) = name(*job);
                OngoingWork { queue, id: id(&job), need: need.clone(), left: need.hold() }
            })
            .collect();
        store.restore_slots(&works).await.unwrap();
        for (job, need) in open {
            let (queue, job) = name(*job);
            self.reference.restore(queue, &job, need);
        }
        self.park_jobs(waiting).await?;
        let is_finished = self.bench.store.finish_rebuild(&marker, &run_id).await.unwrap();
        same(&is_finished, &self.reference.finish_rebuild(&marker))
    }

    pub(super) async fn set_first_limits(&mut self) {
        self.set_limits(Some(2), &[(group_name(0), Some(1)), (group_name(1), Some(2))]).await;
    }

    /// Asserts that every parked job gets its slots if there are slots and workers.
    pub(super) async fn serve_all_parked(&mut self) -> Result<(), String> {
        for queue in super::steps::BOTH {
            self.bench.store.resume_queue(queue).await.unwrap();
            self.reference.resume(queue);
        }
        self.rebuild(&[], &[]).await?;
        self.set_limits(Some(1), &[(group_name(0), Some(1)), (group_name(1), Some(1))]).await;
        // Each round ends all slots, including restored ones: they last 8 s.
        for boot in 0..150 {
            if self.reference.slots.parked() == 0 {
                return Ok(());
            }
            let mode = if boot % 2 == 0 { TakeMode::Alone } else { TakeMode::Normal };
            self.take_jobs([9, 9], mode, boot % 3, &[]).await?;
            self.bench.advance(Duration::from_secs(9));
            self.reference.now += 9_000;
        }
        Err(format!("{} jobs are parked for good", self.reference.slots.parked()))
    }
}
