//! `dispatchq bench admission`: how quickly a full area says so, and whether it is ever overfull.
//!
//! API, producers and private servers share this machine. Advice is asked over connections that stay open; the burst is the
//! incident the requirement on server busy names: 77,000 requests within ten seconds. Creations are those of 64 producers at
//! once against a threshold of 100, while orders are cancelled and Redis is flushed once.

use std::{
    io::Write,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::Args;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use redis::cmd;
use serde_json::{Value, json};
use servers::{Postgres, Redis};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use workers::Store;

use super::{
    machine::{Machine, Versions},
    spread::{Percentiles, micros, ms},
};
use crate::{
    admission::{
        limits::Flag,
        table::{self, Author, LimitsChange},
        waiting::{self, Suspects},
    },
    app::App,
    areas::import,
    config::Config,
    db,
    http::server,
    orders::{act::act, actions},
    outbound,
    people::api_keys::{self, Role},
    testbed::signals::interrupted,
};

const SERVICE_TYPE: &str = "RIDE";
const THRESHOLD: i64 = 100;
const WITH_BYPASS: i64 = 120;
/// Areas on a grid, 25 by 40.
const COLUMNS: u32 = 25;
const ROWS: u32 = 40;
const SIDE: f64 = 0.02;
const CORNER: (f64, f64) = (-6.6, 106.6);
/// Producers who create orders at once.
const PRODUCERS: usize = 64;
/// Connections that ask for advice.
const ASKERS: usize = 32;
const POOL: usize = 256;
const PATIENCE: Duration = Duration::from_secs(30);
const GOAL_P99_MS: f64 = 5.0;
const AUTHOR: Author<'static> = Author { actor: "bench", reason: Some("bench") };

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench admission --json > admission.json")]
pub struct Options {
    /// Seconds that advice is asked for
    #[arg(long, value_name = "N", default_value = "10")]
    pub seconds: NonZeroU32,

    /// Orders that are tried to create
    #[arg(long, value_name = "N", default_value = "20000")]
    pub creations: NonZeroU32,

    /// Requests of the burst, which arrive within ten seconds
    #[arg(long, value_name = "N", default_value = "77000")]
    pub burst: NonZeroU32,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

/// Measures, prints, and answers whether nothing was overshot and every request of the burst answered.
pub async fn run(options: Options) -> anyhow::Result<bool> {
    let report = tokio::select! {
        report = measure(&options) => report?,
        name = interrupted() => bail!("the measurement was interrupted by {name}"),
    };
    let text = format!(
        "advice: {}/s, p50 {} ms, p99 {} ms\nlookup among {} areas: p50 {} us, p99 {} us\ncreations: {} tried, {} taken, {}/s, \
         most waiting {} of {WITH_BYPASS} with bypass, overshoot {}\nburst: {} requests, {} answered, p99 {} ms",
        report["checks_per_s"],
        report["p50_ms"],
        report["p99_ms"],
        COLUMNS * ROWS,
        report["lookup_us"]["p50"],
        report["lookup_us"]["p99"],
        report["creations"]["tried"],
        report["creations"]["taken"],
        report["creations"]["per_s"],
        report["creations"]["most_waiting"],
        report["overshoot"],
        report["burst"]["requests"],
        report["burst"]["answered"],
        report["burst"]["p99_ms"],
    );
    if options.json {
        eprintln!("{text}");
        writeln!(std::io::stdout(), "{report}")?;
    } else {
        writeln!(std::io::stdout(), "{text}")?;
    }
    Ok(report["overshoot"] == 0 && report["burst"]["requests"] == report["burst"]["answered"])
}

struct Stage {
    app: App,
    base: String,
    key: String,
    client: reqwest::Client,
}

async fn measure(options: &Options) -> anyhow::Result<Value> {
    let (machine, versions) = (Machine::look(), Versions::look().await?);
    let (redis, postgres) = tokio::try_join!(Redis::start(), Postgres::start())?;
    let mut config = Config::defaults();
    config.redis.url = redis.url();
    config.database.url = postgres.url();
    let pool = db::connect(&config.database).await?;
    db::migrate(&pool).await?;
    db::publish_service_types(&pool, &config).await?;
    let store = Store::connect(&config.redis.url).await?;
    let app = App::new(config, pool, store)?;
    areas(&app).await?;
    let (_, key) = api_keys::create(&app.db, "bench", Role::Producer, None).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let base = format!("http://{}", listener.local_addr()?);
    let stop = CancellationToken::new();
    tokio::spawn(server::serve_api(listener, app.clone(), stop.clone()));
    let stage = Arc::new(Stage { app, base, key, client: outbound::client(PATIENCE)? });

    let lookup = lookup(&stage.app);
    let (checks, checked) = advice(&stage, Duration::from_secs(options.seconds.get().into())).await;
    let creations = creations(&stage, options.creations.get()).await?;
    let burst = burst(&stage, options.burst.get()).await;
    stop.cancel();
    let p = Percentiles::of(checks);
    let (per_s, p99_ms) = (checked.round(), ms(p.p99));
    Ok(json!({
        "checks_per_s": per_s,
        "p50_ms": ms(p.p50),
        "p99_ms": p99_ms,
        "overshoot": creations["overshoot"],
        "burst": burst,
        "creations": creations,
        "lookup_us": lookup,
        "goals": {
            "p99_ms": { "goal": format!("<= {GOAL_P99_MS}"), "met": p99_ms <= GOAL_P99_MS },
            "overshoot": { "goal": "0", "met": creations["overshoot"] == 0 },
            "checks_per_s": { "goal": "about 20000", "met": per_s >= 20_000.0 },
        },
        "machine": machine,
        "versions": versions,
    }))
}

/// A grid of areas, each with room for 100.
async fn areas(app: &App) -> anyhow::Result<()> {
    let mut features = Vec::new();
    for n in 0..COLUMNS * ROWS {
        let (south, west) = corner(n);
        let (north, east) = (south + SIDE, west + SIDE);
        features.push(json!({
            "type": "Feature",
            "properties": { "area_id": format!("A-{n}") },
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[west, south], [east, south], [east, north], [west, north], [west, south]]],
            },
        }));
    }
    let text = json!({ "type": "FeatureCollection", "features": features }).to_string();
    table::import(&app.db, &import::parse(&text)?, false, AUTHOR).await?;
    let change = LimitsChange {
        service_type: SERVICE_TYPE.to_owned(),
        max_waiting_orders: Some(THRESHOLD),
        cooldown_period_sec: Some(0),
        low_water_percentage: Some(100),
        ..LimitsChange::default()
    };
    table::set_limits(&app.db, "A-0", &change, None, AUTHOR).await?;
    table::set_flag(&app.db, &Flag { enabled: true, ..Flag::default() }, None, AUTHOR).await?;
    app.rules.refresh(&app.db, &app.config.admission).await?;
    waiting::repair(app, &mut Suspects::default()).await?;
    Ok(())
}

fn corner(n: u32) -> (f64, f64) {
    (CORNER.0 + f64::from(n / COLUMNS) * SIDE, CORNER.1 + f64::from(n % COLUMNS) * SIDE)
}

/// Somewhere in area `n`.
fn place(n: u32) -> (f64, f64) {
    let (south, west) = corner(n);
    (south + SIDE / 3.0, west + SIDE / 3.0)
}

fn lookup(app: &App) -> Value {
    let rules = app.rules.get();
    let mut rng = StdRng::seed_from_u64(1);
    let mut took = Vec::new();
    for _ in 0..100_000 {
        let (lat, lng) = place(rng.random_range(0..COLUMNS * ROWS));
        let begun = Instant::now();
        std::hint::black_box(rules.geofence.locate(lat, lng));
        took.push(i64::try_from(begun.elapsed().as_nanos()).unwrap_or(i64::MAX));
    }
    let p = Percentiles::of(took);
    let us = |ns: i64| (ns as f64 / 10.0).round() / 100.0;
    json!({ "p50": us(p.p50), "p99": us(p.p99), "max": us(p.max) })
}

impl Stage {
    async fn ask(&self, n: u32) -> reqwest::Result<reqwest::StatusCode> {
        let (latitude, longitude) = place(n);
        let body = json!({
            "pickup_location": { "latitude": latitude, "longitude": longitude },
            "service_type": SERVICE_TYPE,
            "channel": "MYBB",
            "user_id": format!("USR-{n}"),
        });
        let url = format!("{}/api/v1/dispatcher/availability-check", self.base);
        let answer = self.client.post(url).bearer_auth(&self.key).json(&body).send().await?;
        let status = answer.status();
        answer.bytes().await?;
        Ok(status)
    }
}

/// Latencies in microseconds, and answers per second.
async fn advice(stage: &Arc<Stage>, time: Duration) -> (Vec<i64>, f64) {
    let begun = Instant::now();
    let mut askers = JoinSet::new();
    for asker in 0..ASKERS {
        let stage = stage.clone();
        askers.spawn(async move {
            let mut rng = StdRng::seed_from_u64(asker as u64);
            let mut took = Vec::new();
            while begun.elapsed() < time {
                // Most of what is asked is asked about the same few areas.
                let n = rng.random_range(0..50);
                let asked = Instant::now();
                if stage.ask(n).await.is_ok_and(|status| status.as_u16() == 200 || status.as_u16() == 503) {
                    took.push(micros(asked.elapsed()));
                }
            }
            took
        });
    }
    let took: Vec<i64> = askers.join_all().await.into_iter().flatten().collect();
    let per_s = took.len() as f64 / begun.elapsed().as_secs_f64();
    (took, per_s)
}

/// Producers create and cancel in one area; Redis is flushed in the middle.
async fn creations(stage: &Arc<Stage>, tries: u32) -> anyhow::Result<Value> {
    let (taken, refused, failed) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (next, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let begun = Instant::now();
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let (stage, next) = (stage.clone(), next.clone());
        let (taken, refused, failed) = (taken.clone(), refused.clone(), failed.clone());
        producers.spawn(async move {
            let mut own = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= u64::from(tries) {
                    return;
                }
                let (latitude, longitude) = place(0);
                let mut body = json!({
                    "order_id": format!("ORD-{n}"),
                    "service_type": SERVICE_TYPE,
                    "pickup": { "latitude": latitude, "longitude": longitude },
                });
                if producer % 8 == 0 {
                    body["loyalty_level"] = json!("ELITE");
                }
                let url = format!("{}/api/v1/orders", stage.base);
                let answer = stage.client.post(url).bearer_auth(&stage.key).json(&body).send().await;
                match answer.map(|answer| answer.status().as_u16()) {
                    Ok(201) => {
                        taken.fetch_add(1, Ordering::Relaxed);
                        own.push(n);
                    }
                    Ok(503) => {
                        refused.fetch_add(1, Ordering::Relaxed);
                        // Drivers are found meanwhile: some of them leave.
                        if let Some(n) = own.pop()
                            && let Ok(order) = format!("ORD-{n}").parse()
                        {
                            let _ = act(&stage.app, &order, |s| actions::cancel(s, "producer:bench", None)).await;
                        }
                    }
                    _ => {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
    }
    let watch = {
        let (stage, done) = (stage.clone(), done.clone());
        tokio::spawn(async move {
            let mut most = 0;
            let mut flushed = false;
            while !done.load(Ordering::Relaxed) {
                most = most.max(waiting::counted(&stage.app.db, "A-0", SERVICE_TYPE).await.unwrap_or_default());
                if !flushed && begun.elapsed() > Duration::from_secs(2) {
                    flushed = true;
                    let _ = stage.app.store.command::<()>("flush", &cmd("FLUSHALL")).await;
                    sleep(Duration::from_millis(500)).await;
                    let _ = waiting::repair(&stage.app, &mut Suspects::default()).await;
                }
                sleep(Duration::from_millis(5)).await;
            }
            most
        })
    };
    producers.join_all().await;
    let seconds = begun.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    let most = watch.await?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Ok(json!({
        "tried": tries,
        "taken": count(&taken),
        "refused": count(&refused),
        "failed": count(&failed),
        "per_s": (f64::from(tries) / seconds).round(),
        "most_waiting": most,
        "overshoot": (most - WITH_BYPASS).max(0),
    }))
}

/// Requests that come when they come, whether or not those before are answered.
async fn burst(stage: &Arc<Stage>, requests: u32) -> Value {
    let begun = tokio::time::Instant::now() + Duration::from_millis(100);
    let next = Arc::new(AtomicU64::new(0));
    let mut pool = JoinSet::new();
    for _ in 0..POOL {
        let (stage, next) = (stage.clone(), next.clone());
        pool.spawn(async move {
            let mut took = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(n) = u32::try_from(n).ok().filter(|n| *n < requests) else { return took };
                // Its time has come, whether a connection is free or not: what it waits for one counts.
                let due = begun + Duration::from_secs(10).mul_f64(f64::from(n) / f64::from(requests));
                sleep_until(due).await;
                if stage.ask(n % 50).await.is_ok() {
                    took.push(micros(due.elapsed()));
                }
            }
        });
    }
    let took: Vec<i64> = pool.join_all().await.into_iter().flatten().collect();
    let answered = took.len();
    let p = Percentiles::of(took);
    json!({ "requests": requests, "answered": answered, "p50_ms": ms(p.p50), "p99_ms": ms(p.p99), "max_ms": ms(p.max) })
}
