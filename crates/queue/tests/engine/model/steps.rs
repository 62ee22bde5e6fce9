//! The steps, their generators, and their execution on both sides.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    laws::{self, HorizonCounts, SlotCounts},
    reader::Reader,
    rebuild_steps::{self, RebuildStep},
    reference::{Ended, Reference, TakenJob, Took, Wanted},
    slot_steps::{self, Grants, SlotStep},
};
use crate::support::{Bench, LEASE, OTHER, QUEUE, id, rebuild};
use queue::{
    JobAddress, LeaseToken, NewJob, SettleRequest, SlotNeed,
    store::{
        DeadFilter, HeldLease, LeaseEnd, RebuildMarker, SettleVerdict, TakeAnswer, TakeErrands, TakeMode, TakeRequest,
    },
};

pub(super) const BOTH: [&str; 2] = [QUEUE, OTHER];

/// Few jobs, so that the steps affect the same ones: 0..4 in one queue, 4..8 in the other.
pub(super) const JOBS: usize = 8;

#[derive(Debug, Clone)]
pub(super) struct New {
    job: usize,
    delay: u64,
    payload: Option<u8>,
    /// Slots that the job states.
    slots: Option<SlotNeed>,
}

/// End of the lease with this number, with its follow-ups and the jobs it supersedes.
#[derive(Debug, Clone)]
pub(super) struct Settle {
    pick: usize,
    end: LeaseEnd,
    then: Vec<New>,
    superseded: Vec<usize>,
}

/// A step selects one of the latest leases, which may have been lost.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Jobs to insert, and superseded jobs.
    Enqueue(Vec<New>, Vec<usize>),
    Repair(Vec<New>),
    Take {
        permits: [usize; 2],
        mode: TakeMode,
        boot: u8,
        /// Grants that have ended.
        ended: Vec<usize>,
    },
    Settle(Vec<Settle>),
    Extend(Vec<usize>),
    Release(Vec<usize>),
    Cancel(usize),
    Reschedule(usize, u64),
    Requeue(Vec<usize>, u64),
    Discard(Vec<usize>),
    DiscardOlder {
        queue: usize,
        age: u64,
        limit: usize,
    },
    ListDead {
        queue: usize,
        age: u64,
    },
    Pause(usize),
    Resume(usize),
    Advance(u64),
    TurnClockBack(u64),
    LoseScripts,
    Flush {
        rebuild: bool,
    },
    Slots(SlotStep),
    Rebuild(RebuildStep),
}

pub(super) fn sequence() -> impl Strategy<Value = Vec<Step>> {
    let part = prop_oneof![
        94 => step().prop_map(|step| vec![step]),
        2 => rebuild_steps::lost_and_rebuilt(),
        5 => Just(let_reservations_lapse()),
        1 => (0..3_u8, 0..JOBS, slot_steps::need()).prop_map(|(boot, job, need)| park_suspect(boot, job, &need)),
    ];
    prop::collection::vec(part, 30..90).prop_map(|parts| parts.concat())
}

/// Returns steps in which the queues have no worker for two reservations in a row.
fn let_reservations_lapse() -> Vec<Step> {
    let lapse =
        vec![Step::Advance(2_000), Step::Take { permits: [0, 0], mode: TakeMode::Normal, boot: 0, ended: Vec::new() }];
    [lapse.clone(), lapse].concat()
}

/// Returns steps that lose all leases twice. A suspect then asks for slots, and some are free.
fn park_suspect(boot: u8, job: usize, need: &SlotNeed) -> Vec<Step> {
    let take = |permits, mode| Step::Take { permits, mode, boot, ended: Vec::new() };
    let lose = vec![take([4, 4], TakeMode::Alone), Step::Advance(8_000), take([0, 0], TakeMode::Normal)];
    let begin = vec![Step::Enqueue(vec![New { job, delay: 0, payload: None, slots: None }], Vec::new())];
    let park = |pick| Settle { pick, end: LeaseEnd::Park(need.clone()), then: Vec::new(), superseded: Vec::new() };
    let park = (0..10).map(park).collect();
    let limits = SlotStep::SetLimits { all: Some(3), groups: vec![(0, Some(2)), (1, Some(2))] };
    let end = vec![take([4, 4], TakeMode::Alone), Step::Settle(park), Step::Slots(limits)];
    [begin, lose.clone(), lose, end].concat()
}

fn step() -> impl Strategy<Value = Step> {
    let delay = || prop::sample::select(vec![0, 0, 1, 500, 8_000, 70_000]);
    let job = || 0..JOBS;
    let new = move || {
        (job(), delay(), prop::option::of(any::<u8>()), prop::option::of(slot_steps::need()))
            .prop_map(|(job, delay, payload, slots)| New { job, delay, payload, slots })
    };
    let news = move |most| prop::collection::vec(new(), 1..most);
    let end = prop_oneof![
        4 => Just(LeaseEnd::Done),
        2 => delay().prop_map(|ms| LeaseEnd::Snooze { delay: Duration::from_millis(ms) }),
        4 => slot_steps::need().prop_map(LeaseEnd::Park),
        2 => delay().prop_map(|ms| LeaseEnd::Retry { delay: Duration::from_millis(ms) }),
        1 => Just(LeaseEnd::Dead { error: "it is broken".to_owned() }),
        1 => Just(LeaseEnd::Spent { error: "failed 5 tries; last: no luck".to_owned() }),
    ];
    let superseded = move || prop_oneof![4 => Just(Vec::<usize>::new()), 1 => prop::collection::vec(job(), 1..4)];
    let settle = (any::<usize>(), end, prop::collection::vec(new(), 0..3), superseded())
        .prop_map(|(pick, end, then, superseded)| Settle { pick, end, then, superseded });
    let picks = || prop::collection::vec(any::<usize>(), 1..4);
    let age = || prop::sample::select(vec![0, 500, 8_000]);
    let mode = prop_oneof![
        5 => Just(TakeMode::Normal),
        3 => Just(TakeMode::Alone),
        1 => Just(TakeMode::Quiesce),
        1 => Just(TakeMode::Rest)
    ];
    prop_oneof![
        6 => (news(6), superseded()).prop_map(|(news, superseded)| Step::Enqueue(news, superseded)),
        1 => prop::collection::vec(job(), 1..4).prop_map(|superseded| Step::Enqueue(Vec::new(), superseded)),
        2 => news(4).prop_map(Step::Repair),
        8 => ([0..5_usize, 0..5_usize], mode, 0..3_u8, prop::collection::vec(any::<usize>(), 0..3))
            .prop_map(|(permits, mode, boot, ended)| Step::Take { permits, mode, boot, ended }),
        6 => prop::collection::vec(settle, 1..5).prop_map(Step::Settle),
        2 => picks().prop_map(Step::Extend),
        2 => picks().prop_map(Step::Release),
        1 => job().prop_map(Step::Cancel),
        1 => (job(), delay()).prop_map(|(job, delay)| Step::Reschedule(job, delay)),
        2 => (prop::collection::vec(job(), 1..5), delay()).prop_map(|(jobs, delay)| Step::Requeue(jobs, delay)),
        1 => prop::collection::vec(job(), 1..4).prop_map(Step::Discard),
        1 => (0..2_usize, age(), 0..3_usize).prop_map(|(queue, age, limit)| Step::DiscardOlder { queue, age, limit }),
        1 => (0..2_usize, age()).prop_map(|(queue, age)| Step::ListDead { queue, age }),
        1 => (0..2_usize).prop_map(Step::Pause),
        2 => (0..2_usize).prop_map(Step::Resume),
        7 => prop::sample::select(vec![1, 500, 2_000, 7_999, 8_000, 30_000]).prop_map(Step::Advance),
        1 => prop::sample::select(vec![500, 8_001, 3_600_000]).prop_map(Step::TurnClockBack),
        1 => Just(Step::LoseScripts),
        1 => prop::bool::weighted(0.8).prop_map(|rebuild| Step::Flush { rebuild }),
        12 => slot_steps::step().prop_map(Step::Slots),
        2 => rebuild_steps::step().prop_map(Step::Rebuild),
    ]
}

/// Redis, the reference, and the leases that a process would remember.
pub(super) struct Sides<'a> {
    pub(super) bench: &'a Bench,
    pub(super) reference: Reference,
    pub(super) grants: Grants,
    /// Rebuilds that were started, the latest last.
    pub(super) markers: Vec<RebuildMarker>,
    leases: Vec<(String, LeaseToken)>,
    takes: u64,
    counts: HorizonCounts,
}

/// Runs the steps from an empty Redis. Returns an error where the sides differ.
pub(super) async fn take_all(bench: &Bench, steps: &[Step]) -> Result<(SlotCounts, HorizonCounts), String> {
    bench.redis::<()>(&["FLUSHALL"]).await;
    rebuild(&bench.store).await;
    let mut sides = Sides {
        bench,
        reference: Reference::new(bench.now_ms()),
        grants: Grants::default(),
        markers: Vec::new(),
        leases: Vec::new(),
        takes: 0,
        counts: HorizonCounts::default(),
    };
    sides.set_first_limits().await;
    let mut reader = Reader::connect(bench).await;
    let mut before = reader.read().await;
    for (number, step) in steps.iter().enumerate() {
        let parted = |what: &str| format!("step {number}, {step:?}: {what}");
        sides.take(step).await.map_err(|what| parted(&what))?;
        let (is, should) = (reader.read().await, sides.reference.image());
        if is != should {
            return Err(parted(&format!("Redis holds\n{is:#?}\nand should hold\n{should:#?}")));
        }
        laws::check(&before, &is, sides.reference.open, step).map_err(|what| parted(&what))?;
        before = is;
    }
    sides.serve_all_parked().await?;
    Ok((sides.reference.slots.counts, sides.counts))
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(is: &T, should: &T) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("the answer is {is:?} and should be {should:?}")) }
}

pub(super) fn name(job: usize) -> (&'static str, String) {
    let queue = BOTH[job / (JOBS / 2)];
    (queue, format!("{}:{job}", &queue[..1]))
}

pub(super) fn queue_of(job: &str) -> &'static str {
    if job.starts_with(&QUEUE[..1]) { QUEUE } else { OTHER }
}

pub(super) fn new_jobs(news: &[New]) -> Vec<NewJob> {
    let new = |new: &New| {
        let (queue, text) = name(new.job);
        let payload = new.payload.map(serde_json::Value::from);
        NewJob { queue, id: id(&text), delay: Duration::from_millis(new.delay), payload, slots: new.slots.clone() }
    };
    news.iter().map(new).collect()
}

pub(super) fn wanted(news: &[New]) -> Vec<Wanted> {
    let wanted = |new: &New| {
        let (queue, id) = name(new.job);
        let slots = new
            .slots
            .as_ref()
            .map(|need| format!(r#","slots":"{} {} {}""#, need.group(), need.own(), need.hold().as_millis()));
        let payload = new.payload.map(|payload| format!(r#","payload":{payload}"#));
        let parts = slots.clone().unwrap_or_default() + &payload.clone().unwrap_or_default();
        let envelope = slots.or(payload).map(|_| format!(r#"{{"v":1{parts}}}"#));
        Wanted { queue, id, delay: new.delay, envelope, slots: new.slots.clone() }
    };
    news.iter().map(wanted).collect()
}

fn names(jobs: &[usize]) -> Vec<String> {
    jobs.iter().map(|job| name(*job).1).collect()
}

fn addresses(jobs: &[usize]) -> Vec<JobAddress> {
    let address = |(queue, text): (&'static str, String)| JobAddress { queue, id: id(&text) };
    jobs.iter().map(|job| address(name(*job))).collect()
}

impl Sides<'_> {
    async fn take(&mut self, step: &Step) -> Result<(), String> {
        let store = &self.bench.store;
        let reference = &mut self.reference;
        match step {
            Step::Enqueue(news, superseded) => {
                let answer = store.enqueue_superseding(&new_jobs(news), &addresses(superseded)).await.unwrap();
                same(&answer, &reference.enqueue(&wanted(news), &names(superseded)))
            }
            Step::Repair(news) => same(&store.repair(&new_jobs(news)).await.unwrap(), &reference.repair(&wanted(news))),
            Step::Take { permits, mode, boot, ended } => self.take_jobs(*permits, *mode, *boot, ended).await,
            Step::Settle(settles) => self.settle(settles).await,
            Step::Extend(picks) => {
                let (held, tokens) = self.held(picks);
                same(&self.bench.store.extend(&held, LEASE).await.unwrap(), &self.reference.extend(&tokens))
            }
            Step::Release(picks) => {
                let (held, tokens) = self.held(picks);
                same(&self.bench.store.release(&held).await.unwrap(), &self.reference.release(&tokens))
            }
            Step::Cancel(job) => {
                let job = name(*job).1;
                same(&store.cancel(&id(&job), &BOTH).await.unwrap(), &reference.cancel(&job))
            }
            Step::Reschedule(job, delay) => {
                let job = name(*job).1;
                let answer = store.reschedule(&id(&job), &BOTH, Duration::from_millis(*delay)).await.unwrap();
                same(&answer, &reference.reschedule(&job, *delay))
            }
            Step::Requeue(jobs, delay) => {
                let jobs = names(jobs);
                let answer = store.requeue(&jobs, &BOTH, Duration::from_millis(*delay)).await.unwrap();
                same(&answer, &reference.requeue(&jobs, *delay))
            }
            Step::Discard(jobs) => {
                let jobs = names(jobs);
                same(&store.discard(&jobs, &BOTH).await.unwrap(), &reference.discard(&jobs))
            }
            Step::DiscardOlder { queue, age, limit } => {
                let queue = BOTH[*queue];
                let answer = store.discard_dead_older_than(queue, Duration::from_millis(*age), *limit).await.unwrap();
                same(&answer, &reference.discard_older(queue, *age, *limit))
            }
            Step::ListDead { queue, age } => {
                let filter = DeadFilter { older_than: Duration::from_millis(*age), ..DeadFilter::default() };
                let page = store.list_dead(BOTH[*queue], &filter, None).await.unwrap();
                let ids: Vec<String> = page.entries.into_iter().map(|entry| entry.id).collect();
                same(&ids, &reference.dead(BOTH[*queue], *age))
            }
            Step::Pause(queue) => same(&store.pause_queue(BOTH[*queue]).await.unwrap(), &reference.pause(BOTH[*queue])),
            Step::Resume(queue) => {
                same(&store.resume_queue(BOTH[*queue]).await.unwrap(), &reference.resume(BOTH[*queue]))
            }
            Step::Advance(ms) => {
                self.bench.advance(Duration::from_millis(*ms));
                reference.now += ms;
                Ok(())
            }
            Step::TurnClockBack(ms) => {
                self.bench.step_back(Duration::from_millis(*ms));
                reference.now -= ms;
                Ok(())
            }
            Step::LoseScripts => {
                self.bench.redis::<()>(&["SCRIPT", "FLUSH"]).await;
                Ok(())
            }
            Step::Flush { rebuild: again } => {
                self.bench.redis::<()>(&["FLUSHALL"]).await;
                reference.flush();
                if *again {
                    rebuild(store).await;
                    (reference.epoch, reference.open) = (true, true);
                }
                Ok(())
            }
            Step::Slots(step) => self.take_slot_step(step).await,
            Step::Rebuild(step) => self.take_rebuild_step(step).await,
        }
    }

    pub(super) async fn take_jobs(
        &mut self,
        permits: [usize; 2],
        mode: TakeMode,
        boot: u8,
        ended: &[usize],
    ) -> Result<(), String> {
        let (ended, texts) = self.grants.pick_ended(ended);
        self.takes += 1;
        let boot = format!("boot{boot}");
        let token = LeaseToken::new(&boot, self.takes);
        let queues = [(QUEUE, permits[0]), (OTHER, permits[1])];
        let request = TakeRequest { queues: &queues, token: &token, lease: LEASE, mode };
        let takeable = self.bench.store.takeable().await.unwrap();
        same(&takeable, &self.reference.takeable())?;
        let reserved = self.reference.slots.all_reserved();
        let answer = match self
            .bench
            .store
            .take_beside(&request, &TakeErrands { ended: &ended, finds_expired: true })
            .await
            .unwrap()
        {
            TakeAnswer::NoEpoch => None,
            TakeAnswer::Jobs { jobs, unreadable, next_due_ms, dead, suspects, has_turn, is_rebuilding, .. } => {
                same(&unreadable, &Vec::new())?;
                self.grants.record_handed(&jobs);
                let jobs = jobs.into_iter().map(|leased| leased.delivery);
                let jobs = jobs.map(|job| TakenJob {
                    id: job.id.to_string(),
                    due: job.due_ms,
                    failed: job.failed,
                    lost: job.lost,
                    slots: job.slots.is_some(),
                });
                let dead = dead.into_iter().map(|job| job.id.to_string()).collect();
                Some(Took { jobs: jobs.collect(), dead, next_due: next_due_ms, suspects, has_turn, is_rebuilding })
            }
        };
        self.counts.add(laws::check_taken(takeable, self.bench.now_ms(), &reserved, answer.as_ref())?);
        let should = self.reference.take(&queues, mode, (&boot, &token.to_string()), &texts);
        same(&answer, &should)?;
        self.leases.extend(answer.into_iter().flat_map(|took| took.jobs).map(|job| (job.id, token.clone())));
        Ok(())
    }

    async fn settle(&mut self, picked: &[Settle]) -> Result<(), String> {
        let (mut settles, mut expected) = (Vec::new(), Vec::new());
        for Settle { pick, end, then, superseded } in picked {
            let (held, tokens) = self.held(&[*pick]);
            for (HeldLease { queue, id, token }, (text, token_text)) in held.into_iter().zip(tokens) {
                let ended = SettleRequest::end_lease(queue, id, token, end.clone());
                settles.push(SettleRequest { then: new_jobs(then), superseded: addresses(superseded), ..ended });
                expected.push(Ended {
                    id: text,
                    token: token_text,
                    end: end.clone(),
                    then: wanted(then),
                    superseded: names(superseded),
                });
            }
        }
        let answer = self.bench.store.settle(&settles).await.unwrap();
        let answer: Vec<_> = answer
            .into_iter()
            .map(|settled| match settled {
                SettleVerdict::Refused => None,
                SettleVerdict::Settled { dead_follow_ups } => {
                    Some(dead_follow_ups.iter().map(ToString::to_string).collect())
                }
            })
            .collect();
        same(&answer, &self.reference.settle(&expected))
    }

    /// Returns the selected ones of the latest leases, for both sides. Empty if there was no lease.
    fn held(&self, picks: &[usize]) -> (Vec<HeldLease>, Vec<(String, String)>) {
        let latest = &self.leases[self.leases.len().saturating_sub(10)..];
        let picked = picks.iter().filter_map(|pick| latest.get(pick % latest.len().max(1)));
        let held = |(text, token): &(String, LeaseToken)| {
            (HeldLease { queue: queue_of(text), id: id(text), token: token.clone() }, (text.clone(), token.to_string()))
        };
        picked.map(held).unzip()
    }
}
