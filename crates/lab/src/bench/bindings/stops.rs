//! Latency of a stop under load: from the HTTP request to the state STOPPED.

use std::time::Duration;

use anyhow::bail;
use foundation::db::Pool;
use jobs::BindingId;
use rand::RngExt;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::stage::binding_id;
use crate::{
    bench::spread::duration_micros,
    testbed::api::{ApiAnswer, ApiClient},
};

/// Interval between stops of a binding.
const EVERY: Duration = Duration::from_millis(200);
const STATE_POLL: Duration = Duration::from_millis(3);
/// Timeout for a stop. It covers the open call of a killed worker with its margin and lease, and a repair.
const STOP_WAIT: Duration = Duration::from_secs(60);

/// Measured stops.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MeasuredStops {
    pub(super) latencies_us: Vec<i64>,
    /// A line for each binding that could not be stopped or restarted.
    pub(super) problems: Vec<String>,
}

/// Stops a binding, waits until it has stopped, and starts it again. Continues with the next binding until `end`.
pub(super) async fn stop_in_turn(
    api: ApiClient,
    key: String,
    db: Pool,
    bindings: u32,
    end: CancellationToken,
) -> anyhow::Result<MeasuredStops> {
    let mut measured = MeasuredStops::default();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = end.cancelled() => return Ok(measured),
            _ = ticks.tick() => {}
        }
        let id = binding_id(rand::rng().random_range(1..=bindings))?;
        match stop_and_start(&api, &key, &db, &id).await {
            Ok(latency) => measured.latencies_us.push(duration_micros(latency)),
            Err(error) => measured.problems.push(format!("binding {id}: {error:#}")),
        }
    }
}

async fn stop_and_start(api: &ApiClient, key: &str, db: &Pool, id: &BindingId) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    ask_for(api, key, id, "stop").await?;
    while read_state(db, id).await? != "STOPPED" {
        if begun.elapsed() > STOP_WAIT {
            bail!("not STOPPED within {STOP_WAIT:?}");
        }
        sleep(STATE_POLL).await;
    }
    let latency = begun.elapsed();
    ask_for(api, key, id, "start").await?;
    Ok(latency)
}

async fn ask_for(api: &ApiClient, key: &str, id: &BindingId, action: &str) -> anyhow::Result<()> {
    match api.binding_action(key, id, action).await {
        ApiAnswer::Done => Ok(()),
        ApiAnswer::Refused { status, code } => bail!("{action} was refused: {status} {code}"),
        ApiAnswer::Failed(error) => bail!("{action} failed: {error}"),
    }
}

async fn read_state(db: &Pool, id: &BindingId) -> Result<String, sqlx::Error> {
    sqlx::query_scalar(
        "-- state of a binding
         SELECT state FROM bindings WHERE id = $1",
    )
    .bind(id.as_str())
    .fetch_one(db)
    .await
}
