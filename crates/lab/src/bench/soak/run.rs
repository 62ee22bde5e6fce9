//! The soak from first to last: producer and worker run; every minute is printed; what is left falls due; the report.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::time::sleep;

use super::{
    producer::enqueue_timers,
    report::{HEADER, SoakMinute, SoakReport},
    watch::SoakObservation,
};
use crate::{
    bench::{
        child::WorkerChild,
        machine::{MachineInfo, SoftwareVersions},
        options::SoakOptions,
        stage::QueueStage,
        timers::QUEUE,
    },
    testbed::print,
};

const MINUTE: Duration = Duration::from_secs(60);
/// A job that has not run when others do that were enqueued so long after it, is missing.
const MISSING_AFTER: Duration = Duration::from_secs(120);
/// What the last jobs may take beyond their due.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Answers whether every promise was kept: nothing lost, doubled or early. Lateness and memory are reported, never judged.
pub async fn run(options: SoakOptions) -> anyhow::Result<bool> {
    let (rate, spread) = (options.rate.get(), Duration::from_secs(options.spread.into()));
    let time = Duration::from_secs_f64(options.minutes * 60.0);
    ensure!(
        time.as_secs_f64() * f64::from(rate) < f64::from(u32::MAX),
        "that is more than {} jobs; lower --minutes or --rate",
        u32::MAX
    );
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let stage = QueueStage::start().await?;
    let places = u64::from(rate) * (spread + MISSING_AFTER).as_secs();
    let mut worker =
        WorkerChild::start_soak(&stage.url(), u32::try_from(places).unwrap_or(u32::MAX), MINUTE.min(time))?;
    stage.wait_for_workers(1).await?;
    let mut report =
        SoakReport { machine, versions, minutes: Vec::new(), enqueued: 0, last: SoakObservation::default(), options };

    print::print_line(HEADER, report.options.json)?;
    let enqueueing = async {
        let enqueued =
            tokio::spawn(enqueue_timers(stage.url(), rate, spread, time)).await.context("the producer panicked")?;
        wait_until_at_rest(&stage, spread).await?;
        enqueued
    };
    tokio::pin!(enqueueing);
    report.enqueued = loop {
        tokio::select! {
            enqueued = &mut enqueueing => break enqueued?,
            line = worker.next_line() => report.record_minute(&line?, &stage).await?,
        }
    };
    for line in worker.last_lines().await? {
        report.last = parse_seen(&line)?;
    }
    print::print_report(&report.to_text(), &report.to_json(), report.options.json)?;
    Ok(report.keeps_promises())
}

impl SoakReport {
    /// A minute is over.
    async fn record_minute(&mut self, line: &str, stage: &QueueStage) -> anyhow::Result<()> {
        let seen = parse_seen(line)?;
        let info = stage.read_info("memory").await?;
        let bytes = |name: &str| info.get(name).and_then(|bytes| bytes.parse().ok()).unwrap_or_default();
        let minute = SoakMinute {
            seen,
            done: seen.done - self.last.done,
            redis_rss_bytes: bytes("used_memory_rss"),
            redis_used_bytes: bytes("used_memory"),
        };
        self.last = seen;
        self.minutes.push(minute);
        print::print_line(&minute.row_text(self.minutes.len()), self.options.json)
    }
}

fn parse_seen(line: &str) -> anyhow::Result<SoakObservation> {
    serde_json::from_str(line).with_context(|| format!("the worker process said: {line}"))
}

/// Returns when no job is left, or when those that are left have had their time.
async fn wait_until_at_rest(stage: &QueueStage, spread: Duration) -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < spread + DRAIN_TIMEOUT {
        let stats = stage.store.queue_stats(&[QUEUE]).await?;
        if stats.iter().all(|queue| queue.due + queue.scheduled + queue.leased == 0) {
            return Ok(());
        }
        sleep(LOOK).await;
    }
    Ok(())
}
