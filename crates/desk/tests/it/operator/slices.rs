//! Long work in slices: each request does a part of it, and repeated requests reach the same end as one.

use std::time::Duration;

use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::{
    db::{self, lock},
    work_slice::WorkSlice,
};
use maintenance::{
    periodic::cleanup::{self, CleanupMode, CleanupPlace},
    recovery::reconciler::{self, FullRun},
};
use test_support::{TestApp, by, secs};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// More than one batch of a walk.
const ORDERS: i64 = 120;

/// A slice that has time for one step.
fn one_step() -> WorkSlice {
    WorkSlice::lasting(Duration::ZERO)
}

/// Runs a cleanup slice by slice. Returns the removed orders and records, and the number of slices.
async fn clean_up_in_slices(t: &TestApp, mode: CleanupMode) -> (u64, u64, u32) {
    let (mut orders, mut records, mut slices) = (0, 0, 0);
    let mut place = CleanupPlace::default();
    loop {
        let (report, next) = cleanup::run_slice(&t.app.maintenance, mode, place, one_step()).await.unwrap();
        assert_eq!(report.failed, Vec::<String>::new());
        (orders, records, slices) = (orders + report.orders, records + report.records, slices + 1);
        let Some(next) = next else { return (orders, records, slices) };
        // As the API sends it to its caller and back.
        place = next.to_string().parse().unwrap();
        assert_eq!(place, next);
    }
}

#[tokio::test]
async fn cleanup_in_slices_removes_what_one_run_counts() {
    let t = TestApp::start().await;
    for n in 0..ORDERS {
        let order = format!("ORD-{n}");
        t.order(&order).await;
        t.cancel(&order).await.unwrap();
    }
    t.sql("INSERT INTO admission_audit (actor, what) SELECT 'operator:test', 'flag' FROM generate_series(1, 600)")
        .await;
    t.advance(DAY * 450).await;
    let would = cleanup::run_all(&t.app.maintenance, CleanupMode::DryRun).await.unwrap();
    assert!(would.orders == ORDERS.unsigned_abs() && would.records >= 600, "{would:?}");
    let (orders, records, _) = clean_up_in_slices(&t, CleanupMode::DryRun).await;
    assert_eq!((orders, records), (would.orders, would.records));
    let (orders, _, slices) = clean_up_in_slices(&t, CleanupMode::Remove).await;
    assert!(orders == would.orders && slices > 10, "{orders} orders in {slices} slices");
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 0);
    assert_eq!(t.count("SELECT count(*) FROM admission_audit").await, 0);
    for wrong in ["", "x", "1:x:y", "-1"] {
        assert!(wrong.parse::<CleanupPlace>().is_err(), "{wrong}");
    }
}

async fn record_of(t: &TestApp, subject: ErasureSubject, id: &str) -> ErasureRecord {
    let now = db::database_now(&t.app.core.db).await.unwrap();
    ErasureRecord::new(subject, id, "a request", &by("cli:eve"), now)
}

/// Erases slice by slice. Returns the erased orders and the number of slices.
async fn erase_in_slices(t: &TestApp, erasure: &ErasureRecord) -> (i64, u32) {
    let (mut repeated, mut slices) = (None, 0);
    loop {
        slices += 1;
        match privacy::erase_slice(&t.app.core, erasure, repeated.take(), one_step()).await.unwrap() {
            ErasureOutcome::Done { orders } => return (orders, slices),
            ErasureOutcome::Unfinished { progress, .. } => repeated = Some(progress),
            ErasureOutcome::InUse(orders) => panic!("in use: {orders:?}"),
        }
    }
}

#[tokio::test]
async fn erasure_in_slices_counts_every_order_once() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    for order in ["ORD-1", "ORD-2", "ORD-3"] {
        t.order(order).await;
        t.run_due().await;
        t.cancel(order).await.unwrap();
        t.run_due().await;
    }
    t.sql("UPDATE orders SET customer_id = 'C-1'").await;
    let customer = record_of(&t, ErasureSubject::Customer, "C-1").await;
    let found = privacy::find_erasure(&t.app.core, ErasureSubject::Customer, "C-1", customer.erased_at).await.unwrap();
    assert_eq!(found, None);
    assert_eq!(erase_in_slices(&t, &customer).await, (3, 3));
    assert_eq!(t.count("SELECT count(*) FROM orders WHERE customer_id = 'C-1'").await, 0);
    let found = privacy::find_erasure(&t.app.core, ErasureSubject::Customer, "C-1", customer.erased_at).await.unwrap();
    assert_eq!(found.unwrap().orders, Some(3));

    let driver = record_of(&t, ErasureSubject::Driver, "D1").await;
    let (orders, slices) = erase_in_slices(&t, &driver).await;
    assert!(orders == 3 && slices > 1, "{orders} orders in {slices} slices");
    assert_eq!(t.count("SELECT count(*) FROM drivers").await, 0);
    // A repetition of the finished erasure ends, although its row keeps no position.
    let (orders, slices) = erase_in_slices(&t, &driver).await;
    assert!(orders == 0 && slices > 1, "{orders} orders in {slices} slices");
    t.assert_sound().await;
}

#[tokio::test]
async fn full_reconciliation_continues_behind_its_request() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.redis::<()>(&["FLUSHALL"]).await;
    t.advance(secs(1)).await;
    let maintenance = &t.app.maintenance;
    let FullRun::UnderWay { since } = reconciler::start_full_run(maintenance, Duration::ZERO).await.unwrap() else {
        panic!("it has no time");
    };
    t.app.core.behind_answers.close();
    t.app.core.behind_answers.wait().await;
    let FullRun::Done(report) = reconciler::await_full_run(maintenance, since, secs(30)).await.unwrap() else {
        panic!("it has ended");
    };
    assert!(report.rebuild && report.inserted > 0, "{report:?}");
    assert_eq!(t.timers().await.len(), 2);
    t.advance(secs(1)).await;
    let later = db::database_now(&t.app.core.db).await.unwrap();
    // Another process holds the lock. A stored report is returned all the same; a run without a report is under way.
    let meanwhile = lock::run_under_lock(&t.app.core.upkeep, reconciler::LOCK, async {
        let ended = reconciler::await_full_run(maintenance, since, Duration::ZERO).await?;
        let waits = reconciler::await_full_run(maintenance, later, Duration::ZERO).await?;
        Ok((ended, waits, reconciler::start_full_run(maintenance, secs(30)).await?))
    });
    let answers = (FullRun::Done(report), FullRun::UnderWay { since: later }, FullRun::Refused);
    assert_eq!(meanwhile.await.unwrap(), Some(answers));
}
