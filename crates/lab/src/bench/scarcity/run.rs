//! The measurement, from first to last.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::sleep;

use super::{
    counts::{self, WorkCounts},
    options::ScarcityOptions,
    report::ScarcityReport,
    stage,
    trips::WorkingDrivers,
};
use crate::{
    bench::{
        machine::{MachineInfo, SoftwareVersions},
        spread::SamplePercentiles,
        statement_counts::reset_statements,
    },
    testbed::{Testbed, print, signals::wait_for_interrupt},
};
use dispatch::{audit, db};

/// Sessions of Postgres report the rows they wrote within 10 s: those of the creations are not to be measured.
const ROWS_REPORTED: Duration = Duration::from_secs(11);
/// Drivers who came to be free at the end have so long to be asked.
const ASKED: Duration = Duration::from_secs(3);

/// Measures, prints the report, and answers whether each driver had the next order in time and no invariant is broken.
pub async fn run(options: ScarcityOptions) -> anyhow::Result<bool> {
    let report = tokio::select! {
        report = measure_scarcity(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.find_violations().is_empty())
}

async fn measure_scarcity(options: &ScarcityOptions) -> anyhow::Result<ScarcityReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let mut testbed = stage::start(options).await?;
    let measured = measure_on(options, &testbed).await;
    if measured.is_err() {
        testbed.dir.keep_files();
    }
    let (work, offer_waits, broken) =
        measured.with_context(|| format!("the measurement failed; logs: {}", testbed.dir.path().display()))?;
    let (processes, _app, _redis, _postgres, _dir) = testbed.into_parts();
    let mut problems = processes.stop().await;
    problems.extend(broken);
    Ok(ScarcityReport {
        orders: options.orders.get(),
        drivers: options.drivers.get(),
        seconds: options.seconds.get(),
        work,
        trips: offer_waits.len(),
        offer_waits: SamplePercentiles::from_samples(offer_waits),
        problems,
        machine,
        versions,
    })
}

/// Returns the work of the time measured (and how many waited in the middle of it), how long drivers waited, and broken invariants.
async fn measure_on(
    options: &ScarcityOptions,
    testbed: &Testbed,
) -> anyhow::Result<(WorkCounts, Vec<i64>, Vec<String>)> {
    let app = &testbed.app;
    let keys = stage::hire_drivers(app, stage::SERVICE_TYPE, stage::CENTRE, options.drivers.get()).await?;
    let trip = Duration::from_secs(options.trip.get().into());
    let _drivers = WorkingDrivers::start(app.db.clone(), testbed.api.clone(), keys, trip);
    stage::create_orders(app, options.orders.get()).await?;
    sleep(ROWS_REPORTED).await;
    reset_statements(&app.db).await?;
    let (before, begun) = (counts::read_counts(&app.db).await?, db::database_now(&app.db).await?);
    sleep(Duration::from_secs(options.seconds.get().into())).await;
    let (after, ended) = (counts::read_counts(&app.db).await?, db::database_now(&app.db).await?);
    sleep(ASKED).await;
    let waits = counts::read_offer_waits(&app.db, begun, ended).await?;
    let work = WorkCounts {
        searches: after.searches - before.searches,
        statements: after.statements - before.statements,
        rows: after.rows - before.rows,
        waiting: (before.waiting + after.waiting) / 2,
    };
    let broken = audit::check_history(app).await?.iter().map(ToString::to_string).collect();
    Ok((work, waits, broken))
}
