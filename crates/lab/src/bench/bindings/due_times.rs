//! When cycles were due, and how long they waited for their slots.
//!
//! A cycle is claimed once it has its slots; the claim begins its header. Until then the row says when it is due, afterwards no
//! table does. Where the interval is fixed, it is the end of the cycle before plus the interval. Where it is drawn, the rows
//! are read so often that each due time is seen: a cycle is not due sooner than 300 ms after the last one.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use dispatch::db::Pool;
use sqlx::FromRow;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::bench::spread::SamplePercentiles;

/// How often the rows are read.
const EVERY: Duration = Duration::from_millis(120);

/// Number of the binding, and of the cycle.
pub(super) type CycleKey = (i32, i64);
pub(super) type SeenDueTimes = HashMap<CycleKey, DateTime<Utc>>;

/// A cycle that began after another of its binding had succeeded.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub(super) struct BegunCycle {
    pub(super) binding: i32,
    pub(super) cycle: i64,
    /// Its first claim.
    pub(super) claimed_at: DateTime<Utc>,
    /// The end of the cycle before.
    pub(super) rested_at: DateTime<Utc>,
}

/// How long due cycles waited: from their due time to their claim.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CycleWaits {
    /// Cycles whose due time is known.
    pub(super) cycles: usize,
    pub(super) mean_us: f64,
    pub(super) percentiles: SamplePercentiles,
    /// Claimed before they were due.
    pub(super) early: usize,
}

/// Reads the due times of cycles to come until told to stop. A read that fails is left out: the next one sees most of the same.
pub(super) async fn watch_due_times(db: Pool, stop: CancellationToken) -> SeenDueTimes {
    let mut seen = SeenDueTimes::new();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return seen,
            _ = ticks.tick() => {}
        }
        match read_due_times(&db).await {
            Ok(rows) => seen.extend(rows.into_iter().map(|(binding, cycle, due)| ((binding, cycle), due))),
            Err(error) => tracing::warn!(%error, "Due times could not be read."),
        }
    }
}

async fn read_due_times(db: &Pool) -> Result<Vec<(i32, i64, DateTime<Utc>)>, sqlx::Error> {
    sqlx::query_as(
        "-- due times of cycles to come
         SELECT right(id, 6)::integer, cycle + 1, next_at FROM bindings
         WHERE state = 'RUNNING' AND phase = 'IDLE' AND next_at IS NOT NULL",
    )
    .fetch_all(db)
    .await
}

impl CycleWaits {
    /// `every`: the interval, where it is fixed; else what was seen counts.
    pub(super) fn measure_waits(cycles: &[BegunCycle], every: Option<TimeDelta>, seen: &SeenDueTimes) -> Self {
        let due_of = |cycle: &BegunCycle| match every {
            Some(every) => Some(cycle.rested_at + every),
            None => seen.get(&(cycle.binding, cycle.cycle)).copied(),
        };
        Self::from_waits(cycles.iter().filter_map(|cycle| Some(cycle.claimed_at - due_of(cycle)?)))
    }

    /// From waits as they were measured.
    pub(super) fn from_waits(waits: impl Iterator<Item = TimeDelta>) -> Self {
        let waits_us: Vec<i64> = waits.map(|wait| wait.num_microseconds().unwrap_or(i64::MAX)).collect();
        let cycles = waits_us.len();
        let sum_us: f64 = waits_us.iter().map(|wait| *wait as f64).sum();
        Self {
            cycles,
            mean_us: sum_us / (cycles.max(1) as f64),
            early: waits_us.iter().filter(|wait| **wait < 0).count(),
            percentiles: SamplePercentiles::from_samples(waits_us),
        }
    }

    /// The longest wait over the mean one; `None` where no cycle waited.
    pub(super) fn longest_over_mean(&self) -> Option<f64> {
        (self.mean_us > 0.0).then(|| self.percentiles.max as f64 / self.mean_us)
    }

    /// A line if a cycle began before its time.
    pub(super) fn find_violation(&self) -> Option<String> {
        (self.early > 0).then(|| format!("{} cycles began before they were due", self.early))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(binding: i32, claimed_ms: i64, rested_ms: i64) -> BegunCycle {
        let at = |ms| DateTime::UNIX_EPOCH + TimeDelta::milliseconds(ms);
        BegunCycle { binding, cycle: 7, claimed_at: at(claimed_ms), rested_at: at(rested_ms) }
    }

    #[test]
    fn a_fixed_interval_says_when_a_cycle_was_due() {
        let cycles = [cycle(1, 1_510, 1_000), cycle(2, 1_530, 1_000)];
        let waits = CycleWaits::measure_waits(&cycles, Some(TimeDelta::milliseconds(500)), &SeenDueTimes::new());
        assert_eq!((waits.cycles, waits.mean_us, waits.early), (2, 20_000.0, 0));
        assert_eq!((waits.percentiles.max, waits.longest_over_mean()), (30_000, Some(1.5)));
    }

    #[test]
    fn a_drawn_interval_is_known_where_the_row_was_seen() {
        let seen = SeenDueTimes::from([((1, 7), DateTime::UNIX_EPOCH + TimeDelta::milliseconds(1_400))]);
        let waits = CycleWaits::measure_waits(&[cycle(1, 1_390, 1_000), cycle(2, 9_999, 1_000)], None, &seen);
        assert_eq!((waits.cycles, waits.early), (1, 1));
        assert_eq!(waits.find_violation().as_deref(), Some("1 cycles began before they were due"));
        assert_eq!(CycleWaits::from_waits(std::iter::empty()).longest_over_mean(), None);
    }
}
