//! Redis has lost its data or was restarted. Workers continue only after every timer is enqueued again.

use axum::http::StatusCode;

use maintenance::recovery::{reconciler, repair};
use test_support::{Receiver, TestApp, eventually, lasting_transaction, secs};

/// Creates orders in every state with timers, and a message to send again.
async fn busy(t: &TestApp, receiver: &Receiver) {
    t.user("anna", accounts::api_keys::AccountRole::Dispatcher, "log").await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    receiver.fail(StatusCode::SERVICE_UNAVAILABLE, 4);
    for order in ["OFFERED", "ACCEPTED", "SEARCHING"] {
        t.order(order).await;
    }
    t.order_of("PENDING", "RENT", "UNPAID").await;
    t.run_due().await;
    t.advance(secs(2)).await;
    for order in t.texts("SELECT order_id FROM offers WHERE state = 'offered' LIMIT 1").await {
        t.accept_offer(&order).await;
    }
    // Leftover jobs of the accepted order cause no harm and are not restored.
    t.run_due().await;
    for queue in jobs::queues::ALL {
        let accepted = t.texts("SELECT id FROM orders WHERE status = 'DRIVER_ASSIGNED'").await.remove(0);
        for leftover in [format!("timeout:{accepted}:1"), format!("lifetime:{accepted}")] {
            t.redis::<i64>(&["ZREM", &t.app.core.store.keys().due_set(queue), &leftover]).await;
        }
    }
    t.order("NEW").await;
}

#[tokio::test]
async fn every_timer_is_back_after_a_flush() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    busy(&t, &receiver).await;
    let before = t.timers().await;
    let rows = t.dump().await;
    assert!(before.len() >= 8, "{before:?}");

    t.redis::<()>(&["FLUSHALL"]).await;
    assert_eq!(t.app.core.store.epoch().await.unwrap(), None);
    assert_eq!(repair::list_missing(&t.app.core).await.unwrap().len(), before.len());
    let report = reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!((report.rebuild, report.inserted), (true, before.len() as u64));
    assert_eq!(t.timers().await, before);
    assert_eq!(t.dump().await, rows);
    t.run_for(secs(1801)).await;
    t.assert_sound().await;
}

#[tokio::test]
async fn a_rebuild_interrupted_by_a_flush_is_done_again() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    busy(&t, &receiver).await;
    let before = t.timers().await;
    t.redis::<()>(&["FLUSHALL"]).await;

    // The rebuild reaches the orders and then waits for the messages.
    let mut blocker = lasting_transaction(&t.postgres).await;
    sqlx::query("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE").execute(&mut *blocker).await.unwrap();
    let app = t.app.clone();
    let rebuild = tokio::spawn(async move { reconciler::reconcile_once(&app.maintenance).await });
    eventually("the timers of orders are back", || async { !t.timers().await.is_empty() }).await;
    t.redis::<()>(&["FLUSHALL"]).await;
    blocker.rollback().await.unwrap();
    rebuild.await.unwrap().unwrap().unwrap();
    assert_eq!(t.app.core.store.epoch().await.unwrap(), None, "a half rebuild must not count as whole");

    assert!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().rebuild);
    assert!(t.app.core.store.epoch().await.unwrap().is_some());
    assert_eq!(t.timers().await, before);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_restarted_redis_is_compared_in_full() {
    let receiver = Receiver::start().await;
    let mut t = TestApp::with(|config| receiver.configure(config)).await;
    busy(&t, &receiver).await;
    let before = t.timers().await;
    let epoch = t.app.core.store.epoch().await.unwrap().unwrap();
    t.crash_redis().await;

    let report = reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!((report.rebuild, report.inserted, report.moved), (true, 0, 0));
    assert_ne!(t.app.core.store.epoch().await.unwrap().unwrap().run_id, epoch.run_id);
    assert_eq!(t.timers().await, before);
    assert!(!reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().rebuild);
}

#[tokio::test]
async fn of_two_reconcilers_one_works() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    let mut blocker = lasting_transaction(&t.postgres).await;
    sqlx::query("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE").execute(&mut *blocker).await.unwrap();
    let app = t.app.clone();
    let first = tokio::spawn(async move { reconciler::reconcile_once(&app.maintenance).await });
    eventually("the first waits for the messages", || async {
        t.count("SELECT count(*) FROM pg_locks WHERE NOT granted").await > 0
    })
    .await;
    assert_eq!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap(), None);
    blocker.rollback().await.unwrap();
    assert!(first.await.unwrap().unwrap().is_some());
    assert!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().is_some());
}
