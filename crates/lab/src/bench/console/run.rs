//! The measurement, from first to last.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::time::sleep;
use workers::store::Takeable;

use super::{
    ConsoleOptions,
    browser::Browser,
    fill,
    history::FilledHistory,
    load::{self, OrderLoad},
    pages,
    report::{ConsoleFigures, ConsoleReport, LatenessSamples},
    viewers::Viewers,
    visits,
};
use crate::{
    bench::{
        admission,
        machine::{MachineInfo, SoftwareVersions},
        progress::StepProgress,
        statement_counts::count_statements,
    },
    testbed::{Testbed, TestbedSettings, print, signals::wait_for_interrupt},
};
use dispatch::{
    accounts::{api_keys::AccountRole, key_admin},
    app::App,
    config::{Config, ScheduledTask, TaskSchedule},
};

/// Phases without viewers, each followed by one with them: what else goes on at the machine meets both.
const PAIRS: u32 = 2;
/// Fill, rebuild, count, phases, visits.
const STEPS: usize = 4 + 2 * PAIRS as usize;
/// Areas of the filled orders.
const AREAS: u32 = 50;
/// Far longer than any rebuild that works.
const REBUILD_WAIT: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(50);
/// A cleanup comes once an hour: it would fall into one phase and not into another.
const NEVER: Duration = Duration::from_secs(7 * 24 * 3600);

/// Measures and prints. Returns whether every page was answered within its statements; speed is reported and never judged.
pub async fn run(options: ConsoleOptions) -> anyhow::Result<bool> {
    let report = tokio::select! {
        report = measure_console(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.find_violations().is_empty())
}

async fn measure_console(options: &ConsoleOptions) -> anyhow::Result<ConsoleReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let settings = TestbedSettings {
        speed: 1.0,
        serves: 1,
        workers: 1,
        for_faults: false,
        offers: None,
        alerts: None,
        partner: None,
        // It is filled without.
        durable: false,
    };
    let no_cleanup = |config: &mut Config| {
        config.schedules.insert(ScheduledTask::Cleanup, TaskSchedule::Every(NEVER));
    };
    let mut testbed = Testbed::start_with(&settings, no_cleanup).await?;
    let measured = measure_on(options, &mut testbed).await;
    if measured.is_err() {
        testbed.dir.keep_files();
    }
    let mut seen =
        measured.with_context(|| format!("the measurement failed; logs: {}", testbed.dir.path().display()))?;
    let (processes, _app, _redis, _postgres, _dir) = testbed.into_parts();
    seen.problems.extend(processes.stop().await);
    Ok(ConsoleReport { options: options.clone(), seen, machine, versions })
}

async fn measure_on(options: &ConsoleOptions, testbed: &mut Testbed) -> anyhow::Result<ConsoleFigures> {
    let progress = StepProgress::new(STEPS, options.json);
    let filled = progress.run_step("filling the database", fill_testbed(options, testbed)).await?;
    progress.run_step("putting timers and dead jobs into Redis", rebuild_redis(&testbed.app, options.dead)).await?;

    let (app, api) = (&testbed.app, &testbed.api);
    let (_, key) = key_admin::create_permanent_key(&app.db, "visitor", AccountRole::Admin, None).await?;
    let visitor = Browser::sign_in(api.base_url(), &app.config.console.path, &key).await?;
    let viewers = Viewers::sign_in(app, api, options.viewers.get()).await?;
    let pages = pages::find_pages(&visitor, options).await.map_err(anyhow::Error::msg)?;
    let counting = visits::count_page_statements(&app.db, &visitor, &pages);
    let mut visited = progress.run_step("counting statements", counting).await?;

    let load = OrderLoad::prepare(app, api, options.rate.get()).await?;
    let lasting = Duration::from_secs(options.seconds.get().into());
    let (mut lateness, mut problems) = (LatenessSamples::default(), Vec::new());
    for pair in 1..=PAIRS {
        let name = format!("without-{pair}");
        let phase = load.run_while(&app.db, &name, sleep(lasting));
        problems.extend(progress.run_step("lateness without viewers", phase).await?.1);
        lateness.without.extend(load::read_lateness(&app.db, &name).await?);

        let name = format!("with-{pair}");
        let looking = viewers.look().await?;
        let phase = load.run_while(&app.db, &name, sleep(lasting));
        problems.extend(progress.run_step("lateness with viewers", phase).await?.1);
        drop(looking);
        lateness.with.extend(load::read_lateness(&app.db, &name).await?);
    }

    let looking = viewers.look().await?;
    let visiting = visits::visit_pages(&visitor, &pages, options.visits.get(), &mut visited);
    let phase = load.run_while(&app.db, "visits", visiting);
    problems.extend(progress.run_step("visiting pages", phase).await?.1);
    drop(looking);
    let pages = pages.into_iter().zip(visited).collect();
    Ok(ConsoleFigures { filled, pages, lateness, viewers: viewers.tally(), problems })
}

/// Fills the database, and has Postgres keep to fsync and count its statements from then on.
async fn fill_testbed(options: &ConsoleOptions, testbed: &mut Testbed) -> anyhow::Result<FilledHistory> {
    let filled = fill::fill_console(&testbed.postgres.url(), options).await?;
    admission::stage::import_areas(&testbed.app, AREAS).await?;
    // As an installation has it; private servers have small segments, and fewer of them.
    testbed.postgres.run_statement("ALTER SYSTEM SET max_wal_size = '1GB'").await?;
    testbed.postgres.restart_durable().await?;
    count_statements(testbed).await?;
    Ok(filled)
}

/// Flushes Redis, and waits until the worker has put back what the database asks for, and has done what was due.
async fn rebuild_redis(app: &App, dead: u32) -> anyhow::Result<()> {
    app.store.run_command::<()>("flush", &redis::cmd("FLUSHALL")).await?;
    let begun = Instant::now();
    loop {
        let takeable = app.store.takeable().await?;
        let queues = app.store.queue_stats(&jobs::queues::ALL).await?;
        let buried: u64 = queues.iter().map(|queue| queue.dead).sum();
        let unfinished: u64 = queues.iter().map(|queue| queue.due + queue.leased).sum();
        if takeable == Takeable::All && buried >= u64::from(dead) && unfinished == 0 {
            return Ok(());
        }
        if begun.elapsed() > REBUILD_WAIT {
            bail!(
                "{REBUILD_WAIT:?} after a flush the epoch is {takeable:?}, {buried} of {dead} jobs are dead, and {unfinished} are to be done"
            );
        }
        sleep(LOOK).await;
    }
}
