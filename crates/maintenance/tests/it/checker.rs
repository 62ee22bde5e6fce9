//! The checker can fail: it reports each invariant that the test breaks, and no other.

use std::collections::BTreeSet;

use areas::admission::waiting::{self, SuspectMembers};
use maintenance::audit::{self, invariants::INVARIANTS};
use test_support::{TestApp, secs};

const TABLES: [&str; 8] =
    ["orders", "order_feed", "offers", "bookings", "order_events", "outbox", "outbox_attempts", "alerts"];

/// Creates orders with every final state and removes the constraints that would prevent broken rows.
pub(crate) async fn history_to_break() -> TestApp {
    let t = TestApp::start().await;
    t.order_of("PAID", "RIDE", "PAID").await;
    t.order_of("UNPAID", "RIDE", "UNPAID").await;
    t.run_for(secs(1810)).await;
    let drivers: Vec<_> = ["D1", "D2", "D3", "D4"].map(|id| (id, 100.0)).to_vec();
    t.drivers(&drivers).await;
    for order in ["DONE", "DRIVEN-1", "DRIVEN-2", "OFFERED"] {
        t.order(order).await;
        t.run_due().await;
        if order != "OFFERED" {
            t.accept_offer(order).await;
        }
    }
    let pickup_at = t.snapshot("DONE").await.now + chrono::TimeDelta::hours(2);
    t.order_at("SCHEDULED", pickup_at).await;
    let driver = t.snapshot("DONE").await.order.driver_id.unwrap();
    t.carry_out("DONE", &driver).await;
    t.assert_sound().await;
    t.sql("DROP INDEX offers_one_accepted_per_order; DROP INDEX orders_one_active_per_driver").await;
    for table in TABLES {
        t.sql(&format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}")).await;
    }
    // Postgres computes these columns.
    t.sql(
        "ALTER TABLE kept_orders DROP COLUMN on_trip, DROP COLUMN searching, DROP COLUMN searching_fleet,
             DROP COLUMN needs_decision, DROP COLUMN owes_refund, DROP COLUMN closed_status;
         ALTER TABLE kept_bookings DROP COLUMN to_tell",
    )
    .await;
    t
}

pub(crate) async fn restore(t: &TestApp) {
    t.sql(
        "TRUNCATE orders, order_details, order_feed, rankings, offers, bookings, payment_events, order_events, outbox, outbox_attempts, outbox_replays, alerts, refunds",
    )
    .await;
    for table in TABLES {
        t.sql(&format!("INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM kept_{table}")).await;
    }
}

/// Returns the distinct violations: invariant and subject.
pub(crate) async fn reported(t: &TestApp) -> BTreeSet<(&'static str, String)> {
    audit::check_history(&t.app.maintenance).await.unwrap().into_iter().map(|v| (v.invariant, v.subject)).collect()
}

/// Invariant, the order that breaks it, and the statement.
pub(crate) const BROKEN_IN_SQL: [(&str, &str, &str); 26] = [
    (
        "legal_transitions",
        "DONE",
        "DELETE FROM order_events WHERE order_id = 'DONE' AND reason = 'PICKED_UP';
         UPDATE order_events SET from_status = 'DRIVER_ASSIGNED' WHERE order_id = 'DONE' AND reason = 'COMPLETED'",
    ),
    ("unbroken_chain", "DONE", "DELETE FROM order_events WHERE order_id = 'DONE' AND reason = 'PICKED_UP'"),
    ("unbroken_chain", "DONE", "DELETE FROM order_events WHERE order_id = 'DONE' AND reason = 'COMPLETED'"),
    (
        "one_driver_per_order",
        "DONE",
        "INSERT INTO offers (id, order_id, attempt_no, round, driver_id, state, offered_at, expires_at, responded_at)
         SELECT gen_random_uuid(), order_id, attempt_no, round, 'D9', state, offered_at, expires_at, responded_at
         FROM offers WHERE order_id = 'DONE'",
    ),
    ("the_driver_accepted", "DONE", "UPDATE orders SET driver_id = 'D9' WHERE id = 'DONE'"),
    (
        "one_active_order_per_driver",
        "D9",
        "UPDATE orders SET driver_id = 'D9' WHERE id LIKE 'DRIVEN%';
         UPDATE offers SET driver_id = 'D9' WHERE order_id LIKE 'DRIVEN%'",
    ),
    (
        "one_live_booking_per_order",
        "DRIVEN-1",
        "INSERT INTO bookings (order_id, attempt_no, partner, state, created_at)
         SELECT 'DRIVEN-1', n, 'bbd', 'booked', dispatchq_now() FROM generate_series(1, 2) n",
    ),
    (
        "live_bookings_only_while_wanted",
        "DONE",
        "INSERT INTO bookings (order_id, attempt_no, partner, state, created_at)
         VALUES ('DONE', 1, 'bbd', 'booked', dispatchq_now())",
    ),
    ("accepted_in_time", "DONE", "UPDATE offers SET responded_at = expires_at WHERE order_id = 'DONE'"),
    (
        "live_offers_only_while_dispatching",
        "DONE",
        "INSERT INTO offers (id, order_id, attempt_no, round, driver_id, offered_at, expires_at)
         SELECT gen_random_uuid(), order_id, attempt_no, round, 'D9', offered_at, expires_at FROM offers
         WHERE order_id = 'DONE'",
    ),
    (
        "attempts_without_gap",
        "DONE",
        "UPDATE order_events SET attempt_no = 2 WHERE order_id = 'DONE' AND attempt_no = 1;
         UPDATE offers SET attempt_no = 2 WHERE order_id = 'DONE'",
    ),
    (
        "waves_of_one_attempt",
        "DONE",
        "INSERT INTO offers (id, order_id, attempt_no, wave, round, driver_id, state, offered_at, expires_at, responded_at)
         SELECT gen_random_uuid(), order_id, attempt_no, 2, round, 'D9', 'superseded', offered_at, expires_at + interval '1 second',
                responded_at FROM offers WHERE order_id = 'DONE'",
    ),
    (
        "waves_of_one_attempt",
        "DONE",
        "INSERT INTO offers (id, order_id, attempt_no, wave, round, driver_id, state, offered_at, expires_at, responded_at)
         SELECT gen_random_uuid(), order_id, attempt_no, 2, round, 'D9', 'superseded', offered_at - interval '1 second', expires_at,
                responded_at FROM offers WHERE order_id = 'DONE'",
    ),
    (
        "nothing_before_the_start",
        "OFFERED",
        "UPDATE orders SET pickup_at = created_at + interval '1 hour', starts_at = created_at + interval '40 minutes'
         WHERE id = 'OFFERED'",
    ),
    (
        "nothing_before_the_start",
        "SCHEDULED",
        "INSERT INTO offers (id, order_id, attempt_no, round, driver_id, state, offered_at, expires_at, responded_at)
         SELECT gen_random_uuid(), id, 1, 1, 'D9', 'declined', starts_at - interval '1 ms', starts_at, starts_at
         FROM orders WHERE id = 'SCHEDULED'",
    ),
    (
        "nothing_before_the_start",
        "SCHEDULED",
        "INSERT INTO bookings (order_id, attempt_no, partner, state, created_at, closed_at)
         SELECT id, 1, 'bbd', 'cancelled', starts_at - interval '1 ms', starts_at FROM orders WHERE id = 'SCHEDULED'",
    ),
    (
        "one_outcome_per_attempt",
        "DONE",
        "INSERT INTO order_events (order_id, from_status, to_status, reason, actor, attempt_no, at)
         SELECT order_id, to_status, to_status, 'ATTEMPT_TIMEOUT', 'system', 1, at FROM order_events
         WHERE order_id = 'DONE' AND reason = 'COMPLETED'",
    ),
    (
        "ended_within_lifetime",
        "UNPAID",
        "UPDATE orders SET closed_at = lifetime_deadline + interval '31 seconds' WHERE id = 'UNPAID'",
    ),
    (
        "ended_within_lifetime",
        "OFFERED",
        "UPDATE orders SET lifetime_deadline = dispatchq_now() - interval '31 seconds' WHERE id = 'OFFERED'",
    ),
    (
        "never_ended_early",
        "UNPAID",
        "UPDATE order_events SET at = at - interval '1 second' WHERE order_id = 'UNPAID' AND reason = 'LIFETIME_TIMEOUT'",
    ),
    ("refund_alert_for_each_paid_cancel", "PAID", "DELETE FROM outbox WHERE order_id = 'PAID'"),
    (
        "payment_is_never_forgotten",
        "DRIVEN-1",
        "INSERT INTO payment_events (order_id, event_id, payment_status, received_at)
         VALUES ('DRIVEN-1', 'E', 'PAID', dispatchq_now())",
    ),
    ("refund_alert_on_a_desk", "PAID", "DELETE FROM alerts WHERE order_id = 'PAID'"),
    (
        "no_escalation_once_acknowledged",
        "PAID",
        "UPDATE alerts SET acked_at = raised_at, acked_by = 'x', next_escalation_at = NULL WHERE order_id = 'PAID';
         INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
         SELECT order_id, 'ESCALATION', 'log', '1', jsonb_build_object('alert_id', id), 'delivered', raised_at, raised_at,
                raised_at + interval '1 day' FROM alerts WHERE order_id = 'PAID'",
    ),
    (
        "readable_in_feed",
        "DONE",
        "UPDATE order_feed SET position = dispatchq_feed_position() + 1000
         WHERE order_id = 'DONE' AND kind = 'order.created'",
    ),
    ("no_refund_alert_without_payment", "PAID", "UPDATE orders SET payment_status = 'UNPAID' WHERE id = 'PAID'"),
];

// Rule F18: `check history` reports each step whose position is beyond the feed's horizon, so that no reader would
// ever reach it.
// Rule F16b: `check history` reports a payment that was forgotten and a paid order that was cancelled without a refund
// alert.
#[tokio::test]
async fn each_broken_invariant_is_reported_and_no_other() {
    let t = history_to_break().await;
    for (invariant, subject, how) in BROKEN_IN_SQL {
        t.sql(how).await;
        assert_eq!(reported(&t).await, BTreeSet::from([(invariant, subject.to_owned())]), "{how}");
        restore(&t).await;
    }
    t.assert_sound().await;
    let broken: BTreeSet<_> = BROKEN_IN_SQL.iter().map(|(invariant, ..)| *invariant).collect();
    let known: BTreeSet<_> = INVARIANTS.iter().map(|i| i.name).chain(["legal_transitions"]).collect();
    assert_eq!(broken, known, "every invariant has its test");
}

#[tokio::test]
async fn a_doubled_refund_alert_is_reported() {
    let t = history_to_break().await;
    t.sql(
        "INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
         SELECT order_id, kind, channel, 'again', payload, state, next_attempt_at, expires_at, created_at FROM outbox
         WHERE order_id = 'PAID'",
    )
    .await;
    let expected = ("refund_alert_for_each_paid_cancel", "PAID".to_owned());
    assert_eq!(reported(&t).await, BTreeSet::from([expected]));
}

#[tokio::test]
async fn a_payment_nobody_was_told_to_refund_is_reported() {
    let t = history_to_break().await;
    for how in [
        "UPDATE orders SET payment_status = 'PAID' WHERE id = 'UNPAID'",
        "UPDATE orders SET payment_status = 'SETTLEMENT', status = 'CANCELLED_BY_USER' WHERE id = 'UNPAID';
         UPDATE order_events SET from_status = 'DISPATCHING', to_status = 'CANCELLED_BY_USER', reason = 'CANCELLED_BY_USER'
         WHERE order_id = 'UNPAID' AND to_status = 'COMPENSATING';
         DELETE FROM order_events WHERE order_id = 'UNPAID' AND reason = 'COMPENSATED_UNPAID'",
    ] {
        t.sql(how).await;
        let expected = ("refund_alert_for_each_paid_cancel", "UNPAID".to_owned());
        assert_eq!(reported(&t).await, BTreeSet::from([expected]), "{how}");
        restore(&t).await;
    }
}

#[tokio::test]
async fn a_missing_timer_and_a_death_without_reason_are_reported() {
    let t = history_to_break().await;
    assert_eq!(
        t.redis::<i64>(&[
            "ZREM",
            &t.app.core.store.keys().due_set(jobs::queues::DISPATCH_TIMEOUT),
            "timeout:OFFERED:1"
        ])
        .await,
        1
    );
    let dead = r#"{"queue":"notify-queue","error":"","failed":5,"lost":0,"due_ms":1,"died_ms":2,"payload":null}"#;
    t.redis::<()>(&["ZADD", &t.app.core.store.keys().dead_set(jobs::queues::NOTIFY), "2", "notify:DONE:9"]).await;
    t.redis::<()>(&["HSET", &t.app.core.store.keys().dead_records(), "notify:DONE:9", dead]).await;
    let missing = ("no_timer_missing", "timeout:OFFERED:1".to_owned());
    let silent = ("no_dead_job_without_reason", "notify:DONE:9".to_owned());
    assert_eq!(reported(&t).await, BTreeSet::from([missing, silent]));
}

#[tokio::test]
async fn waiting_sets_equal_rows_at_rest() {
    let t = TestApp::start().await;
    for order in ["WAITS", "LEFT"] {
        t.order(order).await;
    }
    t.sql("UPDATE orders SET area_id = 'JKT'").await;
    waiting::repair_waiting_sets(&t.app.areas, &mut SuspectMembers::default()).await.unwrap();
    t.cancel("LEFT").await.unwrap();
    let set = "waiting:order:JKT:RIDE";
    assert_eq!(t.redis::<Vec<String>>(&["ZRANGE", set, "0", "-1"]).await, ["WAITS"]);
    let _: i64 = t.redis(&["ZREM", set, "WAITS"]).await;
    for strange in ["LEFT", "GHOST"] {
        let _: i64 = t.redis(&["ZADD", set, "9999999999999", strange]).await;
    }
    let broken = |orders: &[&str]| -> BTreeSet<_> {
        orders.iter().map(|order| ("waiting_sets_equal_rows", (*order).to_owned())).collect()
    };
    assert_eq!(reported(&t).await, broken(&["GHOST"]), "of the others the reconciler may not know yet");
    t.advance(secs(301)).await;
    assert_eq!(reported(&t).await, broken(&["GHOST", "LEFT", "WAITS"]));
    let _: i64 = t.redis(&["DEL", "dispatchq:waiting:complete"]).await;
    t.assert_sound().await;
}
