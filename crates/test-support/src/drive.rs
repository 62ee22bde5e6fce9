//! Runs due jobs one by one, as a worker does, and returns the jobs that ran.

use std::{sync::atomic::Ordering, time::Duration};

use crate::{TestApp, secs};
use queue::{
    LeaseToken, LeasedJob, Outcome, StoreError,
    store::{EndedSlots, SettleVerdict, TakeAnswer, TakeMode, TakeRequest},
};
use workers::registry::build_registry;

/// Lease time, as in production.
const LEASE: Duration = Duration::from_secs(8);
/// Limit for jobs that are due again at once and would run forever. No test needs as many runs.
const MOST_RUNS: usize = 5_000;

/// Returns the least score in these sets, or nil.
const LEAST_SCORE: &str = "local least
for _, key in ipairs(KEYS) do
  local score = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if score and (not least or score < least) then least = score end
end
return least";

/// A job that ran.
#[derive(Debug)]
pub struct Ran {
    pub queue: &'static str,
    pub id: String,
    pub outcome: Outcome,
}

pub fn ids(ran: &[Ran]) -> Vec<&str> {
    ran.iter().map(|r| r.id.as_str()).collect()
}

impl TestApp {
    /// Leases the due jobs. Jobs that lost a worker twice are leased alone, one at a time.
    pub async fn take(&self) -> Vec<LeasedJob> {
        self.try_take().await.unwrap()
    }

    /// Like [`take`](Self::take), but returns an error when Redis does not answer in time.
    pub async fn try_take(&self) -> Result<Vec<LeasedJob>, StoreError> {
        match self.take_in(TakeMode::Normal).await? {
            (jobs, true) if jobs.is_empty() => Ok(self.take_in(TakeMode::Alone).await?.0),
            (jobs, _) => Ok(jobs),
        }
    }

    async fn take_in(&self, mode: TakeMode) -> Result<(Vec<LeasedJob>, bool), StoreError> {
        let queues = jobs::queues::ALL.map(|queue| (queue, 1000));
        let (mut taken, mut any_suspects) = (Vec::new(), false);
        for store in self.app.core.queue().stores() {
            let token = LeaseToken::new("test", self.takes.fetch_add(1, Ordering::SeqCst)).of_shard(store.shard());
            let request = TakeRequest { queues: &queues, token: &token, lease: LEASE, mode };
            match store.take(&request).await? {
                TakeAnswer::Jobs { jobs, suspects, .. } => {
                    taken.extend(jobs);
                    any_suspects |= suspects;
                }
                TakeAnswer::NoEpoch => panic!("Redis holds no epoch: reconcile first"),
            }
        }
        Ok((taken, any_suspects))
    }

    pub async fn perform(&self, leased: &LeasedJob) -> Outcome {
        build_registry(&self.app).perform(leased.delivery.clone()).await
    }

    pub async fn settle(&self, leased: &LeasedJob, outcome: Outcome) -> SettleVerdict {
        let settle = build_registry(&self.app).settle(leased, outcome);
        let shards = self.app.core.queue();
        let store = &shards.stores()[usize::from(leased.token.shard())];
        if let Some(grant) = leased.delivery.slots.clone().filter(queue::SlotGrant::give_back_unused) {
            store.release_slots(&[EndedSlots { job: leased.delivery.id.clone(), grant }]).await.unwrap();
        }
        shards.settle(store, &[settle]).await.unwrap().remove(0)
    }

    /// Runs and settles jobs until none is due.
    pub async fn run_due(&self) -> Vec<Ran> {
        let mut ran = Vec::new();
        loop {
            // Waits for the slots of the previous jobs. A worker would release them with its next take.
            self.app.core.store.wait_for_slot_releases().await;
            let jobs = self.take().await;
            if jobs.is_empty() {
                return ran;
            }
            for leased in jobs {
                let outcome = self.perform(&leased).await;
                let settled = self.settle(&leased, outcome.clone()).await;
                assert!(matches!(settled, SettleVerdict::Settled { .. }), "{}: {settled:?}", leased.delivery.id);
                ran.push(Ran { queue: leased.delivery.queue, id: leased.delivery.id.to_string(), outcome });
            }
            assert!(ran.len() < MOST_RUNS, "jobs run for ever: {:?}", &ids(&ran)[MOST_RUNS - 10..]);
        }
    }

    /// Moves time and runs every job when it is due.
    pub async fn run_for(&self, time: Duration) -> Vec<Ran> {
        let end_ms = self.now_ms() + u64::try_from(time.as_millis()).unwrap();
        let mut ran = self.run_due().await;
        while let Some(next_ms) = self.next_due_ms().await.filter(|ms| *ms <= end_ms) {
            self.move_clock_to(next_ms).await;
            ran.extend(self.run_due().await);
        }
        self.move_clock_to(end_ms).await;
        ran
    }

    /// Returns when the next job is due or a lease ends: the least time in [`timers`](Self::timers), with one call per
    /// shard.
    pub async fn next_due_ms(&self) -> Option<u64> {
        let mut least = None;
        for store in self.app.core.queue().stores() {
            let keys = store.keys();
            let sets = jobs::queues::ALL.iter().flat_map(|queue| [keys.due_set(queue), keys.leased_set(queue)]);
            let sets: Vec<String> = sets.collect();
            let mut ask = redis::cmd("EVAL");
            ask.arg(LEAST_SCORE).arg(sets.len()).arg(sets);
            let of_shard: Option<u64> = store.run_command("least score", &ask).await.unwrap();
            least = least.into_iter().chain(of_shard).min();
        }
        least
    }

    /// Moves time past the leases of a process that died, so that other workers can take its jobs.
    pub async fn outlive_leases(&self) {
        self.advance(LEASE + secs(1)).await;
    }
}
