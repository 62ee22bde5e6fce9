//! Commits whose answer is lost or that fail.

use serde_json::json;
use servers::TcpProxy;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use app::App;
use foundation::{db, loops::LoopRegistry};
use model::{decide::actions, order::OrderStatus};
use orders::{
    change::ChangeError,
    create::{self, CreateError, NewOrder},
};
use test_support::{Counting, PATIENCE, TestApp, app_behind, by, config_behind, eventually, id, update_order};

/// Id of the lock that a COMMIT waits for. The number is arbitrary.
const LOCK: i64 = 4711;

/// Makes the COMMIT of an INSERT or UPDATE of an order wait for [`LOCK`], which the returned session holds.
async fn commits_wait(t: &TestApp, of: &str) -> PgConnection {
    t.sql(&format!(
        "CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_advisory_xact_lock({LOCK}); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER slow_commit AFTER {of} ON orders DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION wait_for_lock()"
    ))
    .await;
    let mut holder = PgConnection::connect(&t.postgres.url()).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut holder).await.unwrap();
    holder
}

/// Waits until a COMMIT waits for [`LOCK`].
async fn until_committing(t: &TestApp) {
    let committing = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'";
    eventually("it is being committed", || async { t.count(committing).await == 1 }).await;
}

async fn let_commit(mut holder: PgConnection) {
    sqlx::query("SELECT pg_advisory_unlock($1)").bind(LOCK).execute(&mut holder).await.unwrap();
}

// Fault F2
#[tokio::test]
async fn lost_commit_is_found_by_write_id() {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    let proxy = TcpProxy::start(t.postgres.port()).await.unwrap();
    let app = app_behind(&t, &proxy, LoopRegistry::default()).await;
    let holder = commits_wait(&t, "UPDATE").await;
    let cancel = tokio::spawn(async move {
        update_order(&app.orders, &id("ORD-1"), |s| actions::cancel_order(s, &by("producer:test"), None)).await
    });
    until_committing(&t).await;
    proxy.cut_connections();
    let_commit(holder).await;

    // The answer was lost, but the change was committed exactly once.
    let changed = cancel.await.unwrap().unwrap();
    assert!(changed.is_written(), "it was decided twice: {changed:?}");
    assert_eq!(changed.after.order.status, OrderStatus::CancelledByUser);
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "CANCELLED_BY_USER"]);
    assert_eq!(t.messages_of("ORD-1", "MANUAL_REFUND_REQUIRED").await, 1);
}

/// The answer is lost on the way, and the order is cancelled before its creator looks for it.
#[tokio::test]
async fn creation_with_lost_commit_is_recognized_after_change() {
    let t = TestApp::start().await;
    let proxy = TcpProxy::start(t.postgres.port()).await.unwrap();
    let mut config = config_behind(&t, &proxy);
    // The wait for the answer ends when the test cuts the connection.
    config.database.statement_timeout = PATIENCE;
    let pool = db::connect_pool(&config.database).await.unwrap();
    let app = App::new(config, pool, t.app.core.store.clone()).unwrap();
    let holder = commits_wait(&t, "INSERT").await;
    let new = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } });
    let new: NewOrder = serde_json::from_value(new).unwrap();
    let of_task = new.clone();
    let creation =
        tokio::spawn(
            async move { create::create_order(&app.orders, id("ORD-1"), &of_task, &by("producer:test")).await },
        );
    until_committing(&t).await;
    proxy.forget_connections();
    let_commit(holder).await;
    eventually("the order is there", || async { t.count("SELECT count(*) FROM orders").await == 1 }).await;
    t.cancel("ORD-1").await.unwrap();
    proxy.cut_connections();

    let created = creation.await.unwrap().unwrap();
    assert_eq!(created.order.status, OrderStatus::CancelledByUser, "the order as it is now");
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "CANCELLED_BY_USER"]);
    // The row does not match the id of another creation.
    assert!(t.app.orders.rows.find_created(&id("ORD-1"), Uuid::now_v7()).await.unwrap().is_none());
    let again = create::create_order(&t.app.orders, id("ORD-1"), &new, &by("producer:test")).await;
    assert!(matches!(again, Err(CreateError::Exists(_))), "{again:?}");
}

// Fault F19i
/// Four updates lose against another process. The fifth is written under the row lock, and its COMMIT fails.
#[tokio::test]
async fn locked_change_is_counted_after_commit() {
    let counting = Counting::start();
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.sql("UPDATE orders SET area_id = 'A'").await;
    t.redis::<()>(&["ZADD", "waiting:order:A:RIDE", "99999999999999", "ORD-1"]).await;
    t.sql(
        "CREATE SEQUENCE updates;
         CREATE FUNCTION overtaken() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN IF nextval('updates') <= 4 THEN RETURN NULL; END IF; RETURN NEW; END $$;
         CREATE TRIGGER overtaken BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION overtaken();
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not committed'; END $$;
         CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .await;
    let cancelled = t.cancel("ORD-1").await;
    assert!(matches!(cancelled, Err(ChangeError::Database(_))), "{cancelled:?}");
    assert_eq!(t.count("SELECT last_value FROM updates").await, 5);
    assert_eq!(t.status("ORD-1").await, OrderStatus::Dispatching);
    let waits: Option<String> = t.redis(&["ZSCORE", "waiting:order:A:RIDE", "ORD-1"]).await;
    assert!(waits.is_some(), "it has left the waiting set, and waits");
    assert_eq!(counting.of("order_status_count"), Vec::<String>::new(), "counted, and not committed");

    t.sql("DROP TRIGGER refuse ON orders").await;
    t.cancel("ORD-1").await.unwrap();
    let waits: Option<String> = t.redis(&["ZSCORE", "waiting:order:A:RIDE", "ORD-1"]).await;
    assert_eq!(waits, None);
    assert!(!counting.of("order_status_count").is_empty());
}
