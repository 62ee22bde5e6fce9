//! Recent run times of each queue's jobs: sums that lose half their weight every minute. They cost a lock and two
//! additions per job, and each heartbeat reports them.

use std::{
    collections::BTreeMap,
    f64::consts::LN_2,
    time::{Duration, Instant},
};

use crate::store::QueueRuns;

/// Time after which a run has half its weight.
const HALF_LIFE: Duration = Duration::from_secs(60);

pub(crate) struct RunTimes {
    /// There are few, so a linear search is faster than hashing.
    sums: Vec<(&'static str, RunSums)>,
    /// Time of the last decay.
    weighed: Instant,
}

#[derive(Default)]
struct RunSums {
    runs: f64,
    secs: f64,
}

impl RunTimes {
    pub(crate) fn new(queues: impl Iterator<Item = &'static str>, now: Instant) -> Self {
        Self { sums: queues.map(|queue| (queue, RunSums::default())).collect(), weighed: now }
    }

    /// Adds one run with full weight.
    pub(crate) fn record_run(&mut self, queue: &str, took: Duration) {
        if let Some((_, sums)) = self.sums.iter_mut().find(|(known, _)| *known == queue) {
            sums.runs += 1.0;
            sums.secs += took.as_secs_f64();
        }
    }

    /// Applies the decay to earlier runs, and returns the values of the queues that had any.
    pub(crate) fn report(&mut self, now: Instant) -> BTreeMap<String, QueueRuns> {
        let half_lives = now.duration_since(self.weighed).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.weighed = now;
        for (_, sums) in &mut self.sums {
            sums.runs *= (-half_lives).exp2();
            sums.secs *= (-half_lives).exp2();
        }
        let seen = self.sums.iter().filter(|(_, sums)| sums.runs > f64::MIN_POSITIVE);
        seen.map(|(queue, sums)| ((*queue).to_owned(), sums.describe())).collect()
    }
}

impl RunSums {
    fn describe(&self) -> QueueRuns {
        // An even rate of `x` per second has a sum of `x` times this.
        let span = HALF_LIFE.as_secs_f64() / LN_2;
        QueueRuns {
            mean_us: micros(self.secs / self.runs),
            busy_milli: micros(self.secs / span) / 1000,
            per_ks: micros(self.runs / span) / 1000,
        }
    }
}

/// Returns millionths, rounded down.
fn micros(number: f64) -> u64 {
    let micros = Duration::try_from_secs_f64(number).unwrap_or_default().as_micros();
    u64::try_from(micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_runs_are_reported_then_forgotten() {
        let start = Instant::now();
        let mut times = RunTimes::new(["a", "b"].into_iter(), start);
        let mut seen = BTreeMap::new();
        for second in 1..=1200 {
            for _ in 0..10 {
                times.record_run("a", Duration::from_millis(200));
            }
            seen = times.report(start + Duration::from_secs(second));
        }
        assert_eq!(seen.keys().collect::<Vec<_>>(), ["a"], "no job of b ran");
        let QueueRuns { mean_us, busy_milli, per_ks } = seen["a"];
        assert!(mean_us.abs_diff(200_000) < 10, "{mean_us}");
        assert!(busy_milli.abs_diff(2_000) < 40, "{busy_milli}");
        assert!(per_ks.abs_diff(10_000) < 200, "{per_ks}");
        let later = times.report(start + Duration::from_secs(1260))["a"];
        assert!(later.busy_milli.abs_diff(busy_milli / 2) < 20 && later.mean_us.abs_diff(200_000) < 10, "{later:?}");
    }
}
