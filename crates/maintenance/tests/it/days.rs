//! Daily partitions are added and dropped while readers are open, and a single order does not keep them.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, Connection, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use app::App;
use foundation::{
    db::{
        Pool,
        history_days::{self, HistoryDaysReport},
    },
    error::ServiceError,
};
use maintenance::periodic::cleanup;
use orders::query;
use test_support::{TestApp, by, id};

const DAY: Duration = Duration::from_secs(24 * 3600);
const DAYS: &str = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'order_events'::regclass";

async fn keep_days(app: &App) -> Result<Option<HistoryDaysReport>, ServiceError> {
    history_days::keep_days(&app.config.database, app.config.retention.events).await
}

/// Returns connections with a short lock timeout. Otherwise a statement would wait for an open reader to end.
async fn hasty_pool(url: &str) -> Pool {
    let options: PgConnectOptions = url.parse().unwrap();
    let connections = PgPoolOptions::new().connect_with(options.options([("lock_timeout", "100")])).await.unwrap();
    Pool::new(connections, Duration::from_secs(6))
}

// Fault F4
#[tokio::test]
async fn days_come_and_go_beside_an_open_reader() {
    let mut t = TestApp::start().await;
    let pool = hasty_pool(&t.postgres.url()).await;
    t.app = App::new((*t.app.config).clone(), pool, t.app.core.store.clone()).unwrap();
    // By the clock of this test, the partitions from the real time of schema creation are expired.
    let old = t.texts(
        "SELECT relname::text FROM pg_class WHERE relname ~ '^order_events_202[0-8]....$' AND relkind = 'r' ORDER BY 1",
    );
    let old = old.await;
    assert!(old.len() > 10, "{old:?}");
    t.sql(&format!("ALTER TABLE order_events DETACH PARTITION {}; DROP TABLE order_events_20300110", old[0])).await;

    let mut reader = PgConnection::connect(&t.postgres.url()).await.unwrap();
    let mut reading = reader.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM audit_events").execute(&mut *reading).await.unwrap();

    let app = t.app.clone();
    let keep = tokio::spawn(async move { keep_days(&app).await });
    let mut changed = 0;
    while !keep.is_finished() {
        t.order(&format!("ORD-{changed}")).await;
        t.cancel(&format!("ORD-{changed}")).await.unwrap();
        changed += 1;
    }
    let report = keep.await.unwrap().unwrap().expect("no other process is at it");
    assert_eq!(report.added.iter().map(ToString::to_string).collect::<Vec<_>>(), ["2030-01-10"]);
    assert_eq!((report.dropped.len(), report.postponed.len()), (0, 1), "{report:?}");
    // One partition is half detached while the reader continues. Changes and other readers are not affected.
    assert_eq!(t.count("SELECT count(*) FROM pg_inherits WHERE inhdetachpending").await, 1);
    t.order("LATER").await;
    t.cancel("LATER").await.unwrap();
    assert_eq!(t.reasons("LATER").await, ["ORDER_CREATED", "CANCELLED_BY_USER"]);

    reading.rollback().await.unwrap();
    let again = keep_days(&t.app).await.unwrap().unwrap();
    assert_eq!((again.dropped.len(), again.postponed.len()), (old.len() - 1, 0), "{again:?}");
    assert_eq!(t.count(DAYS).await, 15);
    assert_eq!(history_days::count_ahead(&t.app.core.db).await.unwrap(), 14);
    // A partition that a person has detached is never dropped.
    let kept = format!("SELECT (to_regclass('{}') IS NOT NULL)::int::bigint", old[0]);
    assert_eq!(t.count(&kept).await, 1);
    t.assert_sound().await;
}

// Fault F4
#[tokio::test]
async fn one_process_keeps_the_days_at_a_time() {
    let t = TestApp::start().await;
    let (a, b) = tokio::join!(keep_days(&t.app), keep_days(&t.app));
    let both = [a.unwrap(), b.unwrap()];
    let dropped: usize = both.iter().flatten().map(|report| report.dropped.len()).sum();
    assert_eq!(t.count(DAYS).await, 15, "{both:?}");
    assert!(dropped > 10 && both.iter().flatten().all(|report| report.postponed.is_empty()), "{both:?}");
}

// Fault F4
#[tokio::test]
async fn days_ahead_are_counted_in_a_row() {
    let t = TestApp::start().await;
    assert_eq!(history_days::count_ahead(&t.app.core.db).await.unwrap(), 14);
    t.sql("DROP TABLE order_events_20300105").await;
    assert_eq!(history_days::count_ahead(&t.app.core.db).await.unwrap(), 3);
    const { assert!(history_days::FEWEST_DAYS_AHEAD > 3, "a person is told") };
}

// Fault F14
#[tokio::test]
async fn open_order_does_not_hold_history_days() {
    let t = TestApp::start().await;
    t.order_of("WAITING", "RIDE", "ODD").await;
    t.order("DONE").await;
    t.cancel("DONE").await.unwrap();
    t.run_for(DAY * 2).await;
    let before = t.reasons("WAITING").await;
    assert!(t.snapshot("WAITING").await.order.held_for_review && before.len() >= 2, "{before:?}");
    t.sql(
        "UPDATE alerts SET acked_at = dispatchq_now(), acked_by = 'x', next_escalation_at = NULL;
           UPDATE outbox SET state = 'delivered' WHERE state = 'pending'",
    )
    .await;

    t.advance(DAY * 402).await;
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().orders, 1);
    let report = keep_days(&t.app).await.unwrap().unwrap();
    assert!(report.dropped.iter().any(|day| day.to_string() == "2030-01-01"), "{report:?}");
    assert_eq!(t.count("SELECT count(*) FROM order_events").await, 0);
    assert_eq!(t.reasons("WAITING").await, before, "its own history is complete");
    t.assert_sound().await;

    t.act("WAITING", |s| model::decide::actions::cancel_order(s, &by("operator:test"), None)).await.unwrap();
    assert_eq!(t.reasons("WAITING").await.len(), before.len() + 1);
    t.sql(
        "UPDATE alerts SET acked_at = dispatchq_now(), acked_by = 'x', next_escalation_at = NULL WHERE acked_at IS NULL;
           UPDATE outbox SET state = 'delivered' WHERE state = 'pending'",
    )
    .await;
    t.advance(DAY * 366).await;
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().orders, 1);
    assert_eq!(t.count("SELECT count(*) FROM order_events_kept").await, 0, "it goes with its order");
}

// Fault F6
#[tokio::test]
async fn a_timeline_locks_the_days_its_order_lived_on() {
    let t = TestApp::start().await;
    t.sql("SELECT dispatchq_add_history_day('2030-01-16'::date + n) FROM generate_series(0, 199) n").await;
    t.sql("SELECT dispatchq_add_history_day('2030-08-04'::date + n) FROM generate_series(0, 199) n").await;
    assert!(t.count(DAYS).await >= 400);
    t.advance(DAY * 200).await;
    t.order("ORD-1").await;
    t.advance(Duration::from_secs(60)).await;
    t.cancel("ORD-1").await.unwrap();
    t.advance(DAY * 100).await;
    // More executions than Postgres needs before it considers a generic plan.
    for _ in 0..8 {
        let mut tx = t.app.core.db.begin().await.unwrap();
        let events = query::load_timeline_on(&mut tx, &id("ORD-1")).await.unwrap();
        assert_eq!(events.len(), 2);
        let locks: i64 = sqlx::query_scalar(AssertSqlSafe(
            "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
             WHERE l.pid = pg_backend_pid() AND c.relname LIKE 'order\\_events%'",
        ))
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        // Three days, the history, and the table of older days: each is a table with three indexes.
        assert!(locks <= 20, "{locks} locks");
        tx.rollback().await.unwrap();
    }
}
