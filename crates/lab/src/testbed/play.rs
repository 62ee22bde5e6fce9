//! Plays orders on a testbed until everything is at rest, and stops the testbed.

use std::{path::PathBuf, time::Duration};

use partner_sim::PartnerSim;
use servers::{PostgresServer, RedisServer};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    Testbed,
    producer::{OrderProducer, ProducedOrder},
    progress::OrderProgress,
    rest::OpenWork,
    run_dir::RunDir,
};
use app::App;
use maintenance::{
    audit,
    proof::{slice, violations},
};

/// Interval between checks of processes and orders.
const LOOK: Duration = Duration::from_millis(250);

/// Orders to create, and limits of the run.
#[derive(Debug)]
pub(crate) struct PlayPlan<'a> {
    pub(crate) producer: &'a OrderProducer,
    /// Number of orders for the progress line. `quiet` disables the line.
    pub(crate) count: usize,
    pub(crate) quiet: bool,
    pub(crate) partner: Option<&'a PartnerSim>,
    /// Maximum time from the last creation until everything is at rest.
    pub(crate) patience: Duration,
}

/// Results of a run, read when everything is at rest.
#[derive(Debug)]
pub(crate) struct PlayedOrders {
    /// Time from the first creation to rest, and to the last creation.
    pub(crate) wall: Duration,
    pub(crate) creating: Duration,
    pub(crate) violations: Vec<String>,
}

/// Creates the orders and waits until everything is at rest. `on_look` runs several times a second and gets the time of
/// the last creation once all orders are created. It returns whether the run must continue.
pub(crate) async fn play_orders(
    testbed: &mut Testbed,
    plan: PlayPlan<'_>,
    orders: impl Iterator<Item = ProducedOrder>,
    mut on_look: impl AsyncFnMut(&mut Testbed, Option<Instant>) -> anyhow::Result<bool>,
) -> anyhow::Result<PlayedOrders> {
    let PlayPlan { producer, count, quiet, partner, patience } = plan;
    let start = Instant::now();
    let (mut violations, mut all_created) = (Vec::new(), None);
    let creating = producer.run(orders);
    tokio::pin!(creating);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let progress = OrderProgress::new(count, quiet);
    loop {
        tokio::select! {
            problems = &mut creating, if all_created.is_none() => {
                violations.extend(problems);
                all_created = Some(Instant::now());
            }
            _ = looks.tick() => {
                violations.extend(testbed.processes.replace_ended()?);
                let goes_on = on_look(testbed, all_created).await?;
                // Counting open orders costs Postgres more with more orders, and nothing needs the count before the
                // last creation.
                if quiet && all_created.is_none() {
                    continue;
                }
                let open = OpenWork::read_open_work(&testbed.app.core.db, partner).await?;
                progress.show_counts(producer.created_count(), open);
                let Some(created_at) = all_created else { continue };
                let is_late = created_at.elapsed() > patience;
                if is_late {
                    violations.push(open.describe_open_work(&testbed.app.core.db, patience).await?);
                }
                if is_late || (open.is_rest() && !goes_on) {
                    return Ok(PlayedOrders { wall: start.elapsed(), creating: created_at - start, violations });
                }
            }
        }
    }
}

/// A testbed whose processes have ended. Its tables can be read.
#[derive(Debug)]
pub(crate) struct EndedTestbed {
    pub(crate) app: App,
    pub(crate) redis: RedisServer,
    pub(crate) postgres: PostgresServer,
    pub(crate) dir: RunDir,
    pub(crate) violations: Vec<String>,
}

impl Testbed {
    /// Stops the processes gracefully. A process that does not end becomes a violation.
    pub(crate) async fn end_processes(self, mut violations: Vec<String>) -> EndedTestbed {
        let (processes, app, redis, postgres, dir) = self.into_parts();
        violations.extend(processes.stop().await);
        EndedTestbed { app, redis, postgres, dir, violations }
    }
}

impl EndedTestbed {
    /// Checks the history and closes the connections. Keeps the logs if there are violations.
    pub(crate) async fn check_history(&mut self) -> anyhow::Result<()> {
        self.violations.extend(audit::check_history(&self.app.maintenance).await?.iter().map(ToString::to_string));
        self.violations.extend(slice::fold_history(&self.app.maintenance).await?.iter().map(ToString::to_string));
        let recorded = violations::list_violations(&self.app.core.db).await?;
        self.violations.extend(recorded.iter().map(|violation| format!("recorded by the proof: {violation}")));
        self.app.core.close().await;
        if !self.violations.is_empty() {
            self.dir.keep_files();
        }
        Ok(())
    }

    /// Returns the directory of the logs, if they are kept.
    pub(crate) fn logs(&self) -> Option<PathBuf> {
        (!self.violations.is_empty()).then(|| self.dir.path().to_owned())
    }
}
