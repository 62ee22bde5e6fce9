//! Steps of rebuilds: inserting jobs by due time and publishing the horizon.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    reference::Wanted,
    steps::{JOBS, Sides, Step, name, same},
};
use crate::support::id;
use queue::{
    NewJob,
    store::{DueJob, TakeMode},
};

/// A step selects one of the latest rebuilds, which may no longer count.
#[derive(Debug, Clone)]
pub(super) enum RebuildStep {
    Begin,
    /// Each job with its due time, in ms from now.
    Insert(usize, Vec<(usize, i64)>),
    Publish(usize, i64),
    Finish(usize),
}

const FROM_NOW: [i64; 6] = [-2_000, 0, 1, 500, 2_000, 70_000];

pub(super) fn step() -> impl Strategy<Value = RebuildStep> {
    let pick = || 0..3_usize;
    prop_oneof![
        1 => Just(RebuildStep::Begin),
        3 => (pick(), jobs()).prop_map(|(pick, jobs)| RebuildStep::Insert(pick, jobs)),
        3 => (pick(), prop::sample::select(FROM_NOW.to_vec()))
            .prop_map(|(pick, from_now)| RebuildStep::Publish(pick, from_now)),
        1 => pick().prop_map(RebuildStep::Finish),
    ]
}

fn jobs() -> impl Strategy<Value = Vec<(usize, i64)>> {
    prop::collection::vec((0..JOBS, prop::sample::select(FROM_NOW.to_vec())), 1..6)
}

/// Generates a flush, followed by a rebuild in parts with takes in between. It may end with another flush.
pub(super) fn lost_and_rebuilt() -> impl Strategy<Value = Vec<Step>> {
    let advance = || prop::sample::select(vec![1_u64, 500, 2_000]).prop_map(Step::Advance);
    let insert = || jobs().prop_map(|jobs| Step::Rebuild(RebuildStep::Insert(0, jobs)));
    let publish = || {
        prop::sample::select(FROM_NOW.to_vec()).prop_map(|from_now| Step::Rebuild(RebuildStep::Publish(0, from_now)))
    };
    let any_take = || ([0..4_usize, 0..4_usize], 0..3_u8).prop_map(|(permits, boot)| take(permits, boot));
    let parts = (insert(), publish(), any_take(), insert(), advance(), any_take(), publish(), any_take());
    (parts, prop::bool::weighted(0.7)).prop_map(|((a, b, c, d, e, f, g, h), is_finished)| {
        let first = take([4, 4], 0);
        let begin = [Step::Flush { rebuild: false }, Step::Rebuild(RebuildStep::Begin), first.clone()];
        let last = if is_finished { Step::Rebuild(RebuildStep::Finish(0)) } else { Step::Flush { rebuild: false } };
        begin.into_iter().chain([a, b, c, d, e, f, g, h, last, first]).collect()
    })
}

fn take(permits: [usize; 2], boot: u8) -> Step {
    Step::Take { permits, mode: TakeMode::Normal, boot, ended: Vec::new() }
}

impl Sides<'_> {
    pub(super) async fn take_rebuild_step(&mut self, step: &RebuildStep) -> Result<(), String> {
        let store = &self.bench.store;
        // 0 is the latest.
        let picked = |pick: &usize| self.markers.iter().rev().nth(*pick).cloned();
        match step {
            RebuildStep::Begin => {
                let marker = store.begin_rebuild().await.unwrap();
                self.reference.begin_rebuild(marker.clone());
                self.markers.push(marker);
                Ok(())
            }
            RebuildStep::Insert(pick, jobs) => {
                let Some(marker) = picked(pick) else { return Ok(()) };
                let (due_jobs, wanted): (Vec<_>, Vec<_>) = jobs.iter().map(|job| self.due_job(*job)).unzip();
                let dues: Vec<u64> = due_jobs.iter().map(|due| due.due_ms).collect();
                let answer = store.rebuild_jobs(&marker, &due_jobs).await.unwrap();
                same(&answer, &self.reference.rebuild_jobs(&marker, &wanted, &dues))
            }
            RebuildStep::Publish(pick, from_now) => {
                let Some(marker) = picked(pick) else { return Ok(()) };
                let horizon = self.reference.now.saturating_add_signed(*from_now);
                let answer = store.publish_horizon(&marker, horizon).await.unwrap();
                same(&answer, &self.reference.publish_horizon(&marker, horizon))
            }
            RebuildStep::Finish(pick) => {
                let Some(marker) = picked(pick) else { return Ok(()) };
                let run_id = store.run_id().await.unwrap();
                let answer = store.finish_rebuild(&marker, &run_id).await.unwrap();
                same(&answer, &self.reference.finish_rebuild(&marker))
            }
        }
    }

    fn due_job(&self, (job, from_now): (usize, i64)) -> (DueJob, Wanted) {
        let (queue, text) = name(job);
        let due_ms = self.reference.now.saturating_add_signed(from_now);
        let job = NewJob { queue, id: id(&text), delay: Duration::ZERO, payload: None, slots: None };
        (DueJob { job, due_ms }, Wanted { queue, id: text, delay: 0, envelope: None, slots: None })
    }
}
