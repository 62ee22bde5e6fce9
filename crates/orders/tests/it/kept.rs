//! Decisions on orders that this process keeps.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use model::{clock::Clock, decide::actions, order::OrderStatus};
use queue::Outcome;
use test_support::{TestApp, by, id, secs, update_order};
use workers::timeout::perform_timeout;

/// Clock of a machine that is ahead of Postgres.
#[derive(Debug)]
struct FastClock(Arc<dyn Clock>, TimeDelta);

impl Clock for FastClock {
    fn now(&self) -> DateTime<Utc> {
        self.0.now() + self.1
    }
}

#[tokio::test]
async fn order_changed_by_another_process_is_read_again() {
    let t = TestApp::start().await;
    let other = t.reconfigured(|_| {});
    t.order("ORD-1").await;
    let cancel = |app: app::App| async move {
        update_order(&app.orders, &id("ORD-1"), |s| actions::cancel_order(s, &by("producer:shop"), None)).await.unwrap()
    };
    assert!(cancel(other).await.is_written());
    // The kept order still searches for a driver, so the first decision is a change.
    assert!(!cancel(t.app.clone()).await.is_written());
    assert_eq!(t.snapshot("ORD-1").await.order.version, 1);
    t.assert_sound().await;
}

/// After a failover to a server without the last write, another write has its version number.
#[tokio::test]
async fn write_with_the_same_version_is_not_continued() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.run_due().await;
    let other = "UPDATE orders SET round = 7, write_id = gen_random_uuid() WHERE id = 'ORD-1'";
    sqlx::query(other).execute(&t.app.core.db).await.unwrap();
    t.cancel("ORD-1").await.unwrap();
    let order = t.snapshot("ORD-1").await.order;
    assert_eq!((order.round, order.status), (7, OrderStatus::CancelledByUser), "the kept order has another round");
    t.assert_sound().await;
}

#[tokio::test]
async fn fast_clock_ends_no_attempt_early() {
    let t = TestApp::with(|config| config.dispatch.attempt = secs(30)).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    // By this machine's clock, the attempt ended ten seconds ago.
    let clock = t.app.core.clock.clone();
    let fast = t.app.clone().with_core(|parts| parts.clock = Arc::new(FastClock(clock, TimeDelta::seconds(40))));
    let job = jobs::ExpireAttempt { order: id("ORD-1"), attempt: 1 };
    let outcome = perform_timeout(fast.partners.clone(), job).await;
    assert!(matches!(outcome, Outcome::Snooze { delay } if delay <= secs(30)), "{outcome:?}");
    assert_eq!(t.snapshot("ORD-1").await.order.status, OrderStatus::Dispatching);
    assert!(t.snapshot("ORD-1").await.live_offer().is_some());
    t.assert_sound().await;
}
