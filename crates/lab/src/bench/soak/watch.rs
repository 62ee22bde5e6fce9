//! What a worker notes of an endless row of numbered timers, in memory that is all there from the start.
//!
//! Numbers have places in a ring, where the last one that ran is kept. A number that takes the place of one which is not its
//! predecessor on the ring shows that those in between did not run, though they were due long before.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::bench::{machine, spread::SamplePercentiles};

/// Anything later counts as this late.
const MAX_LATENESS_US: u64 = 3600 * 1_000_000;
/// No number has run here yet.
const NONE: u32 = u32::MAX;
/// Lateness is kept with an error of one percent.
const DIGITS: u8 = 2;

#[derive(Debug)]
pub(super) struct SoakWatch(Mutex<WatchNotes>);

#[derive(Debug)]
struct WatchNotes {
    /// By place, the last number that ran.
    ring: Vec<u32>,
    seen: SoakObservation,
    since_last: Histogram<u64>,
    in_all: Histogram<u64>,
}

/// What a worker says of its run so far; one line of JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SoakObservation {
    /// Jobs that ran, each counted once.
    pub(super) done: u64,
    /// Runs of jobs that had run already, or that ran so late that they were given up for lost.
    pub(super) doubled: u64,
    /// Runs before their due, be it by a microsecond.
    pub(super) early: u64,
    /// Jobs that have not run though others due two minutes after them have. The end knows better: enqueued minus done.
    pub(super) missing: u64,
    /// Since the last line, in microseconds.
    pub(super) lateness_us: SamplePercentiles,
    /// Since the beginning.
    pub(super) overall_us: SamplePercentiles,
    /// What memory the process holds; `None` where the system does not tell.
    pub(super) rss_bytes: Option<u64>,
}

impl SoakWatch {
    /// `places`: as many numbers as may lie between the due times of two jobs that are compared.
    pub(super) fn new(places: u32) -> Self {
        // Written now and not with zeros, which the system hands out without memory: the first use would look like growth.
        let ring = vec![NONE; places.max(1) as usize];
        Self(Mutex::new(WatchNotes {
            ring,
            seen: SoakObservation::default(),
            since_last: new_histogram(),
            in_all: new_histogram(),
        }))
    }

    /// A run began at `now_us`.
    pub(super) fn record_run(&self, number: u32, due_ms: u64, now_us: i64) {
        self.lock_notes().record_lateness(number, now_us - due_ms.cast_signed() * 1000);
    }

    /// What was seen so far. Lateness starts from zero.
    pub(super) fn take_observation(&self) -> SoakObservation {
        let mut notes = self.lock_notes();
        notes.seen.lateness_us = histogram_percentiles(&notes.since_last);
        notes.seen.overall_us = histogram_percentiles(&notes.in_all);
        notes.seen.rss_bytes = machine::rss_bytes();
        notes.since_last.reset();
        notes.seen
    }

    fn lock_notes(&self) -> MutexGuard<'_, WatchNotes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchNotes {
    fn record_lateness(&mut self, number: u32, lateness_us: i64) {
        let rounds = |numbers: u32| u64::from(numbers) / self.ring.len() as u64;
        let place = number as usize % self.ring.len();
        // Numbers of this place that should have run between the last one and this one.
        self.seen.missing += match self.ring[place] {
            NONE => rounds(number),
            before if before < number => rounds(number - before) - 1,
            _ => {
                self.seen.doubled += 1;
                return;
            }
        };
        self.ring[place] = number;
        self.seen.done += 1;
        self.seen.early += u64::from(lateness_us < 0);
        let late_us = u64::try_from(lateness_us).unwrap_or_default();
        self.since_last.saturating_record(late_us);
        self.in_all.saturating_record(late_us);
    }
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_max(MAX_LATENESS_US, DIGITS).expect("the bounds are valid")
}

fn histogram_percentiles(histogram: &Histogram<u64>) -> SamplePercentiles {
    let at = |quantile| i64::try_from(histogram.value_at_quantile(quantile)).unwrap_or(i64::MAX);
    SamplePercentiles { p50: at(0.50), p99: at(0.99), max: i64::try_from(histogram.max()).unwrap_or(i64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(seen: SoakObservation) -> (u64, u64, u64, u64) {
        (seen.done, seen.doubled, seen.early, seen.missing)
    }

    #[test]
    fn a_row_without_a_fault_is_clean_however_often_it_goes_round() {
        let watch = SoakWatch::new(10);
        for number in 0..1_000_u32 {
            // Neighbours swap, as random delays make them.
            watch.record_run(number ^ 1, 1_000, 1_001_000);
        }
        let seen = watch.take_observation();
        assert_eq!(counts(seen), (1_000, 0, 0, 0));
        assert_eq!(seen.lateness_us.max / 10, 100, "{:?}", seen.lateness_us);
        assert_eq!(watch.take_observation().lateness_us, SamplePercentiles::default(), "a new minute");
        assert_eq!(watch.take_observation().overall_us, seen.overall_us);
    }

    #[test]
    fn what_did_not_run_is_missed_when_its_place_is_taken() {
        let watch = SoakWatch::new(10);
        for number in (0..30).filter(|number| ![3, 13, 4].contains(number)) {
            watch.record_run(number, 1_000, 1_001_000);
        }
        assert_eq!(counts(watch.take_observation()), (27, 0, 0, 3));
        let first_round = SoakWatch::new(10);
        first_round.record_run(25, 0, 0);
        assert_eq!(counts(first_round.take_observation()), (1, 0, 0, 2));
    }

    #[test]
    fn a_second_run_and_an_early_one_are_counted() {
        let watch = SoakWatch::new(10);
        watch.record_run(0, 1_000, 999_999);
        watch.record_run(0, 1_000, 1_000_000);
        watch.record_run(10, 1_000, 1_000_000);
        watch.record_run(0, 1_000, 1_000_000);
        assert_eq!(counts(watch.take_observation()), (2, 2, 1, 0));
    }
}
