//! `order explain`: the reason, the next step, the holder, and advice.

use desk::explain::{JobStanding, OrderExplanation, gather};
use queue::{Outcome, store::WorkerInfo};
use test_support::{TestApp, id, secs, worker_info};

async fn explain(t: &TestApp, order: &str) -> OrderExplanation {
    gather::explain_order(&t.app.desk, &id(order)).await.unwrap().expect("the order exists")
}

fn commands(e: &OrderExplanation) -> Vec<&str> {
    e.to_do.iter().filter_map(|advice| advice.command.as_deref()).collect()
}

/// Registers a worker that serves all queues. Its leases are those of `take`.
async fn a_worker_lives(t: &TestApp) {
    t.send_heartbeat("test", "w1", Some(&worker_info(&jobs::queues::ALL))).await;
}

#[tokio::test]
async fn explain_shows_next_jobs_and_their_worker() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    a_worker_lives(&t).await;
    let held = t.take().await;
    let e = explain(&t, "ORD-1").await;
    assert!(e.why.starts_with("New: the search for a driver starts"), "{}", e.why);
    let dispatch = e.next.iter().find(|job| job.job == "dispatch:ORD-1:1").unwrap();
    let JobStanding::Running { worker: Some(worker), .. } = &dispatch.state else { panic!("{dispatch:?}") };
    assert_eq!(worker, "w1 (host-1 pid 7)");

    for leased in held {
        let outcome = t.perform(&leased).await;
        t.settle(&leased, outcome).await;
    }
    t.run_due().await;
    let e = explain(&t, "ORD-1").await;
    assert!(e.why.starts_with("Attempt 1: driver D1 was asked"), "{}", e.why);
    let next: Vec<_> = e.next.iter().map(|job| job.job.as_str()).collect();
    assert_eq!(next, ["timeout:ORD-1:1", "lifetime:ORD-1"]);
    assert!(e.next.iter().all(|job| matches!(job.state, JobStanding::Waiting { due } if due == job.at)));
    assert_eq!(commands(&e), Vec::<&str>::new());
    assert_eq!(e.timeline.len(), 2);
}

#[tokio::test]
async fn what_stands_in_an_orders_way_is_named() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    assert_eq!(commands(&explain(&t, "ORD-1").await)[0], "dispatchq work", "no worker serves its queues");
    let drained = WorkerInfo { drain_ms: Some(1), ..worker_info(&jobs::queues::ALL) };
    t.send_heartbeat("test", "w1", Some(&drained)).await;
    assert_eq!(commands(&explain(&t, "ORD-1").await)[0], "dispatchq worker resume ID", "its only worker is drained");
    a_worker_lives(&t).await;
    t.app.core.store.pause_queue("dispatch-queue").await.unwrap();
    assert_eq!(commands(&explain(&t, "ORD-1").await), ["dispatchq queue resume dispatch-queue"]);
    t.app.core.store.resume_queue("dispatch-queue").await.unwrap();
    for leased in t.take().await {
        t.settle(&leased, Outcome::Dead("broken".to_owned())).await;
    }
    let e = explain(&t, "ORD-1").await;
    assert_eq!(e.next[0].state, JobStanding::Dead { error: "broken".to_owned() });
    assert_eq!(commands(&e), ["dispatchq dead show dispatch:ORD-1:1"]);
    t.redis::<()>(&["FLUSHALL"]).await;
    a_worker_lives(&t).await;
    let e = explain(&t, "ORD-1").await;
    assert!(e.next.iter().all(|job| job.state == JobStanding::Missing));
    assert_eq!(commands(&e), ["dispatchq reconcile run"; 2]);
}

#[tokio::test]
async fn explain_of_ended_order_names_remaining_work() {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_for(secs(1_810)).await;
    let e = explain(&t, "ORD-1").await;
    assert!(
        e.why.contains("CANCELLED_BY_SYSTEM_AFTER_PAYMENT at ") && e.why.contains("COMPENSATED_AFTER_PAYMENT"),
        "{}",
        e.why
    );
    assert!(commands(&e).contains(&"dispatchq order refund start ORD-1"), "{:?}", e.to_do);
    assert!(gather::explain_order(&t.app.desk, &id("ORD-2")).await.unwrap().is_none());
}
