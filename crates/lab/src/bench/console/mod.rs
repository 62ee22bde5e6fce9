//! `dispatchq bench console`: measures the load times of console pages with many orders and fifty viewers, and whether
//! viewers make dispatch late.
//!
//! `serve` and `work` are processes of this binary on private servers. Pages are loaded as browsers load them: with a
//! session, over persistent connections, next to streams of changes.
//!
//! * `fill`: the rows that pages show. `load`: orders that are dispatched during the measurement. `viewers`: simulated
//!   viewers.
//! * `browser`: the browser of a viewer. `markup`: parses pages. `pages`: the visited pages. `visits`: times of visits.

mod browser;
mod fill;
mod load;
mod markup;
mod pages;
mod viewers;
mod visits;

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::Args;
use foundation::core::Core;
use serde_json::json;
use tokio::time::sleep;

use self::{
    browser::Browser,
    fill::FilledDatabase,
    load::OrderLoad,
    pages::ConsolePage,
    viewers::{ViewerTally, Viewers},
    visits::PageVisits,
};
use super::{
    admission,
    frame::{Bound, Figures, Measure},
    spread::{SamplePercentiles, us_to_ms},
};
use crate::testbed::{Testbed, TestbedSettings, drivers::OfferReceiver, print, settings::WebhookTarget};
use accounts::{api_keys::AccountRole, key_admin};
use queue::store::Takeable;
use settings::{Config, ScheduledTask, TaskSchedule};

/// Goals for the default sizes: p99 of a page, and lateness with viewers relative to lateness without.
const MOST_PAGE_P99_MS: f64 = 50.0;
const MOST_TIMES_LATER: f64 = 1.25;
const MOST_LATER_MS: f64 = 2.0;
/// Number of phases without viewers. Each is followed by a phase with viewers, so that other load on the machine
/// affects both.
const PAIRS: u32 = 2;
/// Number of areas of the filled orders.
const AREAS: u32 = 50;
/// Timeout, much longer than a working rebuild takes.
const REBUILD_WAIT: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(50);
/// Interval of the cleanup, longer than the benchmark. The default of one hour would hit one phase and not another.
const NEVER: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example of a quick check:\n  \
    dispatchq bench console --open 2000 --closed 50000 --dead 200 --viewers 5 --seconds 5 --visits 20")]
pub struct ConsoleOptions {
    /// Number of open orders
    #[arg(long, value_name = "N", default_value = "200000")]
    pub open: NonZeroU32,

    /// Number of closed orders within 90 days; 10 million take about 8 GB of disk
    #[arg(long, value_name = "N", default_value = "10000000")]
    pub closed: NonZeroU32,

    /// Number of dead jobs
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub dead: u32,

    /// Number of viewers, each with a session and a stream of changes
    #[arg(long, value_name = "N", default_value = "50")]
    pub viewers: NonZeroU32,

    /// Seconds of each lateness measurement: twice without viewers, twice with them
    #[arg(long, value_name = "N", default_value = "30")]
    pub seconds: NonZeroU32,

    /// Orders created per second during measurements
    #[arg(long, value_name = "N", default_value = "10")]
    pub rate: NonZeroU32,

    /// Number of visits of each page
    #[arg(long, value_name = "N", default_value = "200")]
    pub visits: NonZeroU32,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

impl Measure for ConsoleOptions {
    fn prints_json(&self) -> bool {
        self.json
    }

    async fn measure(&self) -> anyhow::Result<Figures> {
        let offers = OfferReceiver::bind_port().await?;
        let settings = TestbedSettings {
            offers: Some(WebhookTarget { name: "drivers", url: offers.url() }),
            ..TestbedSettings::default()
        };
        let no_cleanup = |config: &mut Config| {
            config.schedules.insert(ScheduledTask::Cleanup, TaskSchedule::Every(NEVER));
        };
        let mut testbed = Testbed::start_with(&settings, no_cleanup).await?;
        let measured = measure_on(self, &mut testbed, offers).await;
        let mut figures = testbed.dir.keep_if_failed(measured)?;
        figures.violations = testbed.end_processes(figures.violations).await.violations;
        Ok(figures)
    }
}

async fn measure_on(options: &ConsoleOptions, testbed: &mut Testbed, offers: OfferReceiver) -> anyhow::Result<Figures> {
    let announce = |step: &str| print::print_line(step, options.json);
    announce("filling the database")?;
    let filled = fill_testbed(options, testbed).await?;
    announce("enqueueing timers and dead jobs in Redis")?;
    rebuild_redis(&testbed.app.core, options.dead).await?;

    let (app, api) = (&testbed.app, &testbed.api);
    let (_, key) = key_admin::create_permanent_key(&app.core.db, "visitor", AccountRole::Admin, None).await?;
    let visitor = Browser::sign_in(api.base_url(), &app.config.console.path, &key).await?;
    let viewers = Viewers::sign_in(app, api, options.viewers.get()).await?;
    let pages = pages::find_pages(&visitor, options).await.map_err(anyhow::Error::msg)?;
    let mut visited = vec![PageVisits::default(); pages.len()];

    let load = OrderLoad::prepare(testbed, offers, options.rate.get()).await?;
    let lasting = Duration::from_secs(options.seconds.get().into());
    let (mut without, mut with, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=PAIRS {
        announce("lateness without viewers, then with them")?;
        let name = format!("without-{pair}");
        problems.extend(load.run_while(&app.core.db, &name, sleep(lasting)).await?);
        without.extend(load::read_lateness(&app.core.db, &name).await?);

        let name = format!("with-{pair}");
        let looking = viewers.look().await?;
        problems.extend(load.run_while(&app.core.db, &name, sleep(lasting)).await?);
        drop(looking);
        with.extend(load::read_lateness(&app.core.db, &name).await?);
    }

    announce("visiting pages")?;
    let looking = viewers.look().await?;
    let visiting = visits::visit_pages(&visitor, &pages, options.visits.get(), &mut visited);
    problems.extend(load.run_while(&app.core.db, "visits", visiting).await?);
    drop(looking);
    let pages: Vec<_> = pages.into_iter().zip(visited).collect();
    let mut figures = build_figures(options, &pages, &viewers.tally(), [without, with]);
    figures.violations.extend(problems);
    figures.set("fill_s", filled.took.as_secs());
    figures.set("database_bytes", filled.bytes);
    Ok(figures)
}

/// Judges pages, viewers, and lateness without and with viewers.
fn build_figures(
    options: &ConsoleOptions,
    pages: &[(ConsolePage, PageVisits)],
    viewers: &ViewerTally,
    lateness: [Vec<i64>; 2],
) -> Figures {
    let mut violations = Vec::new();
    let (mut rows, mut slowest_ms) = (Vec::new(), 0.0_f64);
    for (page, visits) in pages {
        let times = visits.percentiles();
        slowest_ms = slowest_ms.max(us_to_ms(times.p99));
        rows.push(json!({
            "page": page.name,
            "path": page.path_of_visit(0),
            "p50_ms": us_to_ms(times.p50),
            "p99_ms": us_to_ms(times.p99),
            "max_ms": us_to_ms(times.max),
            "bytes": visits.bytes,
        }));
        if let Some(first) = &visits.first_failure {
            violations.push(format!("{}: {} visits failed: {first}", page.name, visits.failures));
        }
    }
    if let Some(first) = &viewers.first_failure {
        violations.push(format!("viewers: {} answers failed: {first}", viewers.failures));
    }
    for (samples, phase) in lateness.iter().zip(["without", "with"]) {
        if samples.is_empty() {
            violations.push(format!("no order was dispatched {phase} viewers; use a larger --seconds"));
        }
    }
    let [without, with] = lateness.map(SamplePercentiles::from_samples);
    let mut figures = Figures::new(json!({
        "open": options.open,
        "closed": options.closed,
        "dead": options.dead,
        "viewers": options.viewers,
        "seconds": options.seconds,
        "orders_per_s": options.rate,
        "visits": options.visits,
        "pages": rows,
        "viewers_saw": viewers,
        "lateness_ms": { "without": without.to_json_ms(), "with": with.to_json_ms() },
    }));
    let undisturbed_ms = us_to_ms(without.p99);
    let most_ms = (undisturbed_ms * MOST_TIMES_LATER).max(undisturbed_ms + MOST_LATER_MS);
    figures.goal("page_p99_ms", slowest_ms, Bound::Below(MOST_PAGE_P99_MS));
    figures.goal("lateness_p99_ms", us_to_ms(with.p99), Bound::AtMost(most_ms));
    figures.violations = violations;
    figures
}

/// Fills the database, and restarts Postgres with fsync.
async fn fill_testbed(options: &ConsoleOptions, testbed: &mut Testbed) -> anyhow::Result<FilledDatabase> {
    let filled = fill::fill_console(&testbed.postgres.url(), options).await?;
    admission::stage::import_areas(&testbed.app.core, AREAS).await?;
    // Default value of an installation; private servers have small segments and fewer of them.
    testbed.postgres.run_statement("ALTER SYSTEM SET max_wal_size = '1GB'").await?;
    testbed.postgres.restart_durable().await?;
    Ok(filled)
}

/// Flushes Redis, and waits until the worker has restored timers and dead jobs from the database and run the due jobs.
async fn rebuild_redis(core: &Core, dead: u32) -> anyhow::Result<()> {
    core.store.run_command::<()>("flush", &redis::cmd("FLUSHALL")).await?;
    let begun = Instant::now();
    loop {
        let takeable = core.store.takeable().await?;
        let queues = core.store.queue_stats(&jobs::queues::ALL).await?;
        let buried: u64 = queues.iter().map(|queue| queue.dead).sum();
        let unfinished: u64 = queues.iter().map(|queue| queue.due + queue.leased).sum();
        if takeable == Takeable::All && buried >= u64::from(dead) && unfinished == 0 {
            return Ok(());
        }
        if begun.elapsed() > REBUILD_WAIT {
            bail!(
                "{REBUILD_WAIT:?} after a flush the epoch is {takeable:?}, {buried} of {dead} jobs are dead, and {unfinished} are unfinished"
            );
        }
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: ConsoleOptions,
    }

    #[test]
    fn failed_page_and_missing_orders_are_violations() {
        let options = Cli::parse_from(["bench"]).options;
        let mut failed = PageVisits::default();
        failed.record_failure("/areas was answered 500".to_owned());
        let page = ConsolePage { name: "areas".to_owned(), paths: vec!["/areas".to_owned()] };
        let figures = build_figures(&options, &[(page, failed)], &ViewerTally::default(), [vec![1000], Vec::new()]);
        let expected = [
            "areas: 1 visits failed: /areas was answered 500",
            "no order was dispatched with viewers; use a larger --seconds",
        ];
        assert_eq!(figures.violations, expected);
    }
}
