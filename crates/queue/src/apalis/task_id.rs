//! Ids of tasks and of jobs.
//!
//! The id of a task in the queue `emails` is the key of its job: the task `7` is the job `emails:7`. An id with a colon
//! is the id of a job as it is. So tasks and jobs correspond one to one, also for jobs that other programs enqueued.

use apalis_core::task::task_id::TaskId;

use crate::job::{InvalidJobId, JobId};

/// Returns the id of the task's job.
pub(super) fn job_of(queue: &str, task: &str) -> Result<JobId, InvalidJobId> {
    if task.contains(':') { JobId::parse(task) } else { JobId::parse([queue, ":", task].concat()) }
}

/// Returns the id of the job's task.
pub(super) fn task_of(queue: &str, job: &JobId) -> TaskId {
    let is_own = job.kind() == queue && !job.key().contains(':');
    let text = if is_own { job.key() } else { job.as_str() };
    // A number is an integer only if it has no other spelling.
    text.parse().ok().filter(|id: &TaskId| id.to_string() == text).unwrap_or_else(|| TaskId::from_string(text))
}

/// Returns an id for a task without one.
pub(super) fn new_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_and_job_ids_correspond() {
        let pairs = [
            (TaskId::Int(7), "emails:7"),
            (TaskId::from_string("007"), "emails:007"),
            (TaskId::from_string("a.b-c"), "emails:a.b-c"),
            (TaskId::from_string("emails:a:b"), "emails:a:b"),
            (TaskId::from_string("timeout:ORD-1:3"), "timeout:ORD-1:3"),
        ];
        for (task, job) in pairs {
            let id = job_of("emails", &task.to_string()).unwrap();
            assert_eq!((id.as_str(), task_of("emails", &id)), (job, task));
        }
        assert!(job_of("emails", "a b").is_err() && job_of("e mails", "1").is_err());
    }
}
