//! What each rung below the engine sends to Redis: inserts, takes and settles, over the engine's own connection.

use std::{iter, ops::Range, time::Duration};

use anyhow::ensure;
use redis::{Cmd, FromRedisValue, Value};
use workers::{
    LeaseToken, LeasedJob, NewJob, SettleRequest, Store,
    store::{EnqueueVerdict, LeaseEnd, SettleVerdict, TakeAnswer, TakeMode, TakeRequest},
};

use crate::bench::timers::{QUEUE, QUEUES};

/// Jobs per call: as many as the engine settles in one.
pub(super) const BATCH: usize = 500;

/// As the engine's.
const LEASE: Duration = Duration::from_secs(8);

/// From the lowest to the one below the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rung {
    /// An empty script per batch.
    Call,
    /// A script that is given and answers what the engine's is, and does nothing.
    Arguments,
    /// Sorted sets and leases are written, and nothing is checked.
    LeastWork,
    /// The engine's scripts, by its store.
    Store,
}

impl Rung {
    pub(super) const ALL: [Self; 4] = [Self::Call, Self::Arguments, Self::LeastWork, Self::Store];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Arguments => "arguments",
            Self::LeastWork => "least_work",
            Self::Store => "store",
        }
    }
}

/// The calls of one rung, about these jobs.
pub(super) struct RungCalls<'a> {
    store: &'a Store,
    jobs: &'a [NewJob],
    way: Way,
}

enum Way {
    Empty { script: String },
    Scripts(PlainScripts),
    Store,
}

/// Scripts by their hashes, with the keys that the engine's have.
struct PlainScripts {
    insert: String,
    take: String,
    settle: String,
    /// Of the one queue that has jobs.
    own_keys: Vec<String>,
    /// Of all, that one first.
    all_keys: Vec<String>,
    /// Whether there is anything to take.
    writes: bool,
}

/// Jobs of one take, on their way to the settle.
pub(super) struct JobsOfTake {
    token: LeaseToken,
    jobs: TakenJobs,
}

enum TakenJobs {
    /// Of the jobs of this measurement, where Redis knows of none.
    Positions(Range<usize>),
    Ids(Vec<String>),
    Leased(Vec<LeasedJob>),
}

impl JobsOfTake {
    pub(super) fn count(&self) -> usize {
        match &self.jobs {
            TakenJobs::Positions(positions) => positions.len(),
            TakenJobs::Ids(ids) => ids.len(),
            TakenJobs::Leased(leased) => leased.len(),
        }
    }
}

impl<'a> RungCalls<'a> {
    pub(super) async fn load(rung: Rung, store: &'a Store, jobs: &'a [NewJob]) -> anyhow::Result<Self> {
        let way = match rung {
            Rung::Call => Way::Empty { script: load_script(store, include_str!("scripts/empty.lua")).await? },
            Rung::Arguments => {
                let texts = [
                    include_str!("scripts/answer_codes.lua"),
                    include_str!("scripts/answer_jobs.lua"),
                    include_str!("scripts/answer_settled.lua"),
                ];
                Way::Scripts(PlainScripts::load(store, texts, false).await?)
            }
            Rung::LeastWork => {
                let texts = [
                    include_str!("scripts/least_insert.lua"),
                    include_str!("scripts/least_take.lua"),
                    include_str!("scripts/least_settle.lua"),
                ];
                Way::Scripts(PlainScripts::load(store, texts, true).await?)
            }
            Rung::Store => Way::Store,
        };
        Ok(Self { store, jobs, way })
    }

    pub(super) async fn insert(&self, batch: &[NewJob]) -> anyhow::Result<()> {
        match &self.way {
            Way::Empty { script } => self.run::<Value>(&script_call(script, &[])).await.map(drop),
            Way::Scripts(scripts) => {
                let mut cmd = self.begin_call(&scripts.insert, &scripts.own_keys);
                cmd.arg(0);
                for job in batch {
                    cmd.arg(1).arg(job.id.as_str()).arg(job.delay_ms()).arg("");
                }
                let codes: Vec<u8> = self.run(&cmd).await?;
                ensure!(codes.len() == batch.len(), "not one answer per job inserted");
                Ok(())
            }
            Way::Store => {
                let verdicts = self.store.enqueue(batch).await?;
                ensure!(verdicts.iter().all(|verdict| *verdict == EnqueueVerdict::Inserted), "a job was there already");
                Ok(())
            }
        }
    }

    /// Takes a batch; so many jobs were taken before.
    pub(super) async fn take(&self, taken: usize, sequence: u64) -> anyhow::Result<JobsOfTake> {
        let positions = taken..(taken + BATCH).min(self.jobs.len());
        let token = LeaseToken::new("0123456789abcdef", sequence);
        let jobs = match &self.way {
            Way::Empty { script } => {
                self.run::<Value>(&script_call(script, &[])).await?;
                TakenJobs::Positions(positions)
            }
            Way::Scripts(scripts) => {
                let mut cmd = self.begin_call(&scripts.take, &scripts.all_keys);
                cmd.arg(LEASE.as_secs() * 1000).arg(token.to_string()).arg(5).arg("normal");
                for _ in QUEUES {
                    cmd.arg(positions.len());
                }
                let (ids, dues): (Vec<String>, Vec<u64>) = self.run(&cmd).await?;
                ensure!(ids.len() == dues.len(), "not one due per job taken");
                if scripts.writes { TakenJobs::Ids(ids) } else { TakenJobs::Positions(positions) }
            }
            Way::Store => {
                let queues = QUEUES.map(|queue| (queue, BATCH));
                let request = TakeRequest { queues: &queues, token: &token, lease: LEASE, mode: TakeMode::Normal };
                match self.store.take(&request).await? {
                    TakeAnswer::Jobs { jobs, .. } => TakenJobs::Leased(jobs),
                    TakeAnswer::NoEpoch => TakenJobs::Leased(Vec::new()),
                }
            }
        };
        Ok(JobsOfTake { token, jobs })
    }

    pub(super) async fn settle(&self, batch: JobsOfTake) -> anyhow::Result<()> {
        let count = batch.count();
        match (&self.way, batch.jobs) {
            (Way::Empty { script }, _) => self.run::<Value>(&script_call(script, &[])).await.map(drop),
            (Way::Scripts(scripts), TakenJobs::Positions(positions)) => {
                let ids = self.jobs[positions].iter().map(|job| job.id.as_str());
                self.settle_ids(scripts, &batch.token, count, ids).await
            }
            (Way::Scripts(scripts), TakenJobs::Ids(ids)) => {
                self.settle_ids(scripts, &batch.token, count, ids.iter().map(String::as_str)).await
            }
            (_, TakenJobs::Leased(leased)) => {
                let end = |LeasedJob { delivery, token }: LeasedJob| {
                    SettleRequest::end_lease(delivery.queue, delivery.id, token, LeaseEnd::Done)
                };
                let settles: Vec<SettleRequest> = leased.into_iter().map(end).collect();
                let verdicts = self.store.settle(&settles).await?;
                ensure!(verdicts.iter().all(|verdict| *verdict != SettleVerdict::Refused), "a settle was refused");
                Ok(())
            }
            (Way::Store, _) => anyhow::bail!("the store leased what it cannot settle"),
        }
    }

    async fn settle_ids<'b>(
        &self,
        scripts: &PlainScripts,
        token: &LeaseToken,
        count: usize,
        ids: impl Iterator<Item = &'b str>,
    ) -> anyhow::Result<()> {
        let mut cmd = self.begin_call(&scripts.settle, &scripts.own_keys);
        cmd.arg(1).arg(token.to_string()).arg("done").arg("").arg(0).arg(0).arg(count);
        for id in ids {
            cmd.arg(id);
        }
        let (refused, left_dead): (Vec<usize>, Vec<String>) = self.run(&cmd).await?;
        ensure!(refused.is_empty() && left_dead.is_empty(), "a settle was refused");
        Ok(())
    }

    /// A call with the arguments that all scripts about jobs begin with.
    fn begin_call(&self, script: &str, keys: &[String]) -> Cmd {
        let mut cmd = script_call(script, keys);
        cmd.arg("").arg(self.store.keys().wake_channel());
        cmd
    }

    async fn run<T: FromRedisValue>(&self, cmd: &Cmd) -> anyhow::Result<T> {
        Ok(self.store.run_command("ladder", cmd).await?)
    }
}

impl PlainScripts {
    /// `texts`: insert, take, settle.
    async fn load(store: &Store, texts: [&str; 3], writes: bool) -> anyhow::Result<Self> {
        let others = QUEUES.into_iter().filter(|queue| *queue != QUEUE);
        Ok(Self {
            insert: load_script(store, texts[0]).await?,
            take: load_script(store, texts[1]).await?,
            settle: load_script(store, texts[2]).await?,
            own_keys: store.keys().script_keys([QUEUE]),
            all_keys: store.keys().script_keys(iter::once(QUEUE).chain(others)),
            writes,
        })
    }
}

/// Answers the script's hash.
async fn load_script(store: &Store, text: &str) -> anyhow::Result<String> {
    Ok(store.run_command("ladder", redis::cmd("SCRIPT").arg("LOAD").arg(text)).await?)
}

fn script_call(script: &str, keys: &[String]) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(script).arg(keys.len()).arg(keys);
    cmd
}
