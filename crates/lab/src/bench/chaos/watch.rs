//! Lateness of jobs from the workers' histograms. They are read once a second, and any two times can be compared.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::testbed::scrape::MetricsScrape;

const EVERY: Duration = Duration::from_secs(1);
/// Timeout of a scrape, which queries both servers for 3 s at most.
const TIMEOUT: Duration = Duration::from_secs(5);
const METRIC: &str = "dispatchq_job_lateness_seconds_bucket";

/// Samples of all workers. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(in crate::bench) struct LatenessWatch(Arc<Mutex<WatchSamples>>);

#[derive(Debug, Default)]
struct WatchSamples {
    /// Names of workers, and addresses of their metrics.
    workers: Vec<(String, String)>,
    /// Workers whose scrape is running.
    asked: HashSet<String>,
    /// Samples by worker, in order of time.
    samples: BTreeMap<String, Vec<MetricsSample>>,
}

#[derive(Debug, Clone)]
struct MetricsSample {
    at: Instant,
    /// Upper bounds in seconds, and number of jobs so far that were not later.
    buckets: Vec<(f64, f64)>,
}

impl LatenessWatch {
    /// Sets the current workers.
    pub(in crate::bench) fn set_workers(&self, workers: Vec<(String, String)>) {
        self.lock_samples().workers = workers;
    }

    /// Scrapes all workers once a second. Never returns without an error.
    pub(in crate::bench) async fn run(self) -> anyhow::Result<()> {
        let http = foundation::outbound::client_builder().no_proxy().timeout(TIMEOUT).build()?;
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let workers = self.lock_samples().workers.clone();
            for (name, address) in workers {
                if !self.lock_samples().asked.insert(name.clone()) {
                    continue;
                }
                let (watch, http) = (self.clone(), http.clone());
                tokio::spawn(async move {
                    let text = match http.get(format!("http://{address}/metrics")).send().await {
                        Ok(answer) => answer.text().await.unwrap_or_default(),
                        Err(_) => String::new(),
                    };
                    let (at, buckets) = (Instant::now(), buckets_of(&text));
                    let mut seen = watch.lock_samples();
                    seen.asked.remove(&name);
                    if !buckets.is_empty() {
                        seen.samples.entry(name).or_default().push(MetricsSample { at, buckets });
                    }
                });
            }
        }
    }

    /// Returns the 99th percentile in milliseconds of the jobs that started between two times. `None` without jobs.
    pub(in crate::bench) fn p99_ms(&self, from: Instant, to: Instant) -> Option<f64> {
        let seen = self.lock_samples();
        let mut sum: Vec<(f64, f64)> = Vec::new();
        for samples in seen.samples.values() {
            let last = |at: Instant| samples.iter().rfind(|sample| sample.at <= at);
            let Some(end) = last(to) else { continue };
            let begin = last(from);
            for (n, (bound, count)) in end.buckets.iter().enumerate() {
                let before = begin.and_then(|sample| sample.buckets.get(n)).map_or(0.0, |bucket| bucket.1);
                if sum.len() <= n {
                    sum.push((*bound, 0.0));
                }
                sum[n].1 += count - before;
            }
        }
        percentile_s(&sum, 0.99).map(|seconds| seconds * 1000.0)
    }

    fn lock_samples(&self) -> MutexGuard<'_, WatchSamples> {
        self.0.lock()
    }
}

/// Returns bounds and counts of the histogram, smallest bound first.
fn buckets_of(text: &str) -> Vec<(f64, f64)> {
    let counts = MetricsScrape::parse(text).sum_by("le", METRIC, &[]);
    let bound = |le: &str| if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap_or(f64::NAN) };
    let mut buckets: Vec<(f64, f64)> = counts.iter().map(|(le, count)| (bound(le), *count)).collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

/// Interpolates linearly within a bucket, like Prometheus. Above the last finite bound, returns that bound.
fn percentile_s(buckets: &[(f64, f64)], part: f64) -> Option<f64> {
    let total = buckets.last()?.1;
    if total <= 0.0 {
        return None;
    }
    let rank = total * part;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, count) in buckets {
        if *count >= rank {
            let share = if *count > below { (rank - below) / (count - below) } else { 1.0 };
            return Some(if bound.is_finite() { lower + (bound - lower) * share } else { lower });
        }
        (lower, below) = (*bound, *count);
    }
    Some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated_within_buckets() {
        let text = "# TYPE x histogram\n\
                    dispatchq_job_lateness_seconds_bucket{le=\"0.1\"} 98\n\
                    dispatchq_job_lateness_seconds_bucket{le=\"0.25\"} 100\n\
                    dispatchq_job_lateness_seconds_bucket{le=\"+Inf\"} 100\n\
                    dispatchq_job_lateness_seconds_sum 3\n";
        let buckets = buckets_of(text);
        assert_eq!(buckets, [(0.1, 98.0), (0.25, 100.0), (f64::INFINITY, 100.0)]);
        let p99 = percentile_s(&buckets, 0.99).unwrap();
        assert!((0.1..0.25).contains(&p99), "{p99}");
        assert!(percentile_s(&buckets, 0.5).unwrap() < 0.1);
        assert_eq!(percentile_s(&[(0.1, 0.0)], 0.99), None);
    }
}
