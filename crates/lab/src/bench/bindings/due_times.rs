//! Due times of cycles, and their wait for slots.
//!
//! A cycle is claimed when it has its slots, and the claim creates the header of its transaction. Before the claim, the
//! row contains the due time. After the claim, and until the next one, the row contains the time from which the
//! interval counts. That is the due time, unless the cycle was late by a whole interval. The rows are read often enough
//! to see one of the two for each cycle, if cycles are at least 150 ms apart. With shorter intervals some cycles are
//! missed.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use foundation::db::Pool;
use sqlx::FromRow;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::bench::spread::SamplePercentiles;

/// Interval between reads of the rows.
const EVERY: Duration = Duration::from_millis(120);

/// Number of the binding, and number of the cycle.
pub(super) type CycleKey = (i32, i64);
pub(super) type SeenDueTimes = HashMap<CycleKey, DateTime<Utc>>;

/// A cycle that started after a successful cycle of the same binding.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub(super) struct BegunCycle {
    pub(super) binding: i32,
    pub(super) cycle: i64,
    /// Time of its first claim.
    pub(super) claimed_at: DateTime<Utc>,
}

/// Waits of due cycles, from their due time to their claim.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CycleWaits {
    /// Number of cycles with a known due time.
    pub(super) cycles: usize,
    pub(super) mean_us: f64,
    pub(super) percentiles: SamplePercentiles,
    /// Number of cycles claimed before they were due.
    pub(super) early: usize,
}

/// Reads the due times of coming cycles until stopped. A failed read is skipped, because the next one sees most of the
/// same times.
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
            Ok(rows) => add_rows(&mut seen, rows),
            Err(error) => tracing::warn!(%error, "Due times could not be read."),
        }
    }
}

/// Due time of the next cycle, or of the cycle that has started.
#[derive(Debug, Clone, Copy, FromRow)]
struct SeenRow {
    binding: i32,
    cycle: i64,
    at: DateTime<Utc>,
    has_begun: bool,
}

async fn read_due_times(db: &Pool) -> Result<Vec<SeenRow>, sqlx::Error> {
    sqlx::query_as(
        "-- due times of cycles
         SELECT right(id, 6)::integer AS binding, cycle + 1 AS cycle, next_at AS at, false AS has_begun FROM bindings
         WHERE state = 'RUNNING' AND phase = 'IDLE' AND next_at IS NOT NULL
         UNION ALL
         SELECT right(id, 6)::integer, cycle, interval_start, true FROM bindings
         WHERE cycle > 0 AND interval_start IS NOT NULL",
    )
    .fetch_all(db)
    .await
}

/// Adds due times. A time seen before the start of its cycle is exact, however late the cycle is, so it replaces a time
/// seen afterwards.
fn add_rows(seen: &mut SeenDueTimes, rows: Vec<SeenRow>) {
    for row in rows {
        let key = (row.binding, row.cycle);
        if row.has_begun {
            seen.entry(key).or_insert(row.at);
        } else {
            seen.insert(key, row.at);
        }
    }
}

impl CycleWaits {
    /// Returns the waits of the cycles whose due time was seen.
    pub(super) fn measure_waits(cycles: &[BegunCycle], seen: &SeenDueTimes) -> Self {
        let due_of = |cycle: &BegunCycle| seen.get(&(cycle.binding, cycle.cycle)).copied();
        Self::from_waits(cycles.iter().filter_map(|cycle| Some(cycle.claimed_at - due_of(cycle)?)))
    }

    /// Returns a summary of measured waits.
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

    /// Returns the ratio of the longest to the mean wait. `None` if no cycle waited.
    pub(super) fn longest_over_mean(&self) -> Option<f64> {
        (self.mean_us > 0.0).then(|| self.percentiles.max as f64 / self.mean_us)
    }

    /// Returns a violation if a cycle started before it was due.
    pub(super) fn find_violation(&self) -> Option<String> {
        (self.early > 0).then(|| format!("{} cycles started before they were due", self.early))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::milliseconds(ms)
    }

    fn cycle(binding: i32, claimed_ms: i64) -> BegunCycle {
        BegunCycle { binding, cycle: 7, claimed_at: at(claimed_ms) }
    }

    fn row(binding: i32, ms: i64, has_begun: bool) -> SeenRow {
        SeenRow { binding, cycle: 7, at: at(ms), has_begun }
    }

    #[test]
    fn due_time_is_read_from_the_row() {
        let mut seen = SeenDueTimes::new();
        // The first cycle was late by an interval, so its interval counts from its start. Its due time was seen before.
        add_rows(&mut seen, vec![row(1, 1_500, false), row(2, 1_500, true)]);
        add_rows(&mut seen, vec![row(1, 2_010, true)]);
        let waits = CycleWaits::measure_waits(&[cycle(1, 2_010), cycle(2, 1_510)], &seen);
        assert_eq!((waits.cycles, waits.mean_us, waits.early), (2, 260_000.0, 0));
        assert_eq!(waits.percentiles.max, 510_000);
    }
}
