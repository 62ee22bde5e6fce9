//! Typed handlers, run step by step without a supervisor: take, perform, settle.

use serde_json::json;

use crate::support::{Bench, Letter, OTHER, QUEUE, START_MS, Tick, id, secs, timer};
use queue::{Delivery, Job, NewJob, Outcome, Registry, store::JobState};

pub(crate) fn delivery(text: &str, payload: Option<serde_json::Value>) -> Delivery {
    let id = id(text);
    Delivery { queue: QUEUE, id, payload, due_ms: START_MS, lateness_ms: 0, failed: 0, lost: 0, slots: None }
}

#[tokio::test]
async fn handler_receives_typed_job() {
    let registry = Registry::new().register::<Letter, _, _>(|letter, delivery: Delivery| async move {
        Outcome::then_enqueue(vec![NewJob::after(
            &Tick(letter.0 + letter.1.len() as u64),
            secs(delivery.due_ms / START_MS),
        )])
    });
    let outcome = registry.perform(delivery("letter:1", Some(json!("four")))).await;
    assert_eq!(outcome, Outcome::then_enqueue(vec![NewJob::after(&Tick(5), secs(1))]));
}

#[tokio::test]
async fn unreadable_job_dies_at_once() {
    let registry = Registry::new().register::<Tick, _, _>(|_, _| async { Outcome::done() });
    assert!(matches!(registry.perform(delivery("tick:many", None)).await, Outcome::Dead(_)));
}

#[tokio::test]
async fn an_unknown_kind_waits_for_a_newer_worker() {
    assert_eq!(Registry::new().perform(delivery("novelty:1", None)).await, Outcome::Snooze { delay: secs(60) });
}

#[tokio::test]
async fn run_beyond_timeout_is_a_failed_try() {
    let registry = Registry::new().register::<Tick, _, _>(|_, _| std::future::pending());
    assert_eq!(registry.perform(delivery("tick:1", None)).await, Outcome::Retry("timed out after 200ms".to_owned()));
}

#[test]
#[should_panic(expected = "job kind 'tick' is registered twice, for timers and for timers")]
fn a_kind_has_one_handler() {
    let _ = Registry::new()
        .register::<Tick, _, _>(|_, _| async { Outcome::done() })
        .register::<Tick, _, _>(|_, _| async { Outcome::done() });
}

#[tokio::test]
async fn jobs_can_be_stepped_by_hand() {
    let bench = Bench::new().await;
    let registry = Registry::new()
        .register::<Tick, _, _>(|tick, delivery: Delivery| async move {
            match (tick.0, delivery.failed) {
                (0, 0) => Outcome::Retry("not yet".to_owned()),
                (n, _) if n < 2 => Outcome::then_enqueue(vec![NewJob::after(&Tick(n + 1), secs(15))]),
                _ => Outcome::then_enqueue(vec![NewJob::now(&Letter(1, "end".to_owned()))]),
            }
        })
        .register::<Letter, _, _>(|_, _| async { Outcome::Dead("returned to sender".to_owned()) });
    bench.enqueue(NewJob::now(&Tick(0))).await;
    let mut performed = Vec::new();
    for _ in 0..100 {
        let took = bench.take_of(&[(QUEUE, 10), (OTHER, 10)], queue::store::TakeMode::Normal).await;
        for leased in took.jobs {
            performed.push(leased.delivery.id.to_string());
            let outcome = registry.perform(leased.delivery.clone()).await;
            bench.store.settle(&[registry.settle(&leased, outcome)]).await.unwrap();
        }
        bench.advance(secs(1));
    }
    assert_eq!(performed, ["tick:0", "tick:0", "tick:1", "tick:2", "letter:1"]);
    assert_eq!(bench.find(Letter(1, String::new()).id().as_str()).await.unwrap().state, JobState::Dead);
    assert_eq!(bench.enqueue(timer("tick:9", secs(1))).await, queue::store::EnqueueVerdict::Inserted);
}
