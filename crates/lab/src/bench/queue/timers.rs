//! Jobs of the benchmark: order timers as the product creates them, and jobs with a payload.

use std::time::Duration;

use jobs::{ExpireAttempt, OrderId, queues};
use queue::{JobId, NewJob};
use uuid::Uuid;

/// Queues that a worker of the product serves. The measured workers serve all of them, although only one queue has
/// jobs.
pub(super) const QUEUES: [&str; queues::ALL.len()] = queues::ALL;

/// Queue of the timers.
pub(super) const QUEUE: &str = queues::DISPATCH_TIMEOUT;

/// Returns the timer `timeout:ORD-<32 hex digits>:{number}`. Each timer has an order of its own; the worker
/// distinguishes the timers by the number.
pub(super) fn bench_timer(number: u32) -> ExpireAttempt {
    let order: OrderId = format!("ORD-{}", Uuid::new_v4().simple()).parse().expect("letters, digits and a dash");
    ExpireAttempt { order, attempt: number }
}

/// Returns timers 0..`count`, all due after `delay`.
pub(super) fn bench_timers(count: u32, delay: Duration) -> Vec<NewJob> {
    (0..count).map(|number| NewJob::after(&bench_timer(number), delay)).collect()
}

/// Returns a job with an id of 30 characters and a payload of 100 bytes of JSON.
pub(super) fn job_with_payload(number: u32, delay: Duration) -> NewJob {
    let id = JobId::parse(format!("letter:{number:023}")).expect("letters, digits and a colon");
    let payload = serde_json::json!({ "text": format!("{number:089}") });
    NewJob { queue: queues::NOTIFY, id, delay, payload: Some(payload), slots: None }
}
