//! What very many open orders cost once all timers are back: a look of the reconciler at all of them, and /metrics.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::time::sleep;

use crate::{
    bench::machine,
    testbed::{Testbed, scrape::MetricsReader},
};
use maintenance::recovery::repair;

/// Scrapes, so far apart that what they show is counted again in between.
const SCRAPES: u32 = 5;
const BETWEEN_SCRAPES: Duration = Duration::from_secs(2);

/// What was seen once all timers were back.
#[derive(Debug, Clone, Copy)]
pub(super) struct FiguresAtRest {
    /// A look at all timers, each compared with its row.
    pub(super) look: Duration,
    /// The longest answer of `serve` to a scrape.
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
