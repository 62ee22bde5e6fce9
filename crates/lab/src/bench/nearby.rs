//! `dispatchq bench nearby`: how long it takes to find who is near, among many drivers who keep moving.
//!
//! Once by the index in Redis and once by Postgres alone, as after a flush; and how long the index takes to be rebuilt.
//! A search is the whole of what dispatch asks: who is near, who of them may be asked, in which order.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use anyhow::bail;
use chrono::Utc;
use clap::Args;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use redis::cmd;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval},
};
use workers::Store;

use super::{
    machine::{MachineInfo, SoftwareVersions},
    spread::{SamplePercentiles, duration_micros},
};
use crate::testbed::{print, signals::wait_for_interrupt, start_private_servers};
use dispatch::{
    app::App,
    config::Config,
    db,
    fleet::{
        candidates, driver_index,
        drivers::{self, DriverFix, NewDriver},
    },
    ids::LatLng,
    orders::{Order, Snapshot},
};

const SERVICE_TYPE: &str = "RIDE";
/// A city of some 40 by 40 km.
const SOUTH_WEST: LatLng = LatLng::new(-6.37, 106.66);
const NORTH_EAST: LatLng = LatLng::new(-6.01, 107.02);
const GOAL_P99_MS: f64 = 5.0;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench nearby --json > nearby.json")]
pub struct NearbyOptions {
    /// Drivers online, spread over a city
    #[arg(long, value_name = "N", default_value = "10000")]
    pub drivers: NonZeroU32,

    /// Searches, of each sort
    #[arg(long, value_name = "N", default_value = "2000")]
    pub searches: NonZeroU32,

    /// Drivers who say per second where they are, meanwhile
    #[arg(long, value_name = "N", default_value = "200")]
    pub moves_per_s: NonZeroU32,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

/// Measures and prints.
pub async fn run(options: NearbyOptions) -> anyhow::Result<()> {
    let report = tokio::select! {
        report = measure_nearby(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    let line = |name: &str| {
        let ms = &report[name];
        format!("{name:<22} p50 {} ms, p99 {} ms, max {} ms", ms["p50"], ms["p99"], ms["max"])
    };
    let text = [
        line("search_ms"),
        line("search_by_postgres_ms"),
        line("move_ms"),
        format!("index rebuilt in {} ms", report["rebuild_ms"]),
    ]
    .join("\n");
    print::print_report(&text, &report, options.json)
}

async fn measure_nearby(options: &NearbyOptions) -> anyhow::Result<Value> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let (redis, postgres) = start_private_servers().await?;
    let mut config = Config::defaults();
    config.redis.url = redis.url();
    config.database.url = postgres.url();
    let pool = db::connect_pool(&config.database).await?;
    db::migrate_schema(&pool).await?;
    let store = Store::connect(&config.redis.url).await?;
    let app = App::new(config, pool, store)?;
    let mut rng = StdRng::seed_from_u64(1);
    let new: Vec<_> = (0..options.drivers.get()).map(|n| random_driver(n, &mut rng)).collect();
    drivers::import_drivers(&app.db, &new).await?;
    sqlx::query("ANALYZE drivers").execute(&app.db).await?;

    let begun = Instant::now();
    driver_index::rebuild_if_missing(&app).await?;
    let rebuild = begun.elapsed();
    let (searches, moves) = while_moving(&app, options, &mut rng).await?;
    // As if the index were not rebuilt: each search asks Postgres.
    app.store.run_command::<()>("flush", &cmd("FLUSHALL")).await?;
    let (by_postgres, _) = while_moving(&app, options, &mut rng).await?;
    let searched = SamplePercentiles::from_samples(searches).to_json_ms();
    Ok(json!({
        "drivers": options.drivers,
        "searches": options.searches,
        "moves_per_s": options.moves_per_s,
        "search_ms": searched,
        "search_by_postgres_ms": SamplePercentiles::from_samples(by_postgres).to_json_ms(),
        "move_ms": SamplePercentiles::from_samples(moves).to_json_ms(),
        "rebuild_ms": rounded_millis(rebuild),
        "goals": { "search_p99_ms": { "goal": format!("<= {GOAL_P99_MS}"), "met": searched["p99"].as_f64() <= Some(GOAL_P99_MS) } },
        "machine": machine,
        "versions": versions,
    }))
}

/// Searches one after the other while drivers move. Returns how long each took.
async fn while_moving(app: &App, options: &NearbyOptions, rng: &mut StdRng) -> anyhow::Result<(Vec<i64>, Vec<i64>)> {
    let policy = app.config.policy_for_type(&SERVICE_TYPE.into());
    let mut moves = Vec::new();
    let moved = Notify::new();
    let moving = async {
        let mut rng = StdRng::seed_from_u64(2);
        let mut ticks = interval(Duration::from_secs(1) / options.moves_per_s.get());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let driver = format!("D-{}", rng.random_range(0..options.drivers.get())).into();
            let place = random_place(&mut rng);
            let begun = Instant::now();
            match drivers::move_to(&app.db, &driver, DriverFix { place, at: None }).await {
                Ok(Some(located)) => driver_index::upsert_driver(app, &located.place).await,
                Ok(None) => {}
                Err(error) => return error,
            }
            moves.push(duration_micros(begun.elapsed()));
            moved.notify_one();
        }
    };
    let searching = async {
        let mut took = Vec::new();
        for _ in 0..options.searches.get() {
            let s = order_at_pickup(random_place(rng))?;
            let begun = Instant::now();
            let ranking = candidates::rank_drivers(app, &app.batches, &s, &policy).await?;
            took.push(duration_micros(begun.elapsed()));
            anyhow::ensure!(!ranking.ranked.is_empty(), "no driver was found near {:?}", s.order.pickup());
        }
        // Some few searches may be over before the first driver has moved.
        moved.notified().await;
        anyhow::Ok(took)
    };
    let searches = tokio::select! {
        searches = searching => searches?,
        error = moving => bail!("a driver could not move: {error}"),
    };
    Ok((searches, moves))
}

fn random_place(rng: &mut StdRng) -> LatLng {
    let lat = rng.random_range(SOUTH_WEST.lat..NORTH_EAST.lat);
    LatLng { lat, lng: rng.random_range(SOUTH_WEST.lng..NORTH_EAST.lng) }
}

fn random_driver(n: u32, rng: &mut StdRng) -> NewDriver {
    let LatLng { lat: latitude, lng: longitude } = random_place(rng);
    NewDriver {
        id: format!("D-{n}").into(),
        service_types: vec![SERVICE_TYPE.into()],
        latitude,
        longitude,
        available: true,
        phone: None,
    }
}

/// An order that looks for its first driver.
fn order_at_pickup(pickup: LatLng) -> anyhow::Result<Snapshot> {
    let now = Utc::now();
    Ok(Snapshot::from_order(Order::new_unpaid("ORD-1".parse()?, SERVICE_TYPE.into(), pickup, now), now))
}

fn rounded_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e5).round() / 100.0
}
