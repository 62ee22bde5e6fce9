//! How soon after a fault all is as before: lateness, and the timers that the rows ask for.

use std::{collections::HashSet, time::Duration};

use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::watch::LatenessWatch;
use dispatch::{app::App, recovery::repair};

pub(super) const WINDOW: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_secs(1);
/// All must be as before within this time of a fault's end.
pub(super) const GOAL: Duration = Duration::from_secs(10);
pub(super) const GOAL_P99_MS: f64 = 100.0;
/// Two looks at timers that are missing lie so far apart: between a commit and its settle one may be missing.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Timers named where they are missing.
const SOME: usize = 5;

/// What followed one fault. Seconds since its end; `None`: not before the next fault, or too little time to tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct FaultRecovery {
    /// From then on p99 stayed below the goal in every window.
    pub(super) lateness_s: Option<f64>,
    pub(super) timers_s: Option<f64>,
    /// Why they were not: some timers that were missing in the last two looks, or why a look failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) without_timers: Option<String>,
    /// The greatest p99 of all windows that begin after the goal's time.
    pub(super) worst_p99_ms: Option<f64>,
    /// Windows that begin after the goal's time in which no job began, although orders were created.
    pub(super) windows_without_jobs: usize,
    /// Where the goal is missed: p99 in milliseconds of each window, one a second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) windows_ms: Vec<Option<f64>>,
}

/// Looks for timers that are missing until none is, or until a moment. Returns how long it took, or why they are not back.
pub(in crate::bench) async fn wait_for_timers(app: &App, end: Instant, until: Instant) -> Result<f64, String> {
    let mut before: Option<(f64, HashSet<String>)> = None;
    let mut why = "there was no time to look".to_owned();
    let mut next = end;
    while next < until {
        sleep_until(next).await;
        next = Instant::now() + LOOK_EVERY;
        let looked_at = end.elapsed().as_secs_f64();
        // A server that is not there yet has no timers.
        let missing = match tokio::time::timeout_at(until, repair::list_missing(app)).await {
            Ok(Ok(missing)) => missing,
            Ok(Err(error)) => {
                why = format!("after {looked_at:.1} s they could not be compared: {error:#}");
                before = None;
                continue;
            }
            Err(_) => {
                why = format!("the look begun after {looked_at:.1} s did not end");
                break;
            }
        };
        let missing: HashSet<String> = missing.into_iter().map(|job| job.id.to_string()).collect();
        if let Some((at, earlier)) = &before {
            let still: Vec<&str> = earlier.intersection(&missing).map(String::as_str).collect();
            if still.is_empty() {
                return Ok(*at);
            }
            let some = &still[..still.len().min(SOME)];
            why = format!("{} are missing after {looked_at:.1} s, such as {}", still.len(), some.join(" "));
        }
        before = Some((looked_at, missing));
    }
    Err(why)
}

/// Lateness between a fault's end and the next fault.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RecoveryLateness {
    /// p99 in milliseconds of each window, one a second; `None`: no job began in it.
    pub(super) windows_ms: Vec<Option<f64>>,
}

impl RecoveryLateness {
    pub(super) fn between_faults(watch: &LatenessWatch, end: Instant, next: Instant) -> Self {
        let begins = (0..).map(|n| end + STEP * n).take_while(|begin| *begin + WINDOW <= next);
        Self { windows_ms: begins.map(|begin| watch.p99_ms(begin, begin + WINDOW)).collect() }
    }

    /// Seconds until every window was well.
    pub(super) fn well_from_s(&self) -> Option<f64> {
        let ill = |p99: &Option<f64>| p99.is_none_or(|p99| p99 >= GOAL_P99_MS);
        let well_from = self.windows_ms.iter().rposition(ill).map_or(0, |last| last + 1);
        (well_from < self.windows_ms.len()).then(|| STEP.as_secs_f64() * well_from as f64)
    }

    /// The windows that begin after the goal's time.
    fn windows_after_goal(&self) -> impl Iterator<Item = Option<f64>> {
        let late = usize::try_from(GOAL.as_secs() / STEP.as_secs()).unwrap_or_default();
        self.windows_ms.iter().skip(late).copied()
    }

    /// The greatest p99 of them.
    pub(super) fn worst_p99_ms(&self) -> Option<f64> {
        self.windows_after_goal().fold(None, Option::max_by)
    }

    /// Returns in how many of them no job began.
    pub(super) fn without_jobs(&self) -> usize {
        self.windows_after_goal().filter(Option::is_none).count()
    }
}

/// The greater of two figures, if there is one.
trait MaxBy {
    fn max_by(self, other: Self) -> Self;
}

impl MaxBy for Option<f64> {
    fn max_by(self, other: Self) -> Self {
        match (self, other) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        }
    }
}

impl FaultRecovery {
    pub(super) fn new(lateness: &RecoveryLateness, timers: Result<f64, String>) -> Self {
        let timers_s = timers.as_ref().ok().copied();
        let worst_p99_ms = lateness.worst_p99_ms();
        let windows_without_jobs = lateness.without_jobs();
        let missed = windows_without_jobs > 0 || worst_p99_ms.is_some_and(|p99| p99 >= GOAL_P99_MS);
        Self {
            lateness_s: lateness.well_from_s(),
            timers_s,
            without_timers: timers.err(),
            worst_p99_ms,
            windows_without_jobs,
            windows_ms: if missed { lateness.windows_ms.clone() } else { Vec::new() },
        }
    }

    /// The worse of two.
    pub(super) fn merge_worst(self, other: Self) -> Self {
        let windows_ms =
            if other.worst_p99_ms > self.worst_p99_ms { other.windows_ms.clone() } else { self.windows_ms.clone() };
        let later = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.max(b));
        Self {
            lateness_s: later(self.lateness_s, other.lateness_s),
            timers_s: later(self.timers_s, other.timers_s),
            without_timers: self.without_timers.or(other.without_timers),
            worst_p99_ms: self.worst_p99_ms.max_by(other.worst_p99_ms),
            windows_without_jobs: self.windows_without_jobs.max(other.windows_without_jobs),
            windows_ms,
        }
    }

    /// Where it misses the goal.
    pub(super) fn missed_goals(&self) -> Vec<String> {
        let mut missed = Vec::new();
        let goal = GOAL.as_secs_f64();
        match self.timers_s {
            Some(seconds) if seconds <= goal => {}
            Some(seconds) => missed.push(format!("timers were back after {seconds:.1} s, the goal is {goal} s")),
            None => {
                let why = self.without_timers.as_deref().unwrap_or("no look");
                missed.push(format!("timers were not back before the next fault: {why}"));
            }
        }
        if self.windows_without_jobs > 0 {
            missed.push(format!(
                "no job began in {} windows of {} s from {goal} s after its end on",
                self.windows_without_jobs,
                WINDOW.as_secs()
            ));
        }
        if let Some(p99) = self.worst_p99_ms.filter(|p99| *p99 >= GOAL_P99_MS) {
            missed.push(format!("lateness p99 was {p99:.0} ms in a window from {goal} s after its end on"));
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_well_from_the_last_window_that_was_not() {
        let of = |windows_ms: &[f64]| RecoveryLateness { windows_ms: windows_ms.iter().copied().map(Some).collect() };
        assert_eq!(of(&[5.0, 200.0, 9.0, 8.0]).well_from_s(), Some(2.0));
        assert_eq!(of(&[5.0, 9.0, 100.0]).well_from_s(), None);
        assert_eq!(of(&[]).well_from_s(), None);
        let mut late = of(&[900.0; 10]);
        assert_eq!(late.worst_p99_ms(), None, "the goal begins ten seconds after the fault's end");
        late.windows_ms.extend([Some(3.0), None, Some(7.0)]);
        assert_eq!((late.worst_p99_ms(), late.well_from_s()), (Some(7.0), Some(12.0)));
        assert_eq!(late.without_jobs(), 1);
        assert!(!FaultRecovery::new(&late, Ok(1.0)).missed_goals().is_empty(), "a standstill is no recovery");
    }

    #[test]
    fn the_worse_of_two_is_unknown_where_one_is() {
        let good = FaultRecovery {
            lateness_s: Some(2.0),
            timers_s: Some(1.0),
            worst_p99_ms: Some(20.0),
            ..FaultRecovery::default()
        };
        let bad = FaultRecovery { timers_s: Some(12.0), worst_p99_ms: Some(150.0), ..FaultRecovery::default() };
        let worse = good.clone().merge_worst(bad.clone());
        assert_eq!(worse, bad);
        assert_eq!((good.missed_goals().len(), worse.missed_goals().len()), (0, 2));
    }
}
