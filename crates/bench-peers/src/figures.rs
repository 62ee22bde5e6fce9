//! Figures that the programs of this crate print, in the form that `dispatchq bench queue --peer` reads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct ProcessFigures {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) settings: String,
    pub(crate) enqueue_per_s: f64,
    pub(crate) process_per_s: f64,
    pub(crate) through_per_s: f64,
    /// Throughput with leases and events, which are on by default.
    pub(crate) with_leases_per_s: f64,
    /// CPU time of this process and of Redis per job, while ready jobs run.
    pub(crate) cpu_us_per_job: f64,
}

/// Lateness in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct LatenessFigures {
    pub(crate) name: &'static str,
    pub(crate) pending: u32,
    pub(crate) due_per_s: u32,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl LatenessFigures {
    pub(crate) fn of(name: &'static str, pending: u32, due_per_s: u32, mut samples_ms: Vec<u64>) -> Self {
        samples_ms.sort_unstable();
        let at = |percent: usize| samples_ms[(samples_ms.len() * percent).div_ceil(100).saturating_sub(1)];
        Self { name, pending, due_per_s, p50: at(50), p99: at(99), max: at(100) }
    }
}

/// Returns the CPU time that this process and Redis have used. Linux counts it in hundredths of a second; elsewhere it
/// is 0.
pub(crate) fn cpu_seconds(redis_pid: u32) -> anyhow::Result<f64> {
    let mut ticks = 0;
    for pid in [redis_pid, std::process::id()] {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return Ok(0.0) };
        let (_, words) = stat.rsplit_once(')').context("the format of /proc/PID/stat is unknown")?;
        for time in words.split_whitespace().skip(11).take(2) {
            ticks += time.parse::<u32>()?;
        }
    }
    Ok(f64::from(ticks) / 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "some hundred thousand jobs")]
pub(crate) fn per_second(jobs: u64, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64().max(f64::EPSILON)
}

pub(crate) fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}
