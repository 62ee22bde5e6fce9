//! Every wait on a server ends, and no wait starves another.

use std::sync::Arc;

use serde_json::json;
use servers::TcpProxy;
use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use accounts::api_keys::AccountRole;
use desk::dead_letters::mirror;
use foundation::{db, loops::LoopRegistry};
use maintenance::recovery::reconciler;
use orders::offers::board::wait_for_offers;
use test_support::{Api, TestApp, app_behind, config_behind, eventually, lasting_transaction, secs};

const LOOPS: [&str; 5] = ["keys", "mirror of dead letters", "offer board", "reconciler", "rules"];

// Fault F8
/// Each loop waits for an answer while the network drops all packets. Neither side gets a sign that the connection is
/// dead.
#[tokio::test]
async fn each_loop_survives_a_silent_connection() {
    let t = TestApp::on_real_time(|_| {}).await;
    let proxy = TcpProxy::start(t.postgres.port()).await.unwrap();
    // The limit is longer than the lock timeout of Postgres.
    let app = app_behind(&t, &proxy, LoopRegistry::with_limit(secs(7))).await;
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::raw_sql(
        "LOCK TABLE orders, offers, dead_letter_mirror, admission_revision, key_revision IN ACCESS EXCLUSIVE MODE",
    )
    .execute(&mut *lock)
    .await
    .unwrap();
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(reconciler::run(app.maintenance.clone(), Arc::new(Notify::new()), stop.clone()));
    running.spawn(mirror::run(app.core.clone(), stop.clone()));
    running.spawn(app.areas.clone().keep_fresh(stop.clone()));
    running.spawn(app.accounts.keys.clone().watch_revision(app.core.db.clone(), app.core.loops.clone(), stop.clone()));
    let waiting = app.clone();
    // The app repeats its request when it gets no answer.
    running.spawn(async move {
        loop {
            drop(
                wait_for_offers(
                    &waiting.orders.offers,
                    (&waiting.core.db, &waiting.core.loops),
                    &"D1".into(),
                    &[].into(),
                    secs(50),
                )
                .await,
            );
        }
    });

    let in_postgres =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'relation'";
    // The loops, and the request that makes the offer board query Postgres.
    eventually("all wait for Postgres", || async { t.count(in_postgres).await > LOOPS.len() as i64 }).await;
    proxy.forget_connections();
    lock.rollback().await.unwrap();
    let before = LOOPS.map(|name| app.core.loops.count_turns(name));
    let listed: Vec<_> = app.core.loops.idle_times().into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, LOOPS);
    for (name, before) in LOOPS.into_iter().zip(before) {
        eventually(name, || async { app.core.loops.count_turns(name) > before }).await;
    }
    stop.cancel();
}

// Fault F8
/// A queue longer than the clients' patience would never become shorter, because clients repeat requests whose first
/// attempt still waits.
#[tokio::test]
async fn overloaded_process_refuses_requests_at_once() {
    let t = TestApp::with(|config| config.database.max_connections = 1).await;
    let api = Arc::new(Api::start(&t.app).await);
    let key = t.key(AccountRole::Producer).await;
    t.order("ORD-1").await;
    assert_eq!(api.get("/api/v1/orders/ORD-1", &key).await.status, 200);
    let held = (t.app.core.db.acquire().await.unwrap(), t.app.core.db.acquire().await.unwrap());
    let waiting = tokio::spawn({
        let (api, key) = (api.clone(), key.clone());
        async move { api.get("/api/v1/orders/ORD-1", &key).await.status }
    });
    eventually("the process is overloaded", async || t.app.core.db.is_overloaded()).await;
    let refused = api.send_raw("/api/v1/orders/ORD-1", &key).await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].as_bytes()), (503, &b"1"[..]));
    let refused = api.post("/api/v1/orders/ORD-1/cancel", &key, json!({})).await;
    assert_eq!(refused.error(), (503, "UNAVAILABLE"));
    assert_eq!(api.get("/readyz", "").await.status, 200, "it serves, though not all");
    drop(held);
    assert_eq!(waiting.await.unwrap(), 200);
    assert!(!t.app.core.db.is_overloaded());
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED"]);
    assert_eq!(api.post("/api/v1/orders/ORD-1/cancel", &key, json!({})).await.status, 200);
}

// Fault F19a
/// One of two connections is in use. Other sessions hold the locks of the reconciler and of the mirror.
#[tokio::test]
async fn two_connections_are_enough_for_reconciler_and_mirror() {
    let t = TestApp::with(|config| config.database.max_connections = 2).await;
    let _in_use = t.app.core.db.acquire().await.unwrap();
    let (report, turn) =
        tokio::join!(reconciler::reconcile_in_full(&t.app.maintenance), mirror::mirror_once(&t.app.core));
    assert!(report.unwrap().is_some() && turn.unwrap().is_some());
}

// Fault S1
#[tokio::test]
async fn readiness_shares_one_database_query() {
    let t = TestApp::with(|config| config.database.max_connections = 2).await;
    let api = Arc::new(Api::start(&t.app).await);
    let _in_use = (t.app.core.db.acquire().await.unwrap(), t.app.core.db.acquire().await.unwrap());
    let mut askers = JoinSet::new();
    for _ in 0..200 {
        let api = api.clone();
        askers.spawn(async move { api.get("/readyz", "").await.status });
    }
    while let Some(status) = askers.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert!(t.app.core.upkeep.size() <= 1, "{} connections for one question", t.app.core.upkeep.size());
}

// Fault F8
/// The process of a transaction is frozen, or its connection is dead. The locks of the transaction are released soon.
#[tokio::test]
async fn a_transaction_that_idles_keeps_no_order_for_long() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    let mut stands_still = t.app.core.db.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM orders FOR UPDATE").execute(&mut *stands_still).await.unwrap();
    eventually("the order can be changed", async || t.cancel("ORD-1").await.is_ok()).await;
    assert!(stands_still.commit().await.is_err());
}

// Fault F8
/// The pool has one connection, and the network drops its packets. In each case the pool place becomes free again.
#[tokio::test]
async fn dead_connection_returns_its_pool_place() {
    let t = TestApp::start().await;
    let proxy = TcpProxy::start(t.postgres.port()).await.unwrap();
    let mut config = config_behind(&t, &proxy).database;
    (config.max_connections, config.statement_timeout) = (1, secs(1));
    let pool = db::connect_pool(&config).await.unwrap();
    let answers = async || sqlx::query("SELECT 1").execute(&pool).await.is_ok();

    // The connection is idle.
    proxy.forget_connections();
    eventually("a new connection is made", answers).await;

    // The connection is in use: the statement fails, and another one can run at once.
    let mut held = pool.acquire().await.unwrap();
    proxy.forget_connections();
    let lost = sqlx::query("SELECT 1").execute(&mut held).await.unwrap_err();
    assert_eq!(db::classify_error(&lost), db::DatabaseFailure::OutcomeUnknown, "{lost}");
    drop(held);
    assert!(answers().await);

    // The connection has a transaction with a write, and the transaction is dropped.
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("CREATE TABLE probe (n integer)").execute(&mut *tx).await.unwrap();
    proxy.forget_connections();
    drop(tx);
    eventually("the transaction was given up", answers).await;

    // The connection commits a transaction.
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("SELECT 1").execute(&mut *tx).await.unwrap();
    proxy.forget_connections();
    let lost = tx.commit().await.unwrap_err();
    assert_eq!(db::classify_error(&lost), db::DatabaseFailure::OutcomeUnknown, "{lost}");
    assert!(answers().await);
}

// Fault F1
/// The rollback of an inner transaction rolls back the outer one.
#[tokio::test]
async fn inner_transaction_commits_with_the_outer() {
    let t = TestApp::start().await;
    t.sql("CREATE TABLE probe (n integer)").await;
    let insert = async |db: &mut db::Connection| {
        sqlx::query("INSERT INTO probe VALUES (1)").execute(db).await.unwrap();
    };
    let mut outer = t.app.core.db.begin().await.unwrap();
    insert(&mut outer).await;
    let mut inner = outer.begin().await.unwrap();
    insert(&mut inner).await;
    inner.commit().await.unwrap();
    assert_eq!(t.count("SELECT count(*) FROM probe").await, 0);
    outer.commit().await.unwrap();
    assert_eq!(t.count("SELECT count(*) FROM probe").await, 2);

    let mut outer = t.app.core.db.begin().await.unwrap();
    let mut inner = outer.begin().await.unwrap();
    insert(&mut inner).await;
    drop(inner);
    assert!(outer.commit().await.is_err());
    assert_eq!(t.count("SELECT count(*) FROM probe").await, 2);

    // Further statements in the outer transaction fail.
    let mut outer = t.app.core.db.begin().await.unwrap();
    outer.begin().await.unwrap().rollback().await.unwrap();
    assert!(sqlx::query("INSERT INTO probe VALUES (1)").execute(&mut *outer).await.is_err());
    drop(outer);
    assert_eq!(t.count("SELECT count(*) FROM probe").await, 2);

    // After the inner transaction is dropped, the next statement on the connection runs outside it.
    let mut connection = t.app.core.db.acquire().await.unwrap();
    insert(&mut *connection.begin().await.unwrap()).await;
    insert(&mut connection).await;
    assert_eq!(t.count("SELECT count(*) FROM probe").await, 3);
}
