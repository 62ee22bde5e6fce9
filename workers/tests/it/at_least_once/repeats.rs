//! Jobs that are delivered twice, too early, or without need.

use model::{
    decide::actions,
    messages::FAILED_TO_GET_ORDER,
    order::{OfferState, OrderStatus},
};
use queue::{JobId, NewJob, Outcome, store::EnqueueVerdict};
use test_support::{Ran, Receiver, TestApp, ids, millis, secs};

fn job(queue: &'static str, id: &str) -> NewJob {
    NewJob { queue, id: JobId::parse(id).unwrap(), delay: millis(0), payload: None, slots: None }
}

/// Runs due jobs, each `times` times before it is settled.
async fn run(t: &TestApp, times: usize, ran: &mut Vec<Ran>) {
    loop {
        let jobs = t.take().await;
        if jobs.is_empty() {
            return;
        }
        for leased in jobs {
            let outcome = t.perform(&leased).await;
            for _ in 1..times {
                t.perform(&leased).await;
            }
            t.settle(&leased, outcome.clone()).await;
            ran.push(Ran { queue: leased.delivery.queue, id: leased.delivery.id.to_string(), outcome });
        }
    }
}

/// Creates orders with every kind of life and returns the jobs that ran.
async fn lives(t: &TestApp, times: usize) -> Vec<Ran> {
    let mut ran = Vec::new();
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    run(t, times, &mut ran).await;
    t.decline_offer("ORD-1").await;
    run(t, times, &mut ran).await;
    t.advance(secs(120)).await;
    run(t, times, &mut ran).await;
    t.advance(secs(15)).await;
    run(t, times, &mut ran).await;
    t.accept_offer("ORD-1").await;
    for (order, service_type, payment) in
        [("ORD-2", "RIDE", "PAID"), ("ORD-3", "RENT", "UNPAID"), ("ORD-4", "RIDE", "ODD")]
    {
        t.order_of(order, service_type, payment).await;
    }
    while let Some(next_ms) = t.next_due_ms().await {
        t.move_clock_to(next_ms.max(t.now_ms())).await;
        run(t, times, &mut ran).await;
    }
    t.carry_out("ORD-1", "D2").await;
    ran
}

/// Returns the events without random ids.
async fn history(t: &TestApp) -> Vec<String> {
    t.texts(
        "SELECT concat_ws(' ', order_id, from_status, to_status, reason, actor, attempt_no, at)
         FROM (SELECT * FROM order_events ORDER BY order_id, seq) e
         UNION ALL SELECT concat_ws(' ', order_id, attempt_no, driver_id, state, offered_at, expires_at, responded_at)
         FROM (SELECT * FROM offers ORDER BY order_id, attempt_no) f
         UNION ALL SELECT concat_ws(' ', order_id, kind, channel, state, attempts, created_at, delivered_at)
         FROM (SELECT * FROM outbox ORDER BY order_id, kind, channel, created_at) m",
    )
    .await
}

#[tokio::test]
async fn every_job_may_be_delivered_twice() {
    let (once, twice) = (TestApp::start().await, TestApp::start().await);
    lives(&once, 1).await;
    let ran = lives(&twice, 2).await;
    let told = history(&twice).await;
    assert_eq!(told, history(&once).await);
    let kinds = ["dispatch", "timeout", "lifetime", "compensate", "notify"];
    for kind in kinds {
        assert!(ran.iter().any(|r| r.id.starts_with(kind)), "no {kind} job ran");
    }
    twice.assert_sound().await;

    let before = twice.dump().await;
    let stale: Vec<_> = ran.iter().map(|r| job(r.queue, &r.id)).collect();
    twice.app.core.store.enqueue(&stale).await.unwrap();
    let again = twice.run_due().await;
    assert!(again.len() >= kinds.len());
    assert!(again.iter().all(|r| r.outcome == Outcome::done()), "{again:?}");
    assert_eq!(twice.dump().await, before);
    assert_eq!(twice.timers().await.len(), 0);
}

#[tokio::test]
async fn a_job_of_a_missing_order_is_dropped() {
    let t = TestApp::start().await;
    let orphans = [
        job(jobs::queues::DISPATCH, "dispatch:GHOST:1"),
        job(jobs::queues::DISPATCH_TIMEOUT, "timeout:GHOST:1"),
        job(jobs::queues::LIFETIME_CANCEL, "lifetime:GHOST"),
        job(jobs::queues::NOTIFY, "notify:GHOST:77"),
    ];
    t.app.core.store.enqueue(&orphans).await.unwrap();
    let ran = t.run_due().await;
    assert_eq!(ran.len(), orphans.len());
    assert!(ran.iter().all(|r| r.outcome == Outcome::done()), "{ran:?}");
    assert_eq!(t.dump().await, "");
}

#[tokio::test]
async fn a_compensation_without_its_order_alerts_support_once() {
    let t = TestApp::start().await;
    let orphan = job(jobs::queues::COMPENSATION, "compensate:GHOST");
    for _ in 0..2 {
        t.app.core.store.enqueue(std::slice::from_ref(&orphan)).await.unwrap();
        t.run_due().await;
    }
    let alert = (FAILED_TO_GET_ORDER.to_owned(), "log".to_owned(), "delivered".to_owned());
    assert_eq!(t.messages("GHOST").await, [alert]);
}

#[tokio::test]
async fn unreadable_job_is_dead_with_its_reason() {
    let t = TestApp::start().await;
    t.app.core.store.enqueue(&[job(jobs::queues::DISPATCH_TIMEOUT, "timeout:ORD-1:soon")]).await.unwrap();
    let ran = t.run_due().await;
    assert!(matches!(&ran[0].outcome, Outcome::Dead(why) if why.contains("'soon' is no number")), "{ran:?}");
    t.assert_sound().await;
}

#[tokio::test]
async fn an_early_job_waits_for_its_row() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    // ORD-1: a running attempt with a message to send again. ORD-2: a new round in 15 s.
    receiver.fail(axum::http::StatusCode::BAD_GATEWAY, 1);
    t.run_due().await;
    let waiting = t.timers().await;
    let kinds: Vec<_> = waiting.keys().map(|id| id.split(':').next().unwrap()).collect();
    assert_eq!(kinds, ["dispatch", "lifetime", "lifetime", "notify", "timeout"]);

    let before = t.dump().await;
    let early: Vec<_> = waiting
        .keys()
        .map(|id| {
            let queue = match id.split(':').next().unwrap() {
                "dispatch" => jobs::queues::DISPATCH,
                "timeout" => jobs::queues::DISPATCH_TIMEOUT,
                "lifetime" => jobs::queues::LIFETIME_CANCEL,
                _ => jobs::queues::NOTIFY,
            };
            job(queue, id)
        })
        .collect();
    let moved = t.app.core.store.enqueue(&early).await.unwrap();
    assert!(moved.iter().all(|m| *m == EnqueueVerdict::Moved), "{moved:?}");
    let ran = t.run_due().await;
    assert_eq!(ran.len(), early.len());
    assert!(ran.iter().all(|r| matches!(r.outcome, Outcome::Snooze { .. })), "{ran:?}");
    assert_eq!(t.dump().await, before);
    assert_eq!(t.timers().await, waiting);
}

/// The timers were cancelled with the change. They are enqueued again here, as if that call had been lost. An order
/// with a driver keeps its lifetime timer, because the driver may be lost.
#[tokio::test]
async fn leftover_timers_of_a_decided_order_do_nothing() {
    for cancelled in [false, true] {
        let t = TestApp::start().await;
        t.drivers(&[("D1", 100.0)]).await;
        t.order("ORD-1").await;
        t.run_due().await;
        if cancelled {
            t.cancel("ORD-1").await.unwrap();
        } else {
            t.accept_offer("ORD-1").await;
        }
        let before = t.dump().await;
        let kept: &[&str] = if cancelled { &[] } else { &["lifetime:ORD-1"] };
        assert_eq!(t.timers().await.into_keys().collect::<Vec<_>>(), kept);
        t.app.core.store.enqueue(&[job(jobs::queues::DISPATCH_TIMEOUT, "timeout:ORD-1:1")]).await.unwrap();
        let mut lifetime = job(jobs::queues::LIFETIME_CANCEL, "lifetime:ORD-1");
        lifetime.delay = secs(1800);
        t.app.core.store.enqueue(&[lifetime]).await.unwrap();
        let ran = t.run_for(secs(1801)).await;
        assert_eq!(ids(&ran), ["timeout:ORD-1:1", "lifetime:ORD-1"]);
        assert!(ran.iter().all(|r| r.outcome == Outcome::done()), "{ran:?}");
        assert_eq!(t.dump().await, before);
        t.assert_sound().await;
    }
}

#[tokio::test]
async fn job_wanted_earlier_runs_again_in_time() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    // The timeout job comes early and has 120 s to wait ...
    t.app.core.store.enqueue(&[job(jobs::queues::DISPATCH_TIMEOUT, "timeout:ORD-1:1")]).await.unwrap();
    let leased = t.take().await.remove(0);
    let outcome = t.perform(&leased).await;
    assert_eq!(outcome, Outcome::Snooze { delay: secs(120) });
    // ... but before the job is settled, the driver declines, so it is needed now.
    t.decline_offer("ORD-1").await;
    t.settle(&leased, outcome).await;
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D2");
    t.assert_sound().await;
}

#[tokio::test]
async fn asking_for_the_same_thing_twice_changes_nothing() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let first = t.live_offer("ORD-1").await;
    for _ in 0..2 {
        t.act("ORD-1", |s| actions::decline_offer(s, &"D1".into(), first.id, None)).await.unwrap();
    }
    t.run_due().await;
    let second = t.live_offer("ORD-1").await;
    for _ in 0..2 {
        t.accept("ORD-1", "D2", second.id).await.unwrap();
    }
    for _ in 0..2 {
        t.act("ORD-1", |s| actions::record_pickup(s, &"D2".into())).await.unwrap();
    }
    for _ in 0..2 {
        t.act("ORD-1", |s| actions::complete_trip(s, &"D2".into())).await.unwrap();
    }
    let states: Vec<_> = t.offers("ORD-1").await.into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, [OfferState::Declined, OfferState::Accepted]);
    assert_eq!(t.reasons("ORD-1").await.len(), 7);
    assert_eq!(t.status("ORD-1").await, OrderStatus::Completed);
    t.assert_sound().await;
}
