//! `dispatchq doctor`: checks everything an installation needs, and prints how to fix each problem.

mod providers;
mod transport;

use std::process::ExitCode;

use serde::Serialize;

use super::output;
use accounts::users;
use foundation::{
    config::address::without_password,
    db::{self, SchemaState, history_days},
    shard_map::QueueShards,
};
use queue::{Shards, Store, StoreError, store::Takeable};
use settings::Config;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(long)]
    json: bool,
    /// Exit 1 for warnings, too
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum FindingVerdict {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct DoctorFinding {
    what: &'static str,
    verdict: FindingVerdict,
    detail: String,
}

/// Clock difference above which the doctor warns. Such a difference only makes times in lists confusing; correctness
/// does not depend on clocks.
const CLOCK_TOLERANCE_MS: i64 = 1000;

impl Args {
    pub(super) async fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let mut findings = vec![new_finding("configuration", FindingVerdict::Ok, "valid".to_owned())];
        findings.extend(transport::find_warnings(&config));
        findings.extend(check_postgres(&config).await);
        findings.extend(check_redis(&config).await);
        let failed = findings
            .iter()
            .any(|f| f.verdict == FindingVerdict::Fail || (self.strict && f.verdict == FindingVerdict::Warn));
        if self.json {
            output::print_json(&findings)?;
        } else {
            for f in &findings {
                let mark = match f.verdict {
                    FindingVerdict::Ok => "ok  ",
                    FindingVerdict::Warn => "warn",
                    FindingVerdict::Fail => "FAIL",
                };
                output::print_escaped(&format!("{mark}  {:<14} {}", f.what, f.detail));
            }
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn new_finding(what: &'static str, verdict: FindingVerdict, detail: String) -> DoctorFinding {
    DoctorFinding { what, verdict, detail }
}

async fn check_postgres(config: &Config) -> Vec<DoctorFinding> {
    let pool = match db::connect_pool(&config.database).await {
        Ok(pool) => pool,
        Err(e) => return vec![new_finding("postgres", FindingVerdict::Fail, format!("{e:#}"))],
    };
    let mut found = vec![new_finding("postgres", FindingVerdict::Ok, without_password(&config.database.url))];
    found.push(match db::read_schema_state(&pool).await {
        Ok(SchemaState::Current) => new_finding("schema", FindingVerdict::Ok, "up to date".to_owned()),
        Ok(SchemaState::Expanded(v)) => {
            new_finding("schema", FindingVerdict::Ok, format!("extended by a newer dispatchq, up to migration {v}"))
        }
        Ok(SchemaState::Behind(n)) => {
            new_finding("schema", FindingVerdict::Fail, format!("{n} migration(s) missing; run: dispatchq migrate"))
        }
        Ok(SchemaState::Ahead(v)) => {
            new_finding("schema", FindingVerdict::Fail, format!("made by a newer dispatchq ({v}); upgrade this binary"))
        }
        Ok(SchemaState::Changed(v)) => {
            let detail = format!("from before the first release (migration {v} differs); use an empty database");
            new_finding("schema", FindingVerdict::Fail, detail)
        }
        Err(e) => new_finding("schema", FindingVerdict::Fail, e.to_string()),
    });
    if found.iter().any(|f| f.verdict == FindingVerdict::Fail) {
        return found;
    }
    let drift: Result<f64, _> =
        sqlx::query_scalar("SELECT extract(epoch FROM clock_timestamp())::float8 * 1000").fetch_one(&pool).await;
    if let Ok(theirs) = drift {
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds since the epoch fit")]
        let ms = chrono::Utc::now().timestamp_millis() - theirs as i64;
        found.push(if ms.abs() > CLOCK_TOLERANCE_MS {
            new_finding(
                "clock",
                FindingVerdict::Warn,
                format!("this machine's clock is {ms} ms off Postgres' clock; only times in lists are affected, but set up NTP"),
            )
        } else {
            new_finding("clock", FindingVerdict::Ok, "agrees with Postgres".to_owned())
        });
    }
    if let Ok(days) = history_days::count_ahead(&pool).await
        && days < history_days::FEWEST_DAYS_AHEAD
    {
        let detail = format!(
            "partitions exist for {days} more days; after them no order can change: dispatchq migrate --partitions"
        );
        found.push(new_finding("history", FindingVerdict::Fail, detail));
    } else if config.database.maintenance_url.is_empty() {
        let detail = "without database.maintenance_url workers add no days; run dispatchq migrate --partitions daily";
        found.push(new_finding("history", FindingVerdict::Warn, detail.to_owned()));
    }
    if let Ok(channels) = users::dispatcher_channels(&pool).await {
        let detail = if channels.is_empty() {
            "there are none; orders that wait for a person are reported only to notifications.dispatchers (dispatchq user import)"
        } else {
            "their only channel is the log, so no dispatcher is notified; give them other channels (dispatchq user import)"
        };
        if channels.is_empty() || config.ends_in_log(&channels) {
            found.push(new_finding("dispatchers", FindingVerdict::Warn, detail.to_owned()));
        }
    }
    found.extend(providers::check_servers(config, &pool).await);
    let held: Result<i64, _> =
        sqlx::query_scalar("SELECT count(*) FROM orders WHERE needs_decision AND held_for_review")
            .fetch_one(&pool)
            .await;
    if let Ok(n @ 1..) = held {
        found.push(new_finding(
            "review",
            FindingVerdict::Warn,
            format!("{n} orders wait for a person: dispatchq order list --held"),
        ));
    }
    let late: Result<i64, _> =
        sqlx::query_scalar("SELECT count(*) FROM alerts WHERE acked_at IS NULL AND escalations > 0")
            .fetch_one(&pool)
            .await;
    if let Ok(n @ 1..) = late {
        let detail = format!("{n} alerts were not acknowledged in time: dispatchq alert list --open");
        found.push(new_finding("alerts", FindingVerdict::Warn, detail));
    }
    let dead: Result<i64, _> =
        sqlx::query_scalar("SELECT count(*) FROM outbox WHERE state = 'dead'").fetch_one(&pool).await;
    if let Ok(n @ 1..) = dead {
        let detail = format!("{n} messages could not be delivered: dispatchq outbox list --state dead");
        found.push(new_finding("messages", FindingVerdict::Warn, detail));
    }
    found
}

async fn connect_redis(config: &Config) -> anyhow::Result<Store> {
    let store = Store::with_config(config.redis.to_store_config()?)?;
    store.ping().await?;
    Ok(store)
}

/// Returns the current shards, or only the first shard if Postgres is unreachable.
async fn find_shards(config: &Config, control: &Store) -> Shards {
    let shards = QueueShards::new(control);
    if let Ok(pool) = db::connect_pool(&config.database).await {
        if let Err(error) = shards.reload(&pool).await {
            tracing::debug!(%error, "The number of shards could not be read.");
        }
        pool.close().await;
    }
    shards.get()
}

/// Returns what workers may take from the most restricted shard.
async fn least_takeable(shards: &Shards) -> Result<Takeable, StoreError> {
    let mut least = Takeable::All;
    for store in shards.homes() {
        match store.takeable().await? {
            Takeable::All => {}
            some @ Takeable::UpTo(_) => least = some,
            Takeable::Nothing => return Ok(Takeable::Nothing),
        }
    }
    Ok(least)
}

async fn check_redis(config: &Config) -> Vec<DoctorFinding> {
    let store = match connect_redis(config).await {
        Ok(store) => store,
        Err(e) => return vec![new_finding("redis", FindingVerdict::Fail, format!("{e:#}"))],
    };
    let mut found = vec![new_finding("redis", FindingVerdict::Ok, without_password(&config.redis.url))];
    let shards = find_shards(config, &store).await;
    found.push(match least_takeable(&shards).await {
        Ok(Takeable::All) => new_finding("timers", FindingVerdict::Ok, "in place".to_owned()),
        Ok(Takeable::UpTo(_)) => {
            new_finding("timers", FindingVerdict::Warn, "a worker is restoring them; due timers already run".to_owned())
        }
        Ok(Takeable::Nothing) => new_finding(
            "timers",
            FindingVerdict::Warn,
            "Redis has no timers yet; a worker enqueues them (dispatchq work)".to_owned(),
        ),
        Err(e) => new_finding("timers", FindingVerdict::Fail, e.to_string()),
    });
    match store.list_workers().await {
        Ok(workers) if workers.is_empty() => {
            found.push(new_finding(
                "workers",
                FindingVerdict::Warn,
                "none is running; start one: dispatchq work".to_owned(),
            ));
        }
        Ok(workers) if workers.iter().all(|worker| worker.info.drain_ms.is_some()) => {
            let detail = format!("{} running, and all are drained; see: dispatchq worker list", workers.len());
            found.push(new_finding("workers", FindingVerdict::Warn, detail));
        }
        Ok(workers) => found.push(new_finding("workers", FindingVerdict::Ok, format!("{} running", workers.len()))),
        Err(e) => found.push(new_finding("workers", FindingVerdict::Fail, e.to_string())),
    }
    let mut info = redis::cmd("INFO");
    info.arg("memory").arg("persistence");
    // The Redis login may lack permission for `INFO`; that is not an error.
    if let Ok(info) = store.run_command::<String>("info", &info).await {
        found.extend(transport::check_redis_policy(&info));
    }
    if let Ok(stats) = shards.queue_stats(&jobs::queues::ALL).await {
        for paused in stats.iter().filter(|s| s.paused) {
            let detail = format!("{} is paused; resume it: dispatchq queue resume {}", paused.queue, paused.queue);
            found.push(new_finding("queues", FindingVerdict::Warn, detail));
        }
        let dead: u64 = stats.iter().map(|s| s.dead).sum();
        if dead > 0 {
            let detail = format!("{dead} dead; see: dispatchq job list QUEUE --state dead");
            found.push(new_finding("jobs", FindingVerdict::Warn, detail));
        }
    }
    found
}
