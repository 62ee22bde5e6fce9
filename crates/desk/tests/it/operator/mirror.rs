//! Dead letters are copied to Postgres, restored after a flush, and closed by a decision.

use super::{anna, bury_due, dead, dead_ids, job};
use desk::dead_letters::{
    decide::{DecisionOutcome, discard_job, requeue_job},
    mirror::{self, MirrorTurn},
};
use foundation::dead_letter_rows::{self, Resolution, ResolutionKind};
use maintenance::{
    periodic::cleanup::{self, CleanupMode},
    recovery::reconciler,
};
use queue::NewJob;
use test_support::{TestApp, lasting_transaction, secs};

const OPEN: &str = "SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL";

async fn turn(t: &TestApp) -> MirrorTurn {
    mirror::mirror_once(&t.app.core).await.unwrap().expect("no other process mirrors")
}

/// Creates dead jobs that no order needs.
async fn strays(t: &TestApp, prefix: &str, count: usize, error: &str) {
    let new: Vec<_> = (0..count)
        .map(|n| NewJob {
            queue: jobs::queues::PERIODIC,
            id: job(&format!("tick:{prefix}:{n}")),
            delay: secs(0),
            payload: None,
            slots: None,
        })
        .collect();
    t.app.core.store.enqueue(&new).await.unwrap();
    assert_eq!(bury_due(&t.app, error).await, count);
}

async fn flush(t: &TestApp) {
    t.redis::<()>(&["FLUSHALL"]).await;
    assert!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().rebuild);
}

#[tokio::test]
async fn every_dead_letter_is_copied_once_in_bounded_turns() {
    let t = TestApp::start().await;
    strays(&t, "a", 11_000, "no \"route\" \u{0} to host").await;
    assert_eq!(turn(&t).await.read, 0, "what has just died may still get a predecessor");
    t.advance(secs(1)).await;
    let first = turn(&t).await;
    assert!(first.more && first.read < 11_000, "{first:?}");
    assert!(!turn(&t).await.more);
    assert_eq!(t.count(OPEN).await, 11_000);
    strays(&t, "b", 3, "timed out").await;
    t.advance(secs(1)).await;
    assert_eq!(turn(&t).await.read, 3);
    assert_eq!(turn(&t).await, MirrorTurn::default());
    assert_eq!(t.count("SELECT count(*) FROM dead_letters WHERE error = 'timed out'").await, 3);
}

#[tokio::test]
async fn a_flush_loses_no_dead_letter() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    bury_due(&t.app, "no route to host").await;
    t.advance(secs(4)).await;
    assert_eq!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().held, 1);
    t.run_due().await;
    strays(&t, "a", 700, "broken").await;
    let letter = NewJob {
        queue: jobs::queues::NOTIFY,
        id: job("letter:1"),
        delay: secs(0),
        payload: Some(serde_json::json!({ "text": "naïve \u{0} \"x\"", "n": 1.0 })),
        slots: None,
    };
    t.app.core.store.enqueue(&[letter]).await.unwrap();
    bury_due(&t.app, "unknown kind").await;
    t.advance(secs(1)).await;
    let before = dead(&t.app).await;
    assert_eq!((before.len(), turn(&t).await.read), (702, 702));

    for _ in 0..2 {
        flush(&t).await;
        assert_eq!(dead(&t.app).await, []);
        assert_eq!(turn(&t).await.restored, 702);
        assert_eq!(dead(&t.app).await, before);
        assert_eq!(turn(&t).await, MirrorTurn::default());
    }
    assert_eq!(requeue_job(&t.app.desk, &job("dispatch:ORD-1:1"), &anna()).await.unwrap(), DecisionOutcome::Done);
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    assert_eq!(t.count(OPEN).await, 701);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_restart_of_redis_is_compared_and_doubles_nothing() {
    let mut t = TestApp::start().await;
    strays(&t, "a", 5, "broken").await;
    t.advance(secs(1)).await;
    assert_eq!(turn(&t).await.read, 5);
    t.crash_redis().await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    let after = turn(&t).await;
    assert_eq!((after.restored, after.revived, after.read), (0, 0, 5));
    assert_eq!((t.count(OPEN).await, dead(&t.app).await.len()), (5, 5));
}

#[tokio::test]
async fn revived_job_is_not_a_dead_letter() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    bury_due(&t.app, "broken").await;
    t.advance(secs(1)).await;
    assert_eq!(turn(&t).await.read, 1);
    flush(&t).await;
    assert_eq!(turn(&t).await.revived, 1);
    assert_eq!(t.texts("SELECT resolved_how FROM dead_letters").await, ["revived"]);
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    t.assert_sound().await;
}

#[tokio::test]
async fn what_was_decided_on_stays_away_after_a_flush() {
    let t = TestApp::start().await;
    strays(&t, "a", 3, "broken").await;
    t.advance(secs(1)).await;
    turn(&t).await;
    assert_eq!(discard_job(&t.app.core, &job("tick:a:0"), &anna()).await.unwrap(), DecisionOutcome::Done);
    assert_eq!(requeue_job(&t.app.desk, &job("tick:a:1"), &anna()).await.unwrap(), DecisionOutcome::Done);
    flush(&t).await;
    turn(&t).await;
    assert_eq!(dead_ids(&t.app).await, ["tick:a:2"]);
}

#[tokio::test]
async fn a_job_that_dies_again_is_another_dead_letter() {
    let t = TestApp::start().await;
    for _ in 0..3 {
        strays(&t, "a", 1, "broken").await;
        t.advance(secs(1)).await;
        turn(&t).await;
        // The job is removed without the mirror.
        t.app.core.store.discard(&["tick:a:0"], &jobs::queues::ALL).await.unwrap();
    }
    assert_eq!((t.count(OPEN).await, t.count("SELECT count(*) FROM dead_letters").await), (1, 3));
}

#[tokio::test]
async fn a_decision_that_never_came_to_be_is_open_again() {
    let t = TestApp::start().await;
    strays(&t, "a", 2, "broken").await;
    t.advance(secs(1)).await;
    turn(&t).await;
    // The process died before it updated Redis.
    let entry = dead(&t.app).await.remove(0);
    let resolution = Resolution { how: ResolutionKind::Discarded, by: "operator:anna".to_owned(), why: None };
    dead_letter_rows::resolve_job(&t.app.core.db, &entry, &resolution).await.unwrap();
    t.advance(secs(30)).await;
    turn(&t).await;
    assert_eq!(t.count(OPEN).await, 1);
    t.advance(secs(3601)).await;
    turn(&t).await;
    assert_eq!(turn(&t).await.read, 2, "once an hour all is compared");
    assert_eq!(t.count(OPEN).await, 2);
}

#[tokio::test]
async fn retention_ends_with_the_job_and_later_its_record() {
    const DAY: u64 = 24 * 3600;
    let t = TestApp::start().await;
    strays(&t, "old", 2, "broken").await;
    t.advance(secs(1)).await;
    turn(&t).await;
    t.advance(secs(20 * DAY)).await;
    strays(&t, "new", 1, "broken").await;
    t.advance(secs(10 * DAY)).await;
    turn(&t).await;
    assert_eq!(cleanup::run(&t.app.maintenance, CleanupMode::DryRun).await.unwrap().dead_jobs, 2);
    assert_eq!(t.count(OPEN).await, 3, "a dry run decides nothing");
    assert_eq!(cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap().dead_jobs, 2);
    assert_eq!(dead_ids(&t.app).await, ["tick:new:0"]);
    assert_eq!(t.count("SELECT count(*) FROM dead_letters WHERE resolved_how = 'expired'").await, 2);
    flush(&t).await;
    turn(&t).await;
    assert_eq!(dead_ids(&t.app).await, ["tick:new:0"]);
    t.advance(secs(31 * DAY)).await;
    assert_eq!(cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap().dead_jobs, 1);
    assert_eq!(t.texts("SELECT job_id FROM dead_letters").await, ["tick:new:0"]);
}

#[tokio::test]
async fn a_mirror_that_fails_or_hangs_stops_no_timer() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.run_due().await;
    strays(&t, "a", 1, "broken").await;
    t.advance(secs(4)).await;
    let mut blocker = lasting_transaction(&t.postgres).await;
    sqlx::query("LOCK TABLE dead_letters IN ACCESS EXCLUSIVE MODE").execute(&mut *blocker).await.unwrap();
    let app = t.app.clone();
    let hanging = tokio::spawn(async move { mirror::mirror_once(&app.core).await });
    test_support::eventually("the mirror waits", || async {
        t.count("SELECT count(*) FROM pg_locks WHERE NOT granted").await > 0
    })
    .await;
    assert_eq!(mirror::mirror_once(&t.app.core).await.unwrap(), None, "one at a time");
    flush(&t).await;
    assert!(t.timers().await.contains_key("lifetime:ORD-1"));
    blocker.rollback().await.unwrap();
    hanging.await.unwrap().unwrap().unwrap();

    t.sql("DROP TABLE dead_letters").await;
    strays(&t, "b", 1, "broken").await;
    t.advance(secs(1)).await;
    mirror::mirror_once(&t.app.core).await.unwrap_err();
    flush(&t).await;
    assert!(t.timers().await.contains_key("lifetime:ORD-1"));
}
