//! Changes of many orders that share a statement and a commit. Each change succeeds or fails separately.

use std::sync::Arc;

use chrono::TimeDelta;
use servers::TcpProxy;
use sqlx::Connection;
use uuid::Uuid;

use foundation::{db, loops::LoopRegistry};
use model::{
    actor::Actor,
    decide::{Change, actions, change::NewOffers},
    order::{EventReason, OrderStatus},
    ranking::RankedDriver,
};
use orders::{
    change::ChangeError,
    changed::Changed,
    order_store::write::{OrderWrite, WriteVerdict},
};
use test_support::{TestApp, app_behind, by, eventually, id, lasting_transaction, update_order};

/// Id of the lock that a COMMIT waits for. The number is arbitrary.
const LOCK: i64 = 4712;

/// Builds a change from the current state of the order.
async fn change_of(t: &TestApp, order: &str, alter: impl FnOnce(&mut Change)) -> (Uuid, OrderWrite) {
    let before = t.snapshot(order).await;
    let mut change = Change::new(&before, Actor::SYSTEM);
    change.record_event(EventReason::AttemptStarted, Some("a test".to_owned()));
    alter(&mut change);
    let write_id = Uuid::now_v7();
    let item = OrderWrite::whole(write_id, &before, &Arc::new(change), &[], &t.app.config.notifications);
    (write_id, item.expect("one statement writes it"))
}

fn assert_written(result: &Result<WriteVerdict, sqlx::Error>) {
    assert!(matches!(result, Ok(WriteVerdict::Written(_))), "{result:?}");
}

#[tokio::test]
async fn failing_change_leaves_its_batch_intact() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    for n in 0..6 {
        t.order(&format!("ORD-{n}")).await;
        if n == 0 {
            t.run_due().await;
            t.accept_offer("ORD-0").await;
        }
    }
    let (plain_id, plain) = change_of(&t, "ORD-1", |_| {}).await;
    let (_, outdated) = change_of(&t, "ORD-2", |change| change.version += 1).await;
    let (_, unlawful) = change_of(&t, "ORD-3", |change| change.order.attempt_no = -1).await;
    let (busy_id, busy) = change_of(&t, "ORD-4", |change| {
        (change.order.status, change.order.driver_id) = (OrderStatus::DriverAssigned, Some("D1".into()));
        change.order.next_attempt_at = None;
    })
    .await;
    let (_, last) = change_of(&t, "ORD-5", |_| {}).await;
    let orders = &t.app.orders.rows;
    let (plain, outdated, unlawful, busy, last) = tokio::join!(
        orders.write_change(plain),
        orders.write_change(outdated),
        orders.write_change(unlawful),
        orders.write_change(busy),
        orders.write_change(last),
    );
    assert_written(&plain);
    assert_written(&last);
    assert_eq!(outdated.unwrap(), WriteVerdict::Conflict);
    let unlawful = unlawful.unwrap_err();
    assert_eq!(unlawful.as_database_error().unwrap().code().as_deref(), Some("23514"), "{unlawful}");
    let busy = busy.unwrap_err();
    assert_eq!(busy.as_database_error().unwrap().constraint(), Some("orders_one_active_per_driver"), "{busy}");
    let told = "SELECT order_id FROM order_events WHERE detail = 'a test' ORDER BY seq";
    assert_eq!(t.texts(told).await, ["ORD-1", "ORD-5"]);
    // Only the write id identifies a write.
    assert!(orders.find_written(&id("ORD-1"), plain_id).await.unwrap().is_some());
    assert!(orders.find_written(&id("ORD-4"), busy_id).await.unwrap().is_none());
}

/// Makes a change start an attempt that offers the order to this driver.
fn ask_driver(change: &mut Change, driver: &str) {
    let deadline = change.at + TimeDelta::seconds(120);
    change.order.attempt_no += 1;
    (change.order.next_attempt_at, change.order.attempt_deadline) = (None, Some(deadline));
    let ranked =
        RankedDriver { driver_id: driver.into(), distance_m: 100.0, idle_min: 0.0, live_offers: 0, score: 100.0 };
    change.new_offers =
        Some(NewOffers { ranked: vec![ranked], wave: 1, at_once: 1, per_driver: 1, expires_at: deadline });
}

#[tokio::test]
async fn offer_to_busy_driver_leaves_its_batch_intact() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0), ("D3", 300.0), ("D4", 400.0)]).await;
    for n in 1..6 {
        t.order(&format!("ORD-{n}")).await;
    }
    t.act("ORD-4", |s| actions::assign_driver(s, &by("operator:test"), &"D4".into())).await.unwrap();
    // Another session is making D1 an offer.
    let mut other = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT pg_advisory_xact_lock($1, hashtext('D1'))")
        .bind(0x6f66_6672)
        .execute(&mut *other)
        .await
        .unwrap();
    let (_, offered_to) = change_of(&t, "ORD-1", |change| ask_driver(change, "D1")).await;
    let (_, free) = change_of(&t, "ORD-2", |change| ask_driver(change, "D2")).await;
    let (_, busy) = change_of(&t, "ORD-3", |change| ask_driver(change, "D4")).await;
    let orders = &t.app.orders.rows;
    // The order of this change is outdated, so asking the next driver would be useless.
    let (_, outdated) = change_of(&t, "ORD-5", |change| {
        ask_driver(change, "D1");
        change.version += 1;
    })
    .await;
    let (offered_to, free, busy, outdated) = tokio::join!(
        orders.write_change(offered_to),
        orders.write_change(free),
        orders.write_change(busy),
        orders.write_change(outdated)
    );
    let taken = |driver: &str| WriteVerdict::Taken(vec![driver.into()]);
    assert_eq!((offered_to.unwrap(), busy.unwrap()), (taken("D1"), taken("D4")));
    assert_eq!(outdated.unwrap(), WriteVerdict::Conflict);
    assert_written(&free);
    other.rollback().await.unwrap();
    // D2 has no free slot left.
    let (_, late) = change_of(&t, "ORD-1", |change| ask_driver(change, "D2")).await;
    assert_eq!(orders.write_change(late).await.unwrap(), taken("D2"));
    let asked = "SELECT concat_ws(' ', f.order_id, f.driver_id, f.state, f.rank, f.slot, m.kind)
                 FROM offers f JOIN outbox m ON m.order_id = f.order_id AND m.dedupe_key = f.id::text";
    assert_eq!(t.texts(asked).await, ["ORD-2 D2 offered 1 1 OFFER"]);
    assert_eq!(t.count("SELECT count(*) FROM orders WHERE attempt_no = 1").await, 1);
}

#[tokio::test]
async fn locked_order_delays_no_other_order() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    t.order("ORD-3").await;
    let mut other = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT 1 FROM orders WHERE id = 'ORD-2' FOR UPDATE").execute(&mut *other).await.unwrap();
    let cancel = |order: &'static str| {
        let app = t.app.clone();
        tokio::spawn(async move {
            update_order(&app.orders, &id(order), |s| actions::cancel_order(s, &by("producer:test"), None))
                .await
                .unwrap()
        })
    };
    let (first, locked, last) = (cancel("ORD-1"), cancel("ORD-2"), cancel("ORD-3"));
    first.await.unwrap();
    last.await.unwrap();
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- write change%'";
    eventually("the locked one waits for its turn", || async { t.count(waiting).await == 1 }).await;
    // Both changes were committed together.
    let commits = "SELECT count(DISTINCT xmin::text) FROM orders WHERE id IN ('ORD-1', 'ORD-3')";
    assert_eq!(t.count(commits).await, 1);
    other.commit().await.unwrap();
    locked.await.unwrap();
    assert_eq!(t.status("ORD-2").await, OrderStatus::CancelledByUser);
    t.assert_sound().await;
}

/// A change that frees a driver locks the row of its order first, and the driver after it.
#[tokio::test]
async fn waiting_change_locks_no_driver() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    let mut other = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT 1 FROM orders WHERE id = 'ORD-1' FOR UPDATE").execute(&mut *other).await.unwrap();
    let app = t.app.clone();
    let cancel = tokio::spawn(async move {
        update_order(&app.orders, &id("ORD-1"), |s| actions::cancel_by_driver(s, &"D1".into(), None)).await
    });
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- write change%'";
    eventually("the change waits for its order", || async { t.count(waiting).await == 1 }).await;
    // The session holds the order and locks the driver, as a change that frees the driver does.
    let locked = sqlx::query("SELECT 1 FROM drivers WHERE id = 'D1' FOR UPDATE NOWAIT").execute(&mut *other).await;
    assert!(locked.is_ok(), "each would wait for the other: {locked:?}");
    other.commit().await.unwrap();
    assert!(cancel.await.unwrap().unwrap().is_written());
    assert_eq!(t.snapshot("ORD-1").await.order.driver_id, None);
    t.assert_sound().await;
}

/// Postgres rolls back a transaction on a deadlock or a serialization failure.
#[tokio::test]
async fn rolled_back_change_is_retried_at_once() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.sql(
        "CREATE SEQUENCE updates;
         CREATE FUNCTION roll_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             CASE nextval('updates')
                 WHEN 1 THEN RAISE 'deadlock detected' USING ERRCODE = '40P01';
                 WHEN 2 THEN RAISE 'could not serialize access' USING ERRCODE = '40001';
                 ELSE RETURN NEW;
             END CASE;
         END $$;
         CREATE TRIGGER roll_back BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION roll_back()",
    )
    .await;
    assert!(t.cancel("ORD-1").await.unwrap().is_written());
    assert_eq!(t.count("SELECT last_value FROM updates").await, 3);
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "CANCELLED_BY_USER"]);
    t.assert_sound().await;
}

/// Sessions whose commit waits for [`LOCK`].
const COMMITTING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'";

/// Makes every commit of a change to an order wait until the returned connection releases its lock.
async fn hold_commits(t: &TestApp) -> sqlx::PgConnection {
    t.sql(&format!(
        "CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_advisory_xact_lock({LOCK}); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER slow_commit AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION wait_for_lock()"
    ))
    .await;
    let mut holder = sqlx::PgConnection::connect(&t.postgres.url()).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut holder).await.unwrap();
    holder
}

async fn release_commits(holder: &mut sqlx::PgConnection) {
    sqlx::query("SELECT pg_advisory_unlock($1)").bind(LOCK).execute(holder).await.unwrap();
}

/// Cancels two orders in one commit, which waits for the returned lock.
async fn cancelled_slowly(
    t: &TestApp,
    proxy: &TcpProxy,
) -> (sqlx::PgConnection, Vec<tokio::task::JoinHandle<Result<Changed, sqlx::Error>>>) {
    let holder = hold_commits(t).await;
    let app = app_behind(t, proxy, LoopRegistry::default()).await;
    let cancel = |order: &'static str| {
        let app = app.clone();
        tokio::spawn(async move {
            let order = id(order);
            let cancelled = update_order(&app.orders, &order, |s| actions::cancel_order(s, &by("producer:test"), None));
            cancelled.await.map_err(|error| match error {
                ChangeError::Database(error) => error,
                other => panic!("{other}"),
            })
        })
    };
    let cancels = vec![cancel("ORD-1"), cancel("ORD-2")];
    eventually("the batch is being committed", || async { t.count(COMMITTING).await == 1 }).await;
    (holder, cancels)
}

#[tokio::test]
async fn lost_batch_commit_is_found_by_write_ids() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    let proxy = TcpProxy::start(t.postgres.port()).await.unwrap();
    let (mut holder, cancels) = cancelled_slowly(&t, &proxy).await;
    proxy.cut_connections();
    release_commits(&mut holder).await;
    for cancel in cancels {
        let changed = cancel.await.unwrap().unwrap();
        assert!(changed.is_written(), "it was decided twice: {changed:?}");
    }
    for order in ["ORD-1", "ORD-2"] {
        assert_eq!(t.reasons(order).await, ["ORDER_CREATED", "CANCELLED_BY_USER"]);
    }
}

#[tokio::test]
async fn killed_batch_changes_nothing_and_can_repeat() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    let proxy = TcpProxy::start(t.postgres.port()).await.unwrap();
    let (holder, cancels) = cancelled_slowly(&t, &proxy).await;
    t.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'advisory'").await;
    for cancel in cancels {
        let error = cancel.await.unwrap().unwrap_err();
        assert!(db::is_transient(&error), "{error}");
    }
    assert_eq!(t.count("SELECT count(*) FROM orders WHERE version > 0").await, 0);
    holder.close().await.unwrap();
    for order in ["ORD-1", "ORD-2"] {
        t.cancel(order).await.unwrap();
        assert_eq!(t.reasons(order).await, ["ORDER_CREATED", "CANCELLED_BY_USER"]);
    }
    t.assert_sound().await;
}

/// The batch is halved because of the invalid change. The connection of the first valid half is killed during its
/// commit.
#[tokio::test]
async fn killed_connection_fails_one_half_of_batch() {
    let t = TestApp::start().await;
    for n in 1..=4 {
        t.order(&format!("ORD-{n}")).await;
    }
    let (lost_id, lost) = change_of(&t, "ORD-1", |_| {}).await;
    let (_, unlawful) = change_of(&t, "ORD-2", |change| change.order.attempt_no = -1).await;
    let (_, third) = change_of(&t, "ORD-3", |_| {}).await;
    let (_, fourth) = change_of(&t, "ORD-4", |_| {}).await;
    let again = lost.clone();
    let mut holder = hold_commits(&t).await;
    let orders = t.app.orders.rows.clone();
    let batch = tokio::spawn(async move {
        tokio::join!(
            orders.write_change(lost),
            orders.write_change(unlawful),
            orders.write_change(third),
            orders.write_change(fourth),
        )
    });
    eventually("the first is being committed", || async { t.count(COMMITTING).await == 1 }).await;
    let first = t.count("SELECT pid::bigint FROM pg_stat_activity WHERE wait_event = 'advisory'").await;
    t.sql(&format!("SELECT pg_terminate_backend({first})")).await;
    let is_there = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {first}");
    eventually("its connection is gone", || async { t.count(&is_there).await == 0 }).await;
    eventually("the others are being committed", || async { t.count(COMMITTING).await == 1 }).await;
    release_commits(&mut holder).await;

    let (lost, unlawful, third, fourth) = batch.await.unwrap();
    let lost = lost.unwrap_err();
    assert!(db::is_transient(&lost), "{lost}");
    let unlawful = unlawful.unwrap_err();
    assert_eq!(unlawful.as_database_error().unwrap().code().as_deref(), Some("23514"), "{unlawful}");
    assert_written(&third);
    assert_written(&fourth);
    // The lost change was not written, and its caller's next try writes it.
    assert!(t.app.orders.rows.find_written(&id("ORD-1"), lost_id).await.unwrap().is_none());
    assert_written(&t.app.orders.rows.write_change(again).await);
    let told = "SELECT order_id FROM order_events WHERE detail = 'a test' ORDER BY seq";
    assert_eq!(t.texts(told).await, ["ORD-3", "ORD-4", "ORD-1"]);
}
