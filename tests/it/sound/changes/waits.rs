//! Every wait on a server ends, and none starves another.

use std::sync::Arc;

use dispatch::{admission::rules, dead_letters::mirror, loops::Loops, people::offer_board, recovery::reconciler};
use servers::Proxy;
use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::behind;
use crate::support::{Api, TestApp, eventually, lasting_transaction, secs};

const LOOPS: [&str; 4] = ["mirror of dead letters", "offer board", "reconciler", "rules"];

/// Each loop waits for an answer when the way to Postgres swallows everything, and no end is told that the connection is dead.
#[tokio::test]
async fn f08_each_loop_turns_again_after_its_connection_died_without_a_word() {
    let t = TestApp::on_real_time(|_| {}).await;
    let proxy = Proxy::start(t.postgres.port()).await.unwrap();
    // Longer than Postgres lets a statement wait for a lock.
    let app = behind(&t, &proxy, Loops::with_limit(secs(7))).await;
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::raw_sql("LOCK TABLE orders, offers, dead_letter_mirror, admission_revision IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(reconciler::run(app.clone(), Arc::new(Notify::new()), stop.clone()));
    running.spawn(mirror::run(app.clone(), stop.clone()));
    running.spawn(rules::keep(app.clone(), stop.clone()));
    let waiting = app.clone();
    running.spawn(async move { drop(offer_board::wait(&waiting, "D1", &[].into(), secs(50)).await) });

    let in_postgres =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'relation'";
    // The loops, and the request that made the board look.
    eventually("all wait for Postgres", secs(30), || async { t.count(in_postgres).await > LOOPS.len() as i64 }).await;
    proxy.forget_connections();
    lock.rollback().await.unwrap();
    let before = LOOPS.map(|name| app.loops.turns(name));
    let listed: Vec<_> = app.loops.idle().into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, LOOPS);
    for (name, before) in LOOPS.into_iter().zip(before) {
        eventually(name, secs(90), || async { app.loops.turns(name) > before }).await;
    }
    stop.cancel();
}

/// One of two connections is in use. The locks of the reconciler and of the mirror are held elsewhere.
#[tokio::test]
async fn f19a_two_connections_are_enough_for_reconciler_and_mirror() {
    let t = TestApp::with(|config| config.database.max_connections = 2).await;
    let _in_use = t.app.db.acquire().await.unwrap();
    let (report, turn) = tokio::join!(reconciler::once_in_full(&t.app), mirror::once(&t.app));
    assert!(report.unwrap().is_some() && turn.unwrap().is_some());
}

#[tokio::test]
async fn s01_readiness_takes_no_connection_of_requests_and_asks_once_for_all() {
    let t = TestApp::with(|config| config.database.max_connections = 2).await;
    let api = Arc::new(Api::start(&t.app).await);
    let _in_use = (t.app.db.acquire().await.unwrap(), t.app.db.acquire().await.unwrap());
    let mut askers = JoinSet::new();
    for _ in 0..200 {
        let api = api.clone();
        askers.spawn(async move { api.get("/readyz", "").await.status });
    }
    while let Some(status) = askers.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert!(t.app.upkeep.size() <= 1, "{} connections for one question", t.app.upkeep.size());
}

/// The process of a transaction stands still, or its connection was swallowed: what it has locked is free again soon.
#[tokio::test]
async fn f08_a_transaction_that_idles_keeps_no_order_for_long() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    let mut stands_still = t.app.db.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM orders FOR UPDATE").execute(&mut *stands_still).await.unwrap();
    eventually("the order can be changed", secs(20), async || t.cancel("ORD-1").await.is_ok()).await;
    assert!(stands_still.commit().await.is_err());
}
