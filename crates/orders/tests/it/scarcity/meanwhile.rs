//! Changes while a free driver is being asked. Neither the driver nor an order is forgotten.

use tokio::task::JoinSet;

use super::{PICKUP, asked, match_drivers, move_driver, wait_for_drivers};
use model::{fleet::decide, ids::DriverId, ranking::DriverRanking};
use orders::{
    change::decided,
    fleet::{driver_index, drivers, waiting_orders},
    seen::{Basis, SeenOrder},
};
use test_support::{TestApp, eventually, id, lasting_transaction, retry_as_shipped, secs};

/// Makes Postgres refuse offers of these orders.
async fn refuse_offers(t: &TestApp, orders: &str, sqlstate: &str) {
    t.sql(&format!(
        "CREATE FUNCTION refuse_offer() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{sqlstate}'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON offers FOR EACH ROW WHEN (NEW.order_id LIKE '{orders}')
             EXECUTE FUNCTION refuse_offer()"
    ))
    .await;
}

#[tokio::test]
async fn refused_write_keeps_the_freed_drivers() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    move_driver(&t, "D1", PICKUP).await;
    refuse_offers(&t, "%", "53100").await;
    assert!(waiting_orders::match_freed_drivers(&t.app.orders).await.is_err(), "so the next look waits for a second");
    t.sql("DROP TRIGGER refuse ON offers").await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn unwritable_order_waits_for_its_own_search() {
    let t = TestApp::with(retry_as_shipped).await;
    wait_for_drivers(&t, &["OLD"]).await;
    t.drivers(&[("D1", 100.0)]).await;
    move_driver(&t, "D1", PICKUP).await;
    refuse_offers(&t, "OLD", "23514").await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "OLD").await, Vec::<DriverId>::new());
    assert_eq!(match_drivers(&t).await, 0, "the driver is not looked at four times a second");
    t.sql("DROP TRIGGER refuse ON offers").await;
    t.run_for(secs(15)).await;
    assert_eq!(asked(&t, "OLD").await, ["D1"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn unwritable_orders_do_not_hold_up_drivers() {
    let t = TestApp::with(retry_as_shipped).await;
    wait_for_drivers(&t, &["BAD-1", "BAD-2", "YOUNG"]).await;
    t.drivers(&[("D1", 100.0)]).await;
    move_driver(&t, "D1", PICKUP).await;
    refuse_offers(&t, "BAD-%", "23514").await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "YOUNG").await, ["D1"], "within the same look");
    t.sql("DROP TRIGGER refuse ON offers").await;
    t.assert_sound().await;
}

/// Counts changes of orders that wait for a row lock of another session.
const WRITES_WAIT: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- write change%'";

#[tokio::test]
async fn losing_worker_finds_its_driver_another_order() {
    let t = TestApp::with(retry_as_shipped).await;
    wait_for_drivers(&t, &["OLD", "YOUNG"]).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT 1 FROM orders WHERE id = 'OLD' FOR UPDATE").execute(&mut *lock).await.unwrap();
    let mut workers = JoinSet::new();
    for (n, driver) in ["D1", "D2"].into_iter().enumerate() {
        move_driver(&t, driver, PICKUP).await;
        let app = t.app.clone();
        workers.spawn(async move { waiting_orders::match_freed_drivers(&app.orders).await.unwrap() });
        eventually("the worker has dealt its driver OLD", || async { t.count(WRITES_WAIT).await == n as i64 + 1 })
            .await;
    }
    lock.rollback().await.unwrap();
    assert_eq!(workers.join_all().await, [1, 1]);
    assert_eq!((asked(&t, "OLD").await.len(), asked(&t, "YOUNG").await.len()), (1, 0));

    assert_eq!(match_drivers(&t).await, 1, "the loser's driver was not dropped");
    let mut both = [asked(&t, "OLD").await, asked(&t, "YOUNG").await].concat();
    both.sort();
    assert_eq!(both, ["D1", "D2"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn freed_driver_supersedes_the_pending_search() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    drivers::set_available(&t.app.core.db, &"D2".into(), false).await.unwrap().unwrap();
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    t.advance(secs(120)).await;
    // The next search has found no free driver but has not stored the result when D2 becomes available.
    let read = t.snapshot("ORD-1").await;
    let found_none =
        decide::time_out_attempt(&read, DriverRanking::default(), &t.app.areas.policy_for_order(&read.order));
    let place = drivers::set_available(&t.app.core.db, &"D2".into(), true).await.unwrap().unwrap();
    driver_index::upsert_driver(&t.app.core, &place).await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "ORD-1").await, ["D2"]);
    let basis = Basis::Seen(Box::new(SeenOrder::new(read)));
    let written = t.app.orders.change(&id("ORD-1"), basis, decided(found_none)).await.unwrap();
    assert!(!written.is_written(), "{written:?}");
    t.run_due().await;
    assert_eq!(asked(&t, "ORD-1").await, ["D2"], "the timeout of the first attempt is superseded");
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "ATTEMPT_STARTED", "ATTEMPT_TIMEOUT", "ATTEMPT_STARTED"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn paused_timeouts_keep_attempt_despite_freed_driver() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.app.core.store.pause_queue(jobs::queues::DISPATCH_TIMEOUT).await.unwrap();
    t.advance(secs(120)).await;
    move_driver(&t, "D2", PICKUP).await;
    assert_eq!(match_drivers(&t).await, 0);
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);
    t.app.core.store.resume_queue(jobs::queues::DISPATCH_TIMEOUT).await.unwrap();
    assert_eq!(match_drivers(&t).await, 1, "the driver was not forgotten");
    assert_eq!(asked(&t, "ORD-1").await, ["D2"]);
    t.assert_sound().await;
}
