//! Cost of many open orders after the rebuild: one pass of the reconciler over all of them, and /metrics.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::time::sleep;

use crate::{
    bench::machine,
    testbed::{Testbed, scrape::MetricsReader},
};
use maintenance::recovery::repair;

/// Number of scrapes, and pause between them. The pause is long enough for the metrics to be counted again.
const SCRAPES: u32 = 5;
const BETWEEN_SCRAPES: Duration = Duration::from_secs(2);

/// Measurements after all timers were restored.
#[derive(Debug, Clone, Copy)]
pub(super) struct FiguresAtRest {
    /// Time of one pass over all timers, each compared with its row.
    pub(super) look: Duration,
    /// Longest answer of `serve` to a scrape.
    pub(super) scrape: Duration,
    pub(super) serve_bytes: Option<u64>,
    pub(super) worker_bytes: Option<u64>,
}

pub(super) async fn measure_at_rest(testbed: &Testbed, worker: u32) -> anyhow::Result<FiguresAtRest> {
    let app = &testbed.app;
    let metrics = MetricsReader::new(&app.config.http.admin_bind)?;
    let mut scrape = Duration::ZERO;
    for _ in 0..SCRAPES {
        let begun = Instant::now();
        metrics.scrape().await?;
        scrape = scrape.max(begun.elapsed());
        sleep(BETWEEN_SCRAPES).await;
    }
    let begun = Instant::now();
    repair::list_missing(&app.core).await.context("the timers could not be compared with their rows")?;
    Ok(FiguresAtRest {
        look: begun.elapsed(),
        scrape,
        serve_bytes: machine::rss_bytes_of_process(testbed.processes.serve_pid()),
        worker_bytes: machine::rss_bytes_of_process(worker),
    })
}
