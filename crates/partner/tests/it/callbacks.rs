//! Accepted and rejected callbacks, and callbacks without a booking.

use chrono::Utc;
use partner_sim::{PartnerKnobs, values::EventRate};
use serde_json::{Value, json};

use maintenance::recovery::reconciler;
use model::order::{BookingState, OrderStatus};
use orders::order_store::inbox::{CallbackState, NewCallback};
use queue::{JobId, store::CancelVerdict};
use test_support::{
    eventually, id, lasting_transaction,
    partnership::{ANOTHER_SECRET, PARTNER, Partnership, SECRET, partner, silent},
    secs,
};

/// A secret that is not configured.
const A_THIRD_SECRET: &str = "whsec_bm9ib2R5IGhhcyBldmVyIHVzZWQgdGhpcw==";

async fn inbox(p: &Partnership) -> i64 {
    p.count("SELECT count(*) FROM inbox").await
}

#[tokio::test]
async fn what_is_not_signed_by_the_partner_lately_is_refused() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    let body = p.callback("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    let now = Utc::now().timestamp();
    for (what, answer) in [
        ("unsigned", p.send_with(PARTNER, &body.to_string(), &[]).await),
        ("forged", p.send_signed(PARTNER, &body, ANOTHER_SECRET, now).await),
        ("old", p.send_signed(PARTNER, &body, SECRET, now - 400).await),
        ("from the future", p.send_signed(PARTNER, &body, SECRET, now + 400).await),
    ] {
        assert_eq!(answer.error(), (401, "BAD_SIGNATURE"), "{what}");
    }
    // The signature belongs to another body.
    let mut other = body.clone();
    other["job_id"] = json!("J-2");
    let signature = standardwebhooks::Webhook::new(SECRET).unwrap();
    let signature = signature.sign("E-0", now, other.to_string().as_bytes()).unwrap();
    let headers = [("webhook-id", "E-0"), ("webhook-timestamp", &now.to_string()), ("webhook-signature", &signature)];
    assert_eq!(p.send_with(PARTNER, &body.to_string(), &headers).await.error(), (401, "BAD_SIGNATURE"));
    assert_eq!((inbox(&p).await, p.status("ORD-1").await), (0, OrderStatus::PendingJobId));
    assert_eq!(p.send(&body).await.status, 200);
}

#[tokio::test]
async fn while_the_secret_changes_both_are_good() {
    let p = Partnership::with(silent(), |config| {
        ANOTHER_SECRET.clone_into(&mut partner(config).callback_secret);
        SECRET.clone_into(&mut partner(config).callback_secret_previous);
    })
    .await;
    p.booked("ORD-1", "PAID").await;
    for (secret, status) in [(SECRET, 200), (ANOTHER_SECRET, 200), (A_THIRD_SECRET, 401)] {
        let body = p.callback("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
        assert_eq!(p.send_signed(PARTNER, &body, secret, Utc::now().timestamp()).await.status, status);
    }
}

#[tokio::test]
async fn without_a_secret_no_callback_is_taken() {
    let p = Partnership::with(silent(), |config| partner(config).callback_secret.clear()).await;
    p.booked("ORD-1", "PAID").await;
    let body = p.callback("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    assert_eq!(p.send(&body).await.error(), (401, "BAD_SIGNATURE"));
}

#[tokio::test]
async fn unreadable_callback_is_refused_with_reason() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    let good = p.callback("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    for (body, code) in [
        (json!([1]), "INVALID"),
        (json!({}), "INVALID"),
        (with("event_id", json!("")), "INVALID"),
        (with("booking_id", json!("B".repeat(129))), "INVALID"),
        (with("job_id", json!("a\u{0}b")), "INVALID"),
        (with("driver_id", json!(7)), "INVALID"),
    ] {
        let answer = p.send(&body).await;
        assert_eq!(answer.error(), (422, code), "{body}");
        assert!(!answer.text("message").is_empty());
    }
    let unknown = p.send_signed("unknown", &good, SECRET, Utc::now().timestamp()).await;
    assert_eq!(unknown.error(), (401, "BAD_SIGNATURE"));
    assert_eq!(inbox(&p).await, 0);
    // An event of an unknown type, from a newer partner, is stored and changes nothing.
    assert_eq!(p.send(&with("type", json!("driver_waves"))).await.body["status"], "ignored");
    assert_eq!((inbox(&p).await, p.status("ORD-1").await), (1, OrderStatus::PendingJobId));
}

#[tokio::test]
async fn callback_of_unknown_booking_waits() {
    let p = Partnership::start(silent()).await;
    p.lose_answers(EventRate::ALWAYS);
    p.taxi("ORD-1", "PAID").await;
    p.run_due().await;
    let booking_id = p.sim.read_report().open.remove(0);
    let said = json!({ "booking_id": booking_id, "job_id": "J-1", "reference": null });
    assert_eq!(p.tell("ORD-1", 1, "job_id_assigned", said).await, "unmatched");
    let strange = json!({ "booking_id": "B-strange", "job_id": "J-2", "reference": "theirs" });
    assert_eq!(p.tell("ORD-1", 1, "job_id_assigned", strange).await, "unmatched");

    p.lose_answers(EventRate::NEVER);
    p.run_for(secs(10)).await;
    assert_eq!(p.booking("ORD-1", 1).await.state, BookingState::Booked);
    assert_eq!(p.snapshot("ORD-1").await.order.job_id.as_deref(), Some("J-1"));
    assert_eq!(p.texts("SELECT state FROM inbox ORDER BY id").await, ["processed", "unmatched"]);
    p.assert_sound().await;
}

// Fault F19d
#[tokio::test]
async fn reconciler_finds_callback_of_concurrent_booking() {
    let p = Partnership::start(silent()).await;
    p.lose_answers(EventRate::ALWAYS);
    p.taxi("ORD-1", "PAID").await;
    p.run_due().await;
    let booking_id = p.sim.read_report().open.remove(0);
    let said = json!({ "booking_id": booking_id, "job_id": "J-1", "reference": null });
    assert_eq!(p.tell("ORD-1", 1, "job_id_assigned", said).await, "unmatched");
    // The transaction that stored the booking id searched for callbacks before this callback was committed.
    p.sql(&format!("UPDATE bookings SET state = 'booked', booking_id = '{booking_id}', next_try_at = NULL")).await;
    assert_eq!(p.texts("SELECT state FROM inbox").await, ["unmatched"]);

    p.advance(secs(4)).await;
    reconciler::reconcile_once(&p.app.maintenance).await.unwrap().expect("no other process reconciles");
    p.run_due().await;
    assert_eq!(p.texts("SELECT state FROM inbox").await, ["processed"]);
    assert_eq!(p.snapshot("ORD-1").await.order.job_id.as_deref(), Some("J-1"));
}

/// The simulated partner at its worst. A forged callback and one for an unknown booking precede each callback. Each
/// callback is sent twice, with one that names another job id in between.
#[tokio::test]
async fn wrong_callbacks_around_the_right_ones_change_nothing() {
    let always = EventRate::ALWAYS;
    let wild = PartnerKnobs {
        bad_signature_rate: always,
        unknown_booking_rate: always,
        foreign_job_id_rate: always,
        doubled_callback_rate: always,
        driver_rate: always,
        driver_cancel_rate: EventRate::NEVER,
        job_id_callback_rate: always,
        callback_rate: always,
        ..PartnerKnobs::default()
    };
    let p = Partnership::on_real_time(300.0, wild, |config| partner(config).poll.first = secs(1)).await;
    let _work = p.work();
    for order in ["ORD-1", "ORD-2", "ORD-3"] {
        p.taxi(order, "PAID").await;
    }
    for order in ["ORD-1", "ORD-2", "ORD-3"] {
        p.reaches(order, OrderStatus::Completed).await;
        let s = p.snapshot(order).await;
        let right = p.at_partner(s.bookings[0].booking_id.as_ref().unwrap()).await["job_id"].clone();
        let reasons = p.reasons(order).await;
        let asked = reasons.iter().any(|r| r == "JOB_ID_CONFLICT");
        assert!(json!(s.order.job_id) == right || asked, "{s:?}, {right}");
        assert!(p.booking_states(order).await == [BookingState::Completed]);
    }
    let counters = p.sim.read_report().counters;
    assert!(counters.callbacks_wrong > counters.callbacks_wrong_taken, "{counters:?}");
    assert_eq!(p.count("SELECT count(*) FROM inbox WHERE state = 'pending'").await, 0);
    p.assert_at_rest().await;
}

// Rule U11: A partner event of an unknown type is answered 200 `ignored`, is stored, and changes nothing.
#[tokio::test]
async fn unknown_type_of_event_is_ignored() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    let before = p.dump().await;
    let of_order = p.callback("ORD-1", 1, "flat_tyre", json!({ "job_id": "J-1", "driver_id": "D-7" })).await;
    let of_none =
        p.callback("ORD-1", 1, "flat_tyre", json!({ "booking_id": "B-NONE", "reference": "ORD-404:1" })).await;
    for body in [&of_order, &of_none, &of_order] {
        let answer = p.send(body).await;
        assert_eq!((answer.status, answer.text("status")), (200, "ignored"));
    }
    assert_eq!(p.dump().await, before);
    assert_eq!(
        p.texts("SELECT concat_ws(' ', state, result) FROM inbox ORDER BY id").await,
        ["ignored unknown type"; 2]
    );
    // A version that knows the type may have stored the event as pending.
    p.sql("UPDATE inbox SET state = 'pending', result = NULL, processed_at = NULL WHERE order_id = 'ORD-1'").await;
    reconciler::reconcile_in_full(&p.app.maintenance).await.unwrap().unwrap();
    p.run_due().await;
    assert_eq!(p.texts("SELECT DISTINCT state FROM inbox").await, ["ignored"]);
    assert_eq!((p.status("ORD-1").await, p.snapshot("ORD-1").await.order.job_id), (OrderStatus::PendingJobId, None));
}

#[tokio::test]
async fn a_callback_is_stored_with_what_it_leads_to() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    // The order of this callback may not be known yet, so it is stored first.
    let unknown = p.callback("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-9", "booking_id": "B-other" })).await;
    p.tell("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    p.tell("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    let stored = "SELECT concat_ws(' ', order_id, state, result, processed_at - received_at) FROM inbox ORDER BY id";
    assert_eq!(p.texts(stored).await, ["ORD-1 processed ASSIGNED 00:00:00", "ORD-1 ignored adds nothing 00:00:00"]);
    assert_eq!(p.reasons("ORD-1").await[3..], ["JOB_ID_VIA_CALLBACK"]);
    let writes = "SELECT count(*) FROM inbox i JOIN orders o ON o.id = i.order_id WHERE i.xmin = o.xmin";
    assert_eq!(p.count(writes).await, 1, "the first shares the commit of its change");
    assert_eq!(p.send(&unknown).await.status, 200);
    p.assert_sound().await;
}

/// The commit succeeded but its answer was lost, so no timer was sent to Redis.
#[tokio::test]
async fn repeated_event_restores_the_timers() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    let body = p.callback("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    assert_eq!(p.send(&body).await.body["status"], "processed");
    let timers = p.timers().await;
    assert!(!timers.is_empty());
    for job in timers.keys() {
        let cancelled = p.app.core.store.cancel(&JobId::parse(job).unwrap(), &jobs::queues::ALL).await.unwrap();
        assert_eq!(cancelled, CancelVerdict::Removed, "{job}");
    }
    assert_eq!(p.send(&body).await.body["status"], "processed");
    assert_eq!(p.timers().await.into_keys().collect::<Vec<_>>(), ["lifetime:ORD-1", "timeout:ORD-1:1"]);
    p.assert_sound().await;
}

#[tokio::test]
async fn callback_ignored_at_old_version_stays_pending() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    let version = p.snapshot("ORD-1").await.order.version;
    let callback = |event: &str, version: i64| NewCallback {
        partner: PARTNER.into(),
        event_id: event.to_owned(),
        booking_id: "B-0".to_owned(),
        referred: Some(id("ORD-1")),
        ignored: Some("adds nothing"),
        ignored_at: Some(version),
        body: json!({}),
    };
    let orders = &p.app.orders.rows;
    let now = orders.store_callback(callback("E-1", version)).await.unwrap();
    let before = orders.store_callback(callback("E-2", version - 1)).await.unwrap();
    assert_eq!((now.state, before.state), (CallbackState::Ignored, CallbackState::Pending));
}

#[tokio::test]
async fn concurrently_stored_event_is_processed_once() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    let body = p.callback("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    let mut other = lasting_transaction(&p.postgres).await;
    sqlx::query(
        "INSERT INTO inbox (partner, event_id, order_id, booking_id, body, state, received_at)
         SELECT $1, b ->> 'event_id', 'ORD-1', b ->> 'booking_id', b, 'pending', dispatchq_now()
         FROM (SELECT $2::jsonb) AS said (b)",
    )
    .bind(PARTNER)
    .bind(&body)
    .execute(&mut *other)
    .await
    .unwrap();
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    let storing = async {
        eventually("the callback waits for the other", || async { p.count(waiting).await == 1 }).await;
        other.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(p.send(&body), storing);
    assert_eq!((answer.status, answer.text("status")), (200, "processed"));
    assert_eq!(p.texts("SELECT state FROM inbox").await, ["processed"]);
    assert_eq!(p.reasons("ORD-1").await[3..], ["JOB_ID_VIA_CALLBACK"]);
    p.assert_sound().await;
}

#[tokio::test]
async fn locked_callback_is_left_to_its_job() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    assert_eq!(p.tell("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await, "processed");
    // Another event with the same content, stored by a process that died. Its row is locked when this process marks it
    // as ignored.
    let again = p.callback("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    p.sql(&format!(
        "INSERT INTO inbox (partner, event_id, order_id, booking_id, body, state, received_at)
         SELECT '{PARTNER}', b ->> 'event_id', 'ORD-1', b ->> 'booking_id', b, 'pending', dispatchq_now()
         FROM (SELECT '{again}'::jsonb) AS said (b)"
    ))
    .await;
    let mut other = lasting_transaction(&p.postgres).await;
    sqlx::query("SELECT 1 FROM inbox WHERE state = 'pending' FOR UPDATE").execute(&mut *other).await.unwrap();
    assert_eq!(p.send(&again).await.body["status"], "stored");
    other.rollback().await.unwrap();
    assert_eq!(p.texts("SELECT state FROM inbox ORDER BY id").await, ["processed", "pending"]);
    p.run_due().await;
    assert_eq!(p.texts("SELECT state FROM inbox ORDER BY id").await, ["processed", "ignored"]);
    p.assert_sound().await;
}
