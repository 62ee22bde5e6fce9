//! A line per minute for people, one JSON object for programs.

use serde::Serialize;
use serde_json::{Value, json};

use super::watch::SoakObservation;
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    options::SoakOptions,
    spread::SamplePercentiles,
};

/// All that was seen. One entry per minute is all that grows.
#[derive(Debug)]
pub(super) struct SoakReport {
    pub(super) options: SoakOptions,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
    pub(super) minutes: Vec<SoakMinute>,
    pub(super) enqueued: u32,
    pub(super) last: SoakObservation,
}

/// What was seen at the end of a minute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SoakMinute {
    pub(super) seen: SoakObservation,
    /// In this minute.
    pub(super) done: u64,
    pub(super) redis_rss_bytes: u64,
    pub(super) redis_used_bytes: u64,
}

/// Memory at the end of the first minute, at the end of the last, and the most of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct MemoryRange {
    first: u64,
    last: u64,
    max: u64,
}

impl MemoryRange {
    /// `None` without a value.
    fn from_samples(values: impl Iterator<Item = u64>) -> Option<Self> {
        values.fold(None, |bytes, value| match bytes {
            None => Some(Self { first: value, last: value, max: value }),
            Some(bytes) => Some(Self { last: value, max: bytes.max.max(value), ..bytes }),
        })
    }
}

pub(super) const HEADER: &str = "minute  lateness p50 / p99 / max, ms       done  worker MiB  Redis MiB  \
                                 early  lost  doubled";

impl SoakMinute {
    pub(super) fn row_text(&self, number: usize) -> String {
        let SoakObservation { lateness_us, early, missing, doubled, rss_bytes, .. } = self.seen;
        let lateness =
            format!("{} / {} / {}", format_ms(lateness_us.p50), format_ms(lateness_us.p99), format_ms(lateness_us.max));
        let worker = rss_bytes.map_or_else(|| "?".to_owned(), format_mib);
        let (done, redis) = (self.done, format_mib(self.redis_rss_bytes));
        format!(
            "{number:>6}  {lateness:>28}  {done:>9}  {worker:>10}  {redis:>9}  {early:>5}  {missing:>4}  {doubled:>7}"
        )
    }
}

impl SoakReport {
    /// Enqueued, and never run.
    fn count_lost(&self) -> u64 {
        u64::from(self.enqueued).saturating_sub(self.last.done)
    }

    /// No job was lost, run twice or early.
    pub(super) fn keeps_promises(&self) -> bool {
        (self.count_lost(), self.last.doubled, self.last.early) == (0, 0, 0)
    }

    fn worker_rss(&self) -> Option<MemoryRange> {
        MemoryRange::from_samples(self.minutes.iter().filter_map(|minute| minute.seen.rss_bytes))
    }

    fn of_redis(&self, figure: fn(&SoakMinute) -> u64) -> Option<MemoryRange> {
        MemoryRange::from_samples(self.minutes.iter().map(figure))
    }

    pub(super) fn to_text(&self) -> String {
        let SamplePercentiles { p50, p99, max } = self.last.overall_us;
        let grown = |bytes: Option<MemoryRange>| {
            bytes.map_or_else(
                || "not told by this system".to_owned(),
                |MemoryRange { first, last, max }| {
                    format!("{} / {} / {} MiB", format_mib(first), format_mib(last), format_mib(max))
                },
            )
        };
        format!(
            "{} of {} jobs done; lost {}, early {}, doubled {}\n\
             lateness p50 / p99 / max     {} / {} / {} ms\n\
             worker first / last / max    {}\n\
             Redis first / last / max     {}\n\
             {}\n{}",
            self.last.done,
            self.enqueued,
            self.count_lost(),
            self.last.early,
            self.last.doubled,
            format_ms(p50),
            format_ms(p99),
            format_ms(max),
            grown(self.worker_rss()),
            grown(self.of_redis(|minute| minute.redis_rss_bytes)),
            self.machine.to_text(),
            self.versions.to_text()
        )
    }

    pub(super) fn to_json(&self) -> Value {
        let minutes = self.minutes.iter().map(|minute| {
            json!({
                "lateness_ms": lateness_json(minute.seen.lateness_us),
                "done": minute.done,
                "worker_rss_bytes": minute.seen.rss_bytes,
                "redis_rss_bytes": minute.redis_rss_bytes,
                "redis_used_bytes": minute.redis_used_bytes,
                "early": minute.seen.early,
                "lost": minute.seen.missing,
                "doubled": minute.seen.doubled,
            })
        });
        json!({
            "minutes": self.options.minutes,
            "rate": self.options.rate,
            "spread_secs": self.options.spread,
            "enqueued": self.enqueued,
            "enqueued_per_s": f64::from(self.enqueued) / (self.options.minutes * 60.0),
            "done": self.last.done,
            "lost": self.count_lost(),
            "early": self.last.early,
            "doubled": self.last.doubled,
            "lateness_ms": lateness_json(self.last.overall_us),
            "worker_rss_bytes": self.worker_rss(),
            "redis_rss_bytes": self.of_redis(|minute| minute.redis_rss_bytes),
            "redis_used_bytes": self.of_redis(|minute| minute.redis_used_bytes),
            "by_minute": minutes.collect::<Vec<_>>(),
            "machine": self.machine,
            "versions": self.versions,
        })
    }
}

fn lateness_json(us: SamplePercentiles) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "an hour has fewer microseconds than 2^52")]
    let ms = |us: i64| us as f64 / 1000.0;
    json!({ "p50": ms(us.p50), "p99": ms(us.p99), "max": ms(us.max) })
}

fn format_ms(us: i64) -> String {
    format!("{}.{}", us / 1000, us % 1000 / 100)
}

fn format_mib(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let mib = bytes as f64 / f64::from(1 << 20);
    format!("{mib:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_first_last_and_most() {
        assert_eq!(MemoryRange::from_samples([3, 9, 5].into_iter()), Some(MemoryRange { first: 3, last: 5, max: 9 }));
        assert_eq!(MemoryRange::from_samples(std::iter::empty()), None);
        assert_eq!(format_mib((3 << 20) + (1 << 19)), "3.5");
    }

    #[tokio::test]
    async fn one_job_lost_early_or_doubled_is_a_broken_promise() {
        let options = SoakOptions { minutes: 1.0, rate: std::num::NonZeroU32::MIN, spread: 60, json: false };
        let of = |last: SoakObservation| SoakReport {
            options: options.clone(),
            machine: MachineInfo::read_system(),
            versions: SoftwareVersions { dispatchq: "0", redis: "0".to_owned(), rustc: "0", optimized: false },
            minutes: Vec::new(),
            enqueued: 10,
            last,
        };
        let good = SoakObservation { done: 10, ..SoakObservation::default() };
        assert!(of(good).keeps_promises());
        for bad in [
            SoakObservation { done: 9, ..good },
            SoakObservation { early: 1, ..good },
            SoakObservation { doubled: 1, ..good },
        ] {
            assert!(!of(bad).keeps_promises(), "{bad:?}");
        }
        assert_eq!(of(SoakObservation { done: 9, ..good }).to_json()["lost"], 1);
    }
}
