//! `dispatchq bench history`: what retention, timelines, /metrics and the reconciler cost in a database that has worked for a
//! year. The statements are those of the product, issued by it; Postgres itself says how long each took, and by which plan.
//!
//! * `fill`: closed orders, their history by days, and open orders. `bench console` looks at them, too.
//! * `server_log`: durations and plans, as Postgres logs them.

pub(super) mod fill;
mod server_log;

use std::{num::NonZeroU32, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use jobs::OrderId;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use workers::Store;

use super::machine::{MachineInfo, SoftwareVersions};
use crate::testbed::{print, signals::wait_for_interrupt, start_private_servers};
use api::server;
use dispatch::{
    app::App,
    config::Config,
    db,
    orders::query,
    periodic::cleanup::{self, CleanupMode},
    recovery::reconciler,
    telemetry,
};

const GOAL_P99_MS: f64 = 50.0;
const TIMELINES: u32 = 200;
const SCRAPES: u32 = 3;
const LOOKS: u32 = 3;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench history --rows 1500000 --json > history.json")]
pub struct HistoryOptions {
    /// Closed orders; 15 million take some 12 GB of disk
    #[arg(long, value_name = "N", default_value = "15000000")]
    pub rows: NonZeroU32,

    /// Open orders
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub open: NonZeroU32,

    /// Days of history, each a partition
    #[arg(long, value_name = "N", default_value = "400")]
    pub days: NonZeroU32,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

/// Measures and prints. Returns whether every statement met the goal.
pub async fn run(options: HistoryOptions) -> anyhow::Result<bool> {
    let report = tokio::select! {
        report = measure_history(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    let mut text = vec![format!("{:>9} {:>9} {:>9} {:>7}  statement", "p50 ms", "p99 ms", "max ms", "times")];
    for s in report["statements"].as_array().into_iter().flatten() {
        let (p50, p99, max) = (&s["p50_ms"], &s["p99_ms"], &s["max_ms"]);
        text.push(format!("{p50:>9} {p99:>9} {max:>9} {:>7}  {}", s["times"], s["name"].as_str().unwrap_or_default()));
    }
    let violations = report["violations"].as_array().map_or(0, Vec::len);
    text.push(format!("{violations} statements above {GOAL_P99_MS} ms"));
    print::print_report(&text.join("\n"), &report, options.json)?;
    Ok(violations == 0)
}

async fn measure_history(options: &HistoryOptions) -> anyhow::Result<Value> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let metrics = telemetry::init_metrics()?;
    let (redis, postgres) = start_private_servers().await?;
    let mut config = Config::defaults();
    config.redis.url = redis.url();
    config.database.url = postgres.url();
    config.retention.events = Duration::from_secs(u64::from(options.days.get() + 1) * 24 * 3600);
    config.retention.orders = fill::retention_period(options);
    let schema = db::connect_pool(&config.database).await?;
    db::migrate_schema(&schema).await?;
    db::publish_service_types(&schema, &config).await?;
    schema.close().await;
    let filled = fill::fill_history(&postgres.url(), options).await?;

    // Connections made from now on log every statement and its plan.
    let mut db = PgConnection::connect(&postgres.url()).await?;
    for setting in server_log::SETTINGS {
        sqlx::raw_sql(setting).execute(&mut db).await?;
    }
    let pool = db::connect_pool(&config.database).await?;
    let app = App::new(config, pool, Store::connect(&redis.url()).await?)?;
    let mark = server_log::log_length(postgres.dir())?;
    exercise_history_queries(&app, options, metrics).await?;
    app.close().await;
    let statements = server_log::read_statements(postgres.dir(), mark)?;
    anyhow::ensure!(statements.len() > 10, "Postgres logged only {} statements", statements.len());
    let violations: Vec<&str> = statements.iter().filter(|s| s.p99_ms > GOAL_P99_MS).map(|s| s.name.as_str()).collect();
    Ok(json!({
        "rows": options.rows,
        "partitions": filled.partitions,
        "open": options.open,
        "database_bytes": filled.bytes,
        "fill_s": filled.took.as_secs(),
        "statements": statements,
        "violations": violations,
        "goals": { "statement_p99_ms": { "goal": format!("<= {GOAL_P99_MS}"), "met": violations.is_empty() } },
        "machine": machine,
        "versions": versions,
    }))
}

/// Everything whose cost could grow with the history, by the code of the product.
async fn exercise_history_queries(
    app: &App,
    options: &HistoryOptions,
    metrics: metrics_exporter_prometheus::PrometheusHandle,
) -> anyhow::Result<()> {
    for n in 0..TIMELINES {
        // All over the year.
        let order: OrderId =
            fill::closed_id(u64::from(options.rows.get()) * u64::from(n) / u64::from(TIMELINES) + 1).parse()?;
        query::load_timeline(&app.db, &order).await?;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/metrics", listener.local_addr()?);
    let stop = CancellationToken::new();
    let router = api::admin_router(app.clone(), metrics, api::ProcessKind::Serve);
    tokio::spawn(server::serve_router(listener, router, app.config.http.clone(), stop.clone()));
    let _serving = stop.drop_guard();
    let client = dispatch::outbound::build_client(Duration::from_secs(60))?;
    for _ in 0..SCRAPES {
        client.get(&url).send().await?.text().await.context("/metrics does not answer")?;
    }
    // The first puts every timer back, the others look for overdue rows.
    for _ in 0..=LOOKS {
        reconciler::reconcile_once(app).await?;
    }
    let removed = cleanup::run(app, CleanupMode::Remove).await?;
    anyhow::ensure!(removed.orders > 0, "cleanup found nothing to remove");
    Ok(())
}
