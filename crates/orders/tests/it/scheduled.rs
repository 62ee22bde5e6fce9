//! Orders with a pickup time. The pickup is in two hours: dispatch starts after 100 minutes, the warning is due after
//! 110 minutes, and the lifetime ends after 130 minutes.

use accounts::api_keys::AccountRole;
use areas::admission::waiting::{self, SuspectMembers};
use chrono::{DateTime, TimeDelta, Utc};
use model::{
    decide::{OrderRefusal, actions, review},
    messages::SCHEDULED_WITHOUT_DRIVER,
    order::{OrderStatus, Snapshot},
};
use orders::{
    change::ChangeError,
    changed::Changed,
    create::CreateError,
    reschedule::{MoveError, PickupMove},
};
use test_support::{TestApp, admission, by, ids, secs};

const MINUTE: u64 = 60;

fn minutes(minutes: u64) -> std::time::Duration {
    secs(minutes * MINUTE)
}

fn now(t: &TestApp) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(t.now_ms().cast_signed()).unwrap()
}

fn in_minutes(t: &TestApp, minutes: i64) -> DateTime<Utc> {
    now(t) + TimeDelta::minutes(minutes)
}

/// Creates an order with a pickup in two hours.
async fn scheduled(t: &TestApp, order: &str) -> Snapshot {
    let s = t.order_at(order, in_minutes(t, 120)).await;
    assert_eq!(s.order.status, OrderStatus::Scheduled);
    s
}

/// Moves the pickup to this many minutes from now.
async fn move_to(t: &TestApp, order: &str, to: i64) -> Result<Changed, ChangeError> {
    let pickup_at = in_minutes(t, to).to_rfc3339().parse().unwrap();
    let wanted = PickupMove::new(&t.app.orders, &t.snapshot(order).await.order, pickup_at).await.unwrap();
    t.act(order, |s| wanted.decide(s, &by("producer:test"))).await
}

/// Returns the timers of the order with their minutes from now.
async fn timers(t: &TestApp) -> Vec<(String, u64)> {
    let now_ms = t.now_ms();
    t.timers().await.into_iter().map(|(id, at_ms)| (id, at_ms.saturating_sub(now_ms) / 60_000)).collect()
}

fn due(minutes: [(&str, u64); 3]) -> Vec<(String, u64)> {
    minutes.into_iter().map(|(id, minutes)| (id.to_owned(), minutes)).collect()
}

#[tokio::test]
async fn scheduled_order_dispatches_at_its_start() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let created = scheduled(&t, "ORD-1").await;
    assert_eq!(created.order.starts_at, Some(in_minutes(&t, 100)));
    assert_eq!(timers(&t).await, due([("dispatch:ORD-1:1", 100), ("lifetime:ORD-1", 130), ("warn:ORD-1", 110)]));

    assert_eq!(ids(&t.run_for(minutes(100) - secs(1)).await), Vec::<&str>::new(), "nothing is early");
    assert_eq!(t.status("ORD-1").await, OrderStatus::Scheduled);
    t.run_for(secs(1)).await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "DISPATCH_STARTED", "ATTEMPT_STARTED"]);
    t.accept_offer("ORD-1").await;
    t.run_for(minutes(60)).await;
    assert_eq!(t.messages_of("ORD-1", SCHEDULED_WITHOUT_DRIVER).await, 0);
    t.carry_out("ORD-1", "D1").await;
    assert_eq!(t.timers().await.len(), 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn pickup_within_the_lead_starts_at_once() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let s = t.order_at("ORD-1", in_minutes(&t, 20)).await;
    assert_eq!((s.order.status, s.order.starts_at), (OrderStatus::Dispatching, None));
    assert_eq!((s.order.pickup_at, s.order.warn_at), (Some(in_minutes(&t, 20)), Some(in_minutes(&t, 10))));
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    t.assert_sound().await;
}

#[tokio::test]
async fn lead_of_the_service_type_applies_to_new_orders() {
    let t = TestApp::with(|config| {
        let own = config.service_types.get_mut("RENT").unwrap();
        own.lead = Some(minutes(60));
    })
    .await;
    let pickup_at = in_minutes(&t, 120).to_rfc3339().parse().unwrap();
    let rent = t
        .create("RENT-1", |new| {
            new.service_type = "RENT".into();
            new.pickup_at = Some(pickup_at);
        })
        .await
        .unwrap();
    assert_eq!(rent.order.starts_at, Some(in_minutes(&t, 60)));
    assert_eq!(scheduled(&t, "RIDE-1").await.order.starts_at, Some(in_minutes(&t, 100)));
}

#[tokio::test]
async fn unusable_pickup_times_are_refused() {
    let t = TestApp::start().await;
    for (minutes, words) in [(-1, "in the past"), (31 * 24 * 60, "more than 30 days ahead")] {
        let pickup_at = in_minutes(&t, minutes).to_rfc3339().parse().unwrap();
        let refused = t.create("ORD-1", |new| new.pickup_at = Some(pickup_at)).await.unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
        assert!(matches!(&refused, CreateError::Invalid(error) if error.field == "pickup_at"), "{refused:?}");
    }
    let mut ahead = in_minutes(&t, 30 * 24 * 60);
    assert_eq!(t.order_at("ORD-1", ahead).await.order.status, OrderStatus::Scheduled);
    ahead += TimeDelta::minutes(1);
    let order = t.snapshot("ORD-1").await.order;
    let late = PickupMove::new(&t.app.orders, &order, ahead.to_rfc3339().parse().unwrap()).await;
    assert!(matches!(late, Err(MoveError::Invalid(_))));
    t.assert_sound().await;
}

#[tokio::test]
async fn moved_order_starts_at_its_new_time() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    scheduled(&t, "ORD-1").await;
    move_to(&t, "ORD-1", 300).await.unwrap();
    // A queue keeps the earlier time of a job. Each job fires once too early, changes nothing, and waits for its new time.
    assert_eq!(timers(&t).await, due([("dispatch:ORD-1:1", 100), ("lifetime:ORD-1", 130), ("warn:ORD-1", 110)]));
    t.run_for(minutes(130)).await;
    assert_eq!(timers(&t).await, due([("dispatch:ORD-1:1", 150), ("lifetime:ORD-1", 180), ("warn:ORD-1", 160)]));
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "PICKUP_MOVED"]);

    move_to(&t, "ORD-1", 15).await.unwrap();
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D1", "within the lead, dispatch starts at once");
    assert_eq!(
        t.reasons("ORD-1").await,
        ["ORDER_CREATED", "PICKUP_MOVED", "PICKUP_MOVED", "DISPATCH_STARTED", "ATTEMPT_STARTED"]
    );
    let late = move_to(&t, "ORD-1", 300).await.unwrap_err();
    assert!(matches!(late, ChangeError::Refused(OrderRefusal::WrongState { .. })), "{late:?}");
    t.assert_sound().await;
}

#[tokio::test]
async fn cancelled_order_leaves_no_timer() {
    let t = TestApp::start().await;
    scheduled(&t, "ORD-1").await;
    t.cancel("ORD-1").await.unwrap();
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledByUser);
    assert_eq!(t.timers().await.len(), 0);
    t.run_for(minutes(180)).await;
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "CANCELLED_BY_USER"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn dispatchers_are_warned_once_without_a_driver() {
    let t = TestApp::start().await;
    t.user("anna", AccountRole::Dispatcher, "log").await;
    scheduled(&t, "ORD-1").await;
    t.run_for(minutes(110) - secs(1)).await;
    assert_eq!(t.messages_of("ORD-1", SCHEDULED_WITHOUT_DRIVER).await, 0);
    t.run_for(secs(1)).await;
    assert_eq!(t.messages_of("ORD-1", SCHEDULED_WITHOUT_DRIVER).await, 1);
    assert_eq!(t.count("SELECT count(*) FROM alerts WHERE acked_at IS NULL").await, 1);
    t.drivers(&[("D1", 100.0)]).await;
    t.run_for(minutes(6)).await;
    t.accept_offer("ORD-1").await;
    assert_eq!(t.count("SELECT count(*) FROM alerts WHERE acked_at IS NULL").await, 0, "the driver settles the alert");
    assert_eq!(t.messages_of("ORD-1", SCHEDULED_WITHOUT_DRIVER).await, 1);
    t.assert_sound().await;
}

#[tokio::test]
async fn lifetime_counts_from_the_start() {
    let t = TestApp::start().await;
    scheduled(&t, "ORD-1").await;
    t.run_for(minutes(130) - secs(1)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Dispatching);
    t.run_for(secs(1)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystem);
    t.assert_sound().await;
}

#[tokio::test]
async fn held_order_resumes_its_schedule() {
    let t = TestApp::start().await;
    scheduled(&t, "ORD-1").await;
    t.act("ORD-1", |s| review::hold_order(s, &by("dispatcher:anna"), "wait")).await.unwrap();
    t.run_for(minutes(30)).await;
    t.act("ORD-1", |s| review::resume_order(s, &by("dispatcher:anna"), "go on")).await.unwrap();
    assert_eq!(timers(&t).await, due([("dispatch:ORD-1:1", 70), ("lifetime:ORD-1", 100), ("warn:ORD-1", 80)]));
    t.run_for(minutes(71)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Dispatching);
    let refused = t.act("ORD-1", |s| actions::redispatch_order(s, &by("dispatcher:anna"))).await.unwrap();
    assert!(!refused.is_written());
    t.assert_sound().await;
}

#[tokio::test]
async fn full_area_keeps_the_order_scheduled() {
    let t = TestApp::start().await;
    admission::full_for(&t, "RIDE", 1).await;
    scheduled(&t, "ORD-1").await;
    let waiting = || async { t.count("SELECT dispatchq_waiting('JKT', 'RIDE')").await };
    assert_eq!(waiting().await, 0, "a scheduled order does not wait in its area");
    t.run_for(minutes(95)).await;
    t.order("NOW").await;
    t.run_for(minutes(10)).await;
    assert_eq!((t.status("ORD-1").await, waiting().await), (OrderStatus::Scheduled, 1));
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "START_DELAYED"]);

    t.cancel("NOW").await.unwrap();
    t.run_for(secs(15)).await;
    assert_eq!((t.status("ORD-1").await, waiting().await), (OrderStatus::Dispatching, 1));
    assert_eq!(t.snapshot("ORD-1").await.order.admission.as_deref(), Some("TAKEN"));
    t.assert_sound().await;
}

#[tokio::test]
async fn full_area_ends_the_order_with_its_lifetime() {
    let t = TestApp::start().await;
    admission::full_for(&t, "RIDE", 0).await;
    scheduled(&t, "ORD-1").await;
    t.run_for(minutes(131)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystem);
    assert_eq!(
        t.reasons("ORD-1").await,
        ["ORDER_CREATED", "START_DELAYED", "NO_DRIVER_BEFORE_PICKUP", "LIFETIME_TIMEOUT", "COMPENSATED_UNPAID"]
    );
    t.assert_sound().await;
}

#[tokio::test]
async fn postgres_refuses_a_start_that_redis_admits() {
    let t = TestApp::start().await;
    admission::full_for(&t, "RIDE", 1).await;
    t.order_at("ORD-1", in_minutes(&t, 120)).await;
    t.order_at("ORD-2", in_minutes(&t, 122)).await;
    t.run_for(minutes(101)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Dispatching);
    assert_eq!(t.redis::<i64>(&["ZREM", "waiting:order:JKT:RIDE", "ORD-1"]).await, 1, "Redis loses the waiting order");
    t.run_for(minutes(2)).await;
    assert_eq!(t.status("ORD-2").await, OrderStatus::Scheduled);
    assert_eq!(t.reasons("ORD-2").await, ["ORDER_CREATED", "START_DELAYED"]);
    waiting::repair_waiting_sets(&t.app.areas, &mut SuspectMembers::default()).await.unwrap();
    t.assert_sound().await;
}

#[tokio::test]
async fn hour_admits_its_limit_of_scheduled_orders() {
    let t = TestApp::start().await;
    admission::full_for(&t, "RIDE", 100).await;
    let change = areas::table::limits::LimitsChange { max_scheduled_per_hour: Some(2), ..Default::default() };
    admission::limit_for(&t, "RIDE", "JKT", change).await;
    // It is 08:00. The hour of the pickups is 10:00 to 11:00.
    for (order, minutes) in [("ORD-1", 120), ("ORD-2", 179), ("NEXT", 180), ("BEFORE", 119)] {
        t.order_at(order, in_minutes(&t, minutes)).await;
    }
    let pickup_at = in_minutes(&t, 150).to_rfc3339().parse().unwrap();
    let refused = t.create("ORD-3", |new| new.pickup_at = Some(pickup_at)).await.unwrap_err();
    let CreateError::Refused(answer) = refused else { panic!("{refused:?}") };
    assert_eq!((answer.http_status(), answer.error_code()), (503, Some("DISPATCHER_AREA_THRESHOLD_REACHED")));
    let moved = PickupMove::new(&t.app.orders, &t.snapshot("NEXT").await.order, pickup_at).await;
    assert!(matches!(moved, Err(MoveError::Full(_))), "{moved:?}");
    t.order("NOW").await;
    move_to(&t, "ORD-1", 125).await.unwrap();
    t.cancel("ORD-2").await.unwrap();
    t.create("ORD-3", |new| new.pickup_at = Some(pickup_at)).await.unwrap();
    t.assert_sound().await;
}

#[tokio::test]
async fn order_of_sql_is_scheduled_by_the_same_rules() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let create = |id: &str, details: &str| {
        format!("SELECT dispatchq_create_order('{id}', 'RIDE', -6.2088, 106.8456, details => '{details}')")
    };
    t.sql(&create("ORD-1", r#"{"pickup_at": "2030-01-01T17:00:00+07:00"}"#)).await;
    let s = t.snapshot("ORD-1").await;
    assert_eq!((s.order.status, s.order.starts_at), (OrderStatus::Scheduled, Some(in_minutes(&t, 100))));
    assert!(!s.order.has_details, "a pickup time alone is no contents");
    for (pickup_at, words) in [
        ("2030-01-01T10:00:00", "with its offset from UTC"),
        ("2030-13-01T10:00:00Z", "with its offset from UTC"),
        ("2030-01-01T07:59:00Z", "is in the past"),
        ("2030-02-01T07:59:00Z", "more than 30 days ahead"),
    ] {
        let details = format!(r#"{{"pickup_at": "{pickup_at}"}}"#);
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(create("ORD-2", &details))).execute(&t.app.core.db).await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("pickup_at") && text.contains(words), "{pickup_at}: {text}");
    }
    // The reconciler finds the order within seconds, and its first job sets the timers.
    t.advance(secs(4)).await;
    maintenance::recovery::repair::repair_overdue(&t.app.maintenance).await.unwrap();
    t.run_due().await;
    assert_eq!(timers(&t).await, due([("dispatch:ORD-1:1", 99), ("lifetime:ORD-1", 129), ("warn:ORD-1", 109)]));
    t.run_for(minutes(100)).await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    t.assert_sound().await;
}

#[tokio::test]
async fn repeated_creation_answers_as_the_first() {
    let t = TestApp::start().await;
    let first = scheduled(&t, "ORD-1").await;
    move_to(&t, "ORD-1", 300).await.unwrap();
    let moved = t.snapshot("ORD-1").await;
    assert_ne!(moved.order.lifetime_deadline, first.order.lifetime_deadline);
    let schedule = model::order::CreatedSchedule {
        pickup_at: first.order.pickup_at,
        starts_at: first.order.starts_at,
        lifetime_deadline: first.order.lifetime_deadline,
    };
    let again = moved.order.at_creation(first.order.payment_status.clone(), None, schedule);
    let shown = |order| model::view::OrderView::from(&Snapshot::from_order(order, first.now));
    let json = |order| serde_json::to_value(shown(order)).unwrap();
    assert_eq!(json(again), json(first.order.clone()));
}
