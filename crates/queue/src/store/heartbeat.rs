//! Live replicas and the lateness of jobs, for the whole fleet and without a metrics server.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{client::Store, error::StoreError, script::HEARTBEAT};
use crate::life::ProcessLife;

const HOUR_MS: u64 = 3_600_000;

/// Counts of jobs by lateness of their start.
///
/// A bucket is the lateness in ms rounded down to two significant digits: exact up to 99, then 100, 110, .. 990, 1000,
/// 1100.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LatenessCounts {
    buckets: HashMap<u64, u64>,
    max_ms: u64,
}

impl LatenessCounts {
    pub fn record_lateness(&mut self, lateness_ms: u64) {
        *self.buckets.entry(bucket_of(lateness_ms)).or_default() += 1;
        self.max_ms = self.max_ms.max(lateness_ms);
    }

    /// Adds the counts of a failed heartbeat.
    pub fn merge_counts(&mut self, other: Self) {
        for (bucket, count) in other.buckets {
            *self.buckets.entry(bucket).or_default() += count;
        }
        self.max_ms = self.max_ms.max(other.max_ms);
    }
}

fn bucket_of(lateness_ms: u64) -> u64 {
    let mut unit = 1;
    while lateness_ms / unit >= 100 {
        unit *= 10;
    }
    lateness_ms / unit * unit
}

/// Lateness of jobs started in the current and the previous hour, in ms. All values except `max_ms` are rounded down to
/// two significant digits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatenessSummary {
    pub count: u64,
    pub p50_ms: u64,
    pub p99_ms: u64,
    pub max_ms: u64,
}

/// Recent runs of one queue's jobs in one process. The weight of a run halves every minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRuns {
    /// Mean duration of a run, in microseconds.
    pub mean_us: u64,
    /// Average number of concurrent runs, in thousandths.
    pub busy_milli: u64,
    /// Runs per 1,000 s at the current pace.
    pub per_ks: u64,
}

/// Information that a worker process sends about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    pub host: String,
    pub pid: u32,
    pub version: String,
    pub queues: Vec<String>,
    /// Number of jobs that the process has leased.
    pub in_hand: usize,
    /// Time in ms of the request to drain that the process follows. It takes no jobs until the request ends. `None` if it
    /// knows of no request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// Recent runs of its jobs, by queue.
    pub runs: BTreeMap<String, QueueRuns>,
    /// Resident memory in bytes. `None` if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Processor time since the previous heartbeat, in percent of one core. `None` in the first heartbeat, and if the
    /// system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<u32>,
    /// Name with which other processes on the same machine check whether this one has ended. `None` if the system does
    /// not support this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<ProcessLife>,
    /// Start of the process, by Redis' clock. Computed when it is read: a heartbeat sends the uptime, because the
    /// process' own clock may be wrong.
    #[serde(default)]
    pub started_ms: u64,
}

/// Age of the last heartbeat in ms from which on a worker counts as dead. Workers send one every 2 s.
const SILENT_MS: u64 = 10_000;

/// A live worker process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerEntry {
    /// Unique per process start. The tokens of its leases start with it.
    pub boot: String,
    /// Name of the replica. Two processes may have the same name; each has its own entry.
    pub replica: String,
    /// Age of its last heartbeat.
    pub seen_ms_ago: u64,
    /// `life` of `info`, moved here so that it is not shown.
    #[serde(skip)]
    pub life: Option<ProcessLife>,
    #[serde(flatten)]
    pub info: WorkerInfo,
}

impl WorkerEntry {
    /// Returns whether its last heartbeat is less than 10 s old.
    pub fn is_live(&self) -> bool {
        self.seen_ms_ago < SILENT_MS
    }
}

#[derive(Debug, Clone)]
pub struct Heartbeat<'a> {
    /// Unique per process start, without a space.
    pub boot: &'a str,
    pub replica: &'a str,
    /// Uptime of the process.
    pub up: Duration,
    /// `None` when the process leaves.
    pub info: Option<&'a WorkerInfo>,
    /// Lateness since the last heartbeat, and Redis' time when it was measured.
    pub lateness: &'a LatenessCounts,
    pub now_ms: u64,
}

impl Store {
    /// Writes one heartbeat, and removes processes that sent none for 60 s.
    pub async fn send_heartbeat(&self, beat: &Heartbeat<'_>) -> Result<(), StoreError> {
        let keys = [self.keys.workers(), self.keys.worker_info(), self.keys.lateness_counts(beat.now_ms / HOUR_MS)];
        let info = beat.info.map(serde_json::to_string).transpose();
        let info = info.map_err(|error| StoreError::invalid_answer(HEARTBEAT.name, error))?;
        let info = info.map(|info| format!("{} {info}", beat.up.as_millis())).unwrap_or_default();
        let mut call = HEARTBEAT.with_keys(&keys);
        call.push_arg(self.now_arg())
            .push_arg(format!("{} {}", beat.boot, beat.replica))
            .push_arg(info)
            .push_arg(beat.lateness.max_ms);
        for (bucket, count) in &beat.lateness.buckets {
            call.push_arg(*bucket).push_arg(*count);
        }
        self.run_script(&call).await
    }

    /// Returns the live worker processes, sorted by name.
    pub async fn list_workers(&self) -> Result<Vec<WorkerEntry>, StoreError> {
        let now_ms = self.now_ms().await?;
        let mut range = redis::cmd("ZRANGE");
        range.arg(self.keys.workers()).arg(0).arg(-1).arg("WITHSCORES");
        let seen: Vec<(String, u64)> = self.run_query("workers", &range).await?;
        let infos: HashMap<String, String> =
            self.run_query("workers", redis::cmd("HGETALL").arg(self.keys.worker_info())).await?;
        let mut workers: Vec<WorkerEntry> = seen
            .into_iter()
            .filter_map(|(process, seen_ms)| {
                let (up_ms, info) = infos.get(&process)?.split_once(' ')?;
                let mut info: WorkerInfo = serde_json::from_str(info).ok()?;
                info.started_ms = seen_ms.saturating_sub(up_ms.parse().ok()?);
                let (boot, replica) = process.split_once(' ')?;
                let (boot, replica) = (boot.to_owned(), replica.to_owned());
                let life = info.life.take();
                Some(WorkerEntry { boot, replica, seen_ms_ago: now_ms.saturating_sub(seen_ms), life, info })
            })
            .collect();
        workers.sort_by(|a, b| (&a.replica, &a.info.host, a.info.pid).cmp(&(&b.replica, &b.info.host, b.info.pid)));
        Ok(workers)
    }

    /// Returns the lateness of all jobs that the fleet started in the current and the previous hour. The result is some
    /// seconds old.
    pub async fn read_lateness(&self) -> Result<LatenessSummary, StoreError> {
        let hour = self.now_ms().await? / HOUR_MS;
        let mut counts = BTreeMap::<u64, u64>::new();
        let mut summary = LatenessSummary::default();
        for hour in [hour.saturating_sub(1), hour] {
            let fields: HashMap<String, u64> =
                self.run_query("lateness", redis::cmd("HGETALL").arg(self.keys.lateness_counts(hour))).await?;
            for (field, count) in fields {
                match field.parse() {
                    Ok(bucket) => *counts.entry(bucket).or_default() += count,
                    Err(_) => summary.max_ms = summary.max_ms.max(count),
                }
            }
        }
        summary.count = counts.values().sum();
        summary.p50_ms = percentile_of(&counts, summary.count, 50);
        summary.p99_ms = percentile_of(&counts, summary.count, 99);
        Ok(summary)
    }
}

/// Returns the smallest bucket that covers at least `percent` % of all jobs.
fn percentile_of(counts: &BTreeMap<u64, u64>, total: u64, percent: u64) -> u64 {
    let wanted = (total * percent).div_ceil(100);
    let mut seen = 0;
    for (bucket, count) in counts {
        seen += count;
        if seen >= wanted {
            return *bucket;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_keeps_two_significant_digits() {
        let buckets: Vec<u64> = [0, 7, 99, 100, 109, 995, 1099, 123_456].into_iter().map(bucket_of).collect();
        assert_eq!(buckets, [0, 7, 99, 100, 100, 990, 1000, 120_000]);
    }

    #[test]
    fn percentile_is_the_first_covering_bucket() {
        let counts = BTreeMap::from([(1, 98), (5, 1), (700, 1)]);
        assert_eq!([50, 99, 100].map(|percent| percentile_of(&counts, 100, percent)), [1, 5, 700]);
        assert_eq!(percentile_of(&BTreeMap::new(), 0, 99), 0);
    }
}
