//! Recovery after a fault: lateness, and timers that the rows require.

use std::{collections::HashSet, time::Duration};

use foundation::core::Core;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::watch::LatenessWatch;
use maintenance::recovery::repair;

const WINDOW: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_secs(1);
/// Maximum time from the end of a fault until everything has recovered.
const GOAL: Duration = Duration::from_secs(10);
const GOAL_P99_MS: f64 = 100.0;
/// Interval between two checks for missing timers. Between a commit and its settle a timer may be missing, so a timer
/// counts as missing only if two checks miss it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of missing timers that are listed.
const SOME: usize = 5;

/// Recovery after one fault, in seconds since its end. `None` means that there was no recovery before the next fault,
/// or too little time to judge it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct FaultRecovery {
    /// Time after which p99 stayed below the goal in every window.
    pub(super) lateness_s: Option<f64>,
    pub(super) timers_s: Option<f64>,
    /// Some timers that were missing in the last two checks, or the reason for a failed check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) without_timers: Option<String>,
    /// Maximum p99 of all windows that start after the goal's time.
    pub(super) worst_p99_ms: Option<f64>,
    /// Windows after the goal's time in which no job started, although orders were created.
    pub(super) windows_without_jobs: usize,
}

/// Waits until no timer is missing, at most until `until`. Returns the time it took, or the reason why timers are
/// missing.
pub(in crate::bench) async fn wait_for_timers(core: &Core, end: Instant, until: Instant) -> Result<f64, String> {
    let mut before: Option<(f64, HashSet<String>)> = None;
    let mut why = "there was no time for a check".to_owned();
    let mut next = end;
    while next < until {
        sleep_until(next).await;
        next = Instant::now() + LOOK_EVERY;
        let looked_at = end.elapsed().as_secs_f64();
        // The check may hang while a server is down, so it is bounded by `until`.
        let missing = match tokio::time::timeout_at(until, repair::list_missing(core)).await {
            Ok(Ok(missing)) => missing,
            Ok(Err(error)) => {
                why = format!("after {looked_at:.1} s they could not be compared: {error:#}");
                before = None;
                continue;
            }
            Err(_) => {
                why = format!("the check started after {looked_at:.1} s did not end");
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

/// Returns the p99 in milliseconds of each window between a fault's end and the next fault, one window per second.
/// `None` if no job started in the window.
pub(super) fn read_windows(watch: &LatenessWatch, end: Instant, next: Instant) -> Vec<Option<f64>> {
    let begins = (0..).map(|n| end + STEP * n).take_while(|begin| *begin + WINDOW <= next);
    begins.map(|begin| watch.p99_ms(begin, begin + WINDOW)).collect()
}

impl FaultRecovery {
    pub(super) fn new(windows_ms: &[Option<f64>], timers: Result<f64, String>) -> Self {
        let ill = |p99: &Option<f64>| p99.is_none_or(|p99| p99 >= GOAL_P99_MS);
        let well_from = windows_ms.iter().rposition(ill).map_or(0, |last| last + 1);
        let after_goal = windows_ms.get(usize::try_from(GOAL.as_secs()).unwrap_or_default()..).unwrap_or_default();
        Self {
            lateness_s: (well_from < windows_ms.len()).then(|| STEP.as_secs_f64() * well_from as f64),
            timers_s: timers.as_ref().ok().copied(),
            without_timers: timers.err(),
            worst_p99_ms: after_goal.iter().copied().flatten().reduce(f64::max),
            windows_without_jobs: after_goal.iter().filter(|p99| p99.is_none()).count(),
        }
    }

    /// Returns the worse values of two recoveries. A time is unknown if it is unknown in one of them.
    pub(super) fn merge_worst(self, other: Self) -> Self {
        let later = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.max(b));
        Self {
            lateness_s: later(self.lateness_s, other.lateness_s),
            timers_s: later(self.timers_s, other.timers_s),
            without_timers: self.without_timers.or(other.without_timers),
            worst_p99_ms: self.worst_p99_ms.into_iter().chain(other.worst_p99_ms).reduce(f64::max),
            windows_without_jobs: self.windows_without_jobs.max(other.windows_without_jobs),
        }
    }

    /// Returns a line for each missed goal.
    pub(super) fn missed_goals(&self) -> Vec<String> {
        let (goal, mut missed) = (GOAL.as_secs_f64(), Vec::new());
        match self.timers_s {
            Some(seconds) if seconds <= goal => {}
            Some(seconds) => missed.push(format!("timers were restored after {seconds:.1} s, the goal is {goal} s")),
            None => {
                let why = self.without_timers.as_deref().unwrap_or("no check");
                missed.push(format!("timers were not restored before the next fault: {why}"));
            }
        }
        if self.windows_without_jobs > 0 {
            missed.push(format!(
                "no job started in {} windows from {goal} s after its end on",
                self.windows_without_jobs
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
    fn recovery_starts_after_the_last_bad_window() {
        let of = |windows: &[f64]| FaultRecovery::new(&windows.iter().copied().map(Some).collect::<Vec<_>>(), Ok(1.0));
        assert_eq!(of(&[5.0, 200.0, 9.0, 8.0]).lateness_s, Some(2.0));
        assert_eq!(of(&[5.0, 9.0, 100.0]).lateness_s, None);
        let late = [vec![Some(900.0); 10], vec![Some(3.0), None, Some(7.0)]].concat();
        assert_eq!(of(&[900.0; 10]).worst_p99_ms, None, "the goal begins ten seconds after the fault's end");
        let seen = FaultRecovery::new(&late, Err("dispatch:ORD-1:1".to_owned()));
        assert_eq!((seen.worst_p99_ms, seen.lateness_s, seen.windows_without_jobs), (Some(7.0), Some(12.0), 1));
        assert_eq!(seen.missed_goals().len(), 2, "a standstill is no recovery");
        let worse = of(&[5.0]).merge_worst(seen);
        assert_eq!((worse.timers_s, worse.worst_p99_ms), (None, Some(7.0)));
    }
}
