//! The job of a schedule's next run. Pure.

use chrono::{DateTime, Utc};
use jobs::PeriodicTick;
use model::decide::timers::time_until;

use queue::NewJob;
use settings::{ScheduledTask, TaskSchedule, TaskScheduleError};

/// Returns the job of the next run after `now`. Every replica derives the same job.
pub fn next_job(schedule: &TaskSchedule, task: ScheduledTask, now: DateTime<Utc>) -> Result<NewJob, TaskScheduleError> {
    let slot = schedule.next_after(now)?;
    let tick = PeriodicTick { schedule: task.name().to_owned(), slot: slot.timestamp() };
    Ok(NewJob::after(&tick, time_until(slot, now) + task.delay()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn every_replica_derives_the_same_job() {
        let minutely = TaskSchedule::Every(Duration::from_secs(60));
        let a = next_job(&minutely, ScheduledTask::Statistics, at("2026-01-01T10:00:01Z")).unwrap();
        let b = next_job(&minutely, ScheduledTask::Statistics, at("2026-01-01T10:00:59Z")).unwrap();
        assert_eq!(a.id, b.id);
    }
}
