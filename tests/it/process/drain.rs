//! Workers that an operator drains and resumes.

use serde_json::Value;

use super::{healing, orders};
use crate::support::{Child, Fleet, eventually, hire, redis_command};

const STARTED: &str = "SELECT count(*) FROM order_events WHERE reason = 'ATTEMPT_STARTED'";
/// Jobs of the queue that one worker runs at the same time.
const CONCURRENCY: i64 = 24;

/// Starts a worker that serves only the queue of dispatches, so that it settles no other jobs.
fn dispatcher(fleet: &Fleet, name: &str) -> Child {
    fleet.spawn(name, &["work", "--queues", "dispatch-queue"])
}

/// Returns a worker of `dispatchq worker list --json` by its name.
fn shown(fleet: &Fleet, name: &str) -> Value {
    let listed = fleet.run(&["worker", "list", "--json"]);
    let workers: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap_or_else(|_| panic!("{listed:?}"));
    workers.into_iter().find(|worker| worker["replica"] == name).unwrap_or_default()
}

async fn until_shown(fleet: &Fleet, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
    eventually(what, || async { is_so(&shown(fleet, name)) }).await;
}

/// Runs `dispatchq worker drain` or `resume` for the worker with this name.
fn change(fleet: &Fleet, verb: &str, name: &str) -> String {
    let id = shown(fleet, name)["boot"].as_str().unwrap_or_else(|| panic!("{name} is not listed")).to_owned();
    let done = fleet.run(&["worker", verb, &id, "--reason", "a test"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

// Also proves that the worker sees the request while its handlers run, and that another worker takes the waiting jobs.
#[tokio::test]
async fn drained_worker_finishes_its_jobs_and_takes_none() {
    let fleet = Fleet::start().await;
    hire(&fleet.app, 60).await;
    orders(&fleet, "ORD", 40).await;
    let lock = healing::lock_orders(&fleet).await;
    let mut first = dispatcher(&fleet, "w1");
    healing::hands_full(&fleet, 1).await;
    let printed = change(&fleet, "drain", "w1");
    assert!(printed.contains("No other worker takes jobs of dispatch-queue."), "{printed}");
    until_shown(&fleet, "w1", "it has seen the request", |w| w["drain_ms"].is_u64()).await;
    let draining = shown(&fleet, "w1");
    assert_eq!((&draining["state"], draining["in_hand"].as_i64()), (&"draining".into(), Some(CONCURRENCY)));
    drop(lock);
    until_shown(&fleet, "w1", "it is drained", |w| w["state"] == "drained").await;
    let started = "SELECT count(DISTINCT order_id) FROM order_events WHERE reason = 'ATTEMPT_STARTED'";
    assert!((1..=CONCURRENCY).contains(&fleet.count(started).await), "only its running jobs have finished");

    let _second = fleet.running_worker("w2").await;
    fleet.reach(40, started).await;
    assert_eq!(shown(&fleet, "w1")["state"], "drained");
    first.terminate();
    assert_eq!(first.ended().await.code(), Some(0));
    assert_eq!(first.settled_and_refused(), (CONCURRENCY.cast_unsigned(), 0));
}

#[tokio::test]
async fn resumed_worker_takes_waiting_jobs() {
    let fleet = Fleet::start().await;
    hire(&fleet.app, 20).await;
    let _worker = fleet.running_worker("w1").await;
    fleet.reach(1, "SELECT count(*) FROM reconcile_log WHERE rebuild").await;
    change(&fleet, "drain", "w1");
    until_shown(&fleet, "w1", "it is drained", |w| w["state"] == "drained").await;
    orders(&fleet, "ORD", 5).await;
    let due = async || fleet.app.core.queue().queue_stats(&[jobs::queues::DISPATCH]).await.unwrap()[0].due;
    assert_eq!((due().await, fleet.count(STARTED).await), (5, 0), "the jobs wait");
    change(&fleet, "resume", "w1");
    fleet.reach(5, STARTED).await;
    until_shown(&fleet, "w1", "it runs", |w| w["state"] == "running" && w["drain_ms"].is_null()).await;
}

#[tokio::test]
async fn drained_worker_stays_drained_after_a_flush() {
    let fleet = Fleet::start().await;
    hire(&fleet.app, 20).await;
    let _worker = fleet.running_worker("w1").await;
    fleet.reach(1, "SELECT count(*) FROM reconcile_log WHERE rebuild").await;
    change(&fleet, "drain", "w1");
    until_shown(&fleet, "w1", "it is drained", |w| w["state"] == "drained").await;
    orders(&fleet, "ORD", 5).await;
    let _: String = redis_command(&fleet.redis.url(), &["FLUSHALL"]).await;
    // The process itself rebuilds the jobs, because the reconciler is no job.
    fleet.reach(2, "SELECT count(*) FROM reconcile_log WHERE rebuild").await;
    until_shown(&fleet, "w1", "it is listed again", |w| w["state"] == "drained").await;
    assert_eq!(fleet.count(STARTED).await, 0);
}

#[tokio::test]
async fn next_process_of_a_drained_worker_takes_jobs() {
    let fleet = Fleet::start().await;
    hire(&fleet.app, 20).await;
    let mut worker = fleet.running_worker("w1").await;
    change(&fleet, "drain", "w1");
    until_shown(&fleet, "w1", "it is drained", |w| w["state"] == "drained").await;
    worker.kill();
    orders(&fleet, "ORD", 5).await;
    let _next = fleet.worker("w1");
    fleet.reach(5, STARTED).await;
}
