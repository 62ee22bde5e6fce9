//! Payment statuses and the refund queue: an order that was ever paid keeps its refund debt, regardless of later
//! reports.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use model::order::PaymentStatus;
use serde_json::json;

use accounts::api_keys::AccountRole;
use desk::reports::{census, glance};
use maintenance::periodic::cleanup;
use model::{
    decide::money,
    messages::{MANUAL_REFUND_REQUIRED, UNEXPECTED_STATE},
    order::{OrderStatus, RefundProgress},
};
use orders::search;
use test_support::{Answer, Api, Counting, PAYMENT_SECRET, PaymentSim, TestApp, by, http_client, secs};

struct Desk {
    t: TestApp,
    api: Api,
    payments: PaymentSim,
    producer: String,
    support: String,
}

impl Desk {
    async fn open() -> Self {
        let payments = PaymentSim::start().await;
        let t = TestApp::with(|config| {
            config.payments.url = payments.url.clone();
            config.payments.callback_secret = PAYMENT_SECRET.to_owned();
        })
        .await;
        let api = Api::start(&t.app).await;
        let (producer, support) = (t.key(AccountRole::Producer).await, t.key(AccountRole::Support).await);
        Self { t, api, payments, producer, support }
    }

    async fn pay(&self, order: &str, event: &str, word: &str) -> Answer {
        let body = json!({ "event_id": event, "payment_status": word });
        self.api.post(&format!("/api/v1/orders/{order}/payment"), &self.producer, body).await
    }

    /// Sends the event and returns whether the answer has a Warning header.
    async fn warns(&self, order: &str, event: &str, word: &str) -> bool {
        let request = http_client()
            .post(self.api.url(&format!("/api/v1/orders/{order}/payment")))
            .bearer_auth(&self.producer)
            .json(&json!({ "event_id": event, "payment_status": word }));
        request.send().await.unwrap().headers().contains_key("warning")
    }

    async fn start(&self, order: &str) -> Answer {
        let path = format!("/api/v1/orders/{order}/refund");
        self.api.post(&path, &self.support, json!({ "action": "start" })).await
    }

    /// Returns how often the order is in the refund queue.
    async fn queued(&self, order: &str) -> usize {
        let page = self.api.get("/api/v1/refunds?limit=500", &self.support).await;
        assert_eq!(page.status, 200, "{page:?}");
        page.body["refunds"].as_array().unwrap().iter().filter(|row| row["order_id"] == order).count()
    }
}

// Rule F13: If an order that was ever paid is cancelled, a refund is due, whatever payment statuses arrived in between.
// Rule F14: PAID after REFUNDED raises UNEXPECTED_STATE and creates no new debt.
// Rule F16b: A later payment status never removes a refund from the queue. An unknown status causes a Warning header
// and an alert.
#[tokio::test]
async fn owed_refund_survives_every_later_word() {
    let desk = Desk::open().await;
    let t = &desk.t;
    let cases: [(&str, &str, &[&str], &[&str]); 6] = [
        ("A", "PAID", &["DISPUTE", "PENDING"], &[]),
        ("B", "PAID", &["FAILED", "UNPAID"], &["SETTLEMENT"]),
        ("C", "UNPAID", &["PAID", "DISPUTE", "PENDING"], &[]),
        ("D", "PAID", &[], &["CAPTURED", "PENDING", "CHARGEBACK"]),
        ("E", "SETTLEMENT", &[], &["REFUNDED", "PAID", "DISPUTE"]),
        ("F", "UNPAID", &[], &["PAID", "CAPTURED"]),
    ];
    for (order, first, before, after) in cases {
        t.order_of(order, "RIDE", first).await;
        let mut events = 0;
        for (words, ended) in [(before, false), (after, true)] {
            if ended {
                t.cancel(order).await.unwrap();
            }
            for word in words {
                events += 1;
                let answer = desk.pay(order, &format!("E{events}"), word).await;
                assert_eq!(answer.status, 200, "{order} {word}: {answer:?}");
                let is_known = PaymentStatus::try_from((*word).to_owned()).unwrap().is_known();
                assert_eq!(desk.warns(order, &format!("E{events}"), word).await, !is_known, "{order} {word}");
            }
        }
        assert_eq!(desk.queued(order).await, 1, "{order}");
        assert_eq!(t.messages_of(order, MANUAL_REFUND_REQUIRED).await, 1, "{order}");
    }
    let page = desk.api.get("/api/v1/alerts?order_id=D", &desk.support).await;
    assert!(page.body.to_string().contains("CAPTURED"), "support is told of an unknown word: {page:?}");
    let e = t.snapshot("E").await.order;
    assert_eq!(e.payment_status, PaymentStatus::Refunded, "PAID does not come back");
    assert_eq!(t.messages_of("E", UNEXPECTED_STATE).await, 3, "the report, the late payment, the unknown word");
    for (order, ..) in cases {
        let answer = desk.start(order).await;
        assert_eq!((answer.status, answer.text("status")), (200, "REFUND_PENDING"), "{order}");
    }
    // The producer reports REFUNDED, so the service is not asked: it could pay twice.
    assert_eq!(t.texts("SELECT order_id FROM refunds ORDER BY 1").await, ["A", "B", "C", "D", "F"]);
    t.act("E", |s| money::finish_refund(s, &by("support:test"), None)).await.unwrap();
    assert_eq!(desk.pay("E", "late", "PAID").await.text("status"), "REFUNDED");
    assert_eq!((desk.queued("E").await, t.messages_of("E", MANUAL_REFUND_REQUIRED).await), (0, 1));
    t.assert_sound().await;
}

// Rule F16: If a paid order with amount 0 is cancelled, there is no refund alert, and the payment service is not asked.
#[tokio::test]
async fn free_order_owes_no_refund() {
    let desk = Desk::open().await;
    let t = &desk.t;
    for order in ["BY-USER", "BY-SYSTEM"] {
        t.order_of(order, "RIDE", "PAID").await;
    }
    t.sql("UPDATE orders SET amount_minor = 0").await;
    t.cancel("BY-USER").await.unwrap();
    t.run_for(secs(1810)).await;
    assert_eq!(t.status("BY-SYSTEM").await, OrderStatus::CancelledBySystem);
    for order in ["BY-USER", "BY-SYSTEM"] {
        assert_eq!((desk.queued(order).await, t.messages_of(order, MANUAL_REFUND_REQUIRED).await), (0, 0), "{order}");
        assert_eq!(desk.pay(order, "again", "SETTLEMENT").await.status, 200);
    }
    assert_eq!(desk.start("BY-USER").await.error(), (409, "NOTHING_PAID"));
    assert_eq!(desk.payments.asked(), []);
    t.assert_sound().await;
    // Retention removes the order because no refund is owed.
    t.sql("UPDATE orders SET closed_at = closed_at - interval '2 years', created_at = created_at - interval '2 years'")
        .await;
    t.sql("UPDATE outbox SET state = 'delivered' WHERE state = 'pending'; UPDATE alerts SET acked_at = raised_at, acked_by = 'x'").await;
    cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap();
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 0);
}

// Rule F14: Once the producer reports REFUNDED, the payment service is no longer asked for a refund that it has not
// accepted.
// Rule F16b: Support is notified of the unknown payment status of an order that is created in SQL. An alert is counted
// when it is raised.
#[tokio::test]
async fn words_stop_requests_and_count_alerts_once() {
    let desk = Desk::open().await;
    let (t, counting) = (&desk.t, Counting::start());
    desk.payments.answer_with(StatusCode::SERVICE_UNAVAILABLE, json!({}));
    t.order_of("BACK", "RIDE", "PAID").await;
    t.cancel("BACK").await.unwrap();
    assert_eq!(desk.start("BACK").await.status, 200);
    t.run_for(secs(5)).await;
    assert!(!desk.payments.asked().is_empty());
    assert_eq!(desk.pay("BACK", "E1", "REFUNDED").await.status, 200);
    let asked = desk.payments.asked().len();
    desk.payments.answer_with(StatusCode::OK, json!({ "refund_id": "RF-1", "status": "refunded" }));
    t.run_for(secs(3600)).await;
    assert_eq!((desk.payments.asked().len(), t.status("BACK").await), (asked, OrderStatus::RefundPending));
    assert_eq!(t.texts("SELECT state FROM refunds").await, ["refused"]);

    let made =
        "SELECT dispatchq_create_order('SQL', 'RIDE', -6.2, 106.8, 'CAPTURED', 100, 'IDR', actor => 'producer:test')";
    t.sql(made).await;
    let raised = || counting.read().value("dispatchq_manual_interventions_total{alert=\"UNEXPECTED_STATE\"}");
    let before = raised();
    for (n, word) in ["DISPUTE", "CAPTURED", "DISPUTE"].into_iter().enumerate() {
        assert_eq!(desk.pay("SQL", &format!("E{n}"), word).await.status, 200);
    }
    assert_eq!((t.messages_of("SQL", UNEXPECTED_STATE).await, raised() - before), (1, 1.0));
    t.assert_sound().await;
}

/// Rows with every combination of status, payment status, payment time and amount.
const EVERY_ROW: &str = "
    INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, payment_status, paid_at, amount_minor, currency, status, driver_id,
                        partner, lifetime_deadline, created_at, updated_at, closed_at)
    SELECT 'O-' || row_number() OVER (), 'RIDE', 0, 0, word, paid_at, amount, 'IDR', status, 'D-' || row_number() OVER (),
           CASE WHEN status IN ('PENDING_JOB_ID', 'ASSIGNED') THEN 'bbd' END, now, now, now, CASE WHEN status IN ('COMPLETED', 'CANCELLED_BY_SYSTEM', 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT', 'REFUND_PENDING',
                                               'REFUNDED', 'CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER') THEN now END
    FROM (SELECT dispatchq_now() AS now) n,
         unnest('{PENDING_JOB_ID,ASSIGNED,DISPATCHING,PENDING,DRIVER_ASSIGNED,PICKED_UP,COMPLETED,COMPENSATING,CANCELLED_BY_SYSTEM,
                  CANCELLED_BY_SYSTEM_AFTER_PAYMENT,REFUND_PENDING,REFUNDED,CANCELLED_BY_USER,CANCELLED_BY_DRIVER}'::text[]) status,
         unnest('{UNPAID,PENDING,PAID,SETTLEMENT,REFUNDED,CAPTURED}'::text[]) word,
         unnest(ARRAY[NULL, now]) paid_at, unnest('{NULL,0,1,9223372036854775807}'::bigint[]) amount";

// Rule F1: Sums and lists of refunds work for any stored amounts.
// Rule F16b: The queue in SQL follows the same rule as the decisions.
#[tokio::test]
async fn queue_in_sql_follows_the_decisions() {
    let desk = Desk::open().await;
    let db = &desk.t.app.core.db;
    desk.t.sql(EVERY_ROW).await;
    let mut expected: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let (mut sum, mut open) = (0_i128, 0);
    let ids = desk.t.texts("SELECT id FROM orders").await;
    for order in &ids {
        let order = desk.t.snapshot(order).await.order;
        let Some(progress) = order.refund_progress() else { continue };
        expected.entry(progress.as_str()).or_default().push(order.id.to_string());
        if progress != RefundProgress::Completed {
            open += 1;
            sum += i128::from(order.amount_minor.unwrap_or(0));
        }
    }
    for progress in RefundProgress::ALL {
        let rows = search::list_refunds(db, Some(progress), None, 1000).await.unwrap();
        let mut listed: Vec<_> = rows.iter().map(|order| order.id.to_string()).collect();
        listed.sort();
        let mut wanted = expected.remove(progress.as_str()).unwrap_or_default();
        wanted.sort();
        assert_eq!(listed, wanted, "{}", progress.as_str());
        if progress == RefundProgress::Owed {
            let (count, _) = census::refunds_to_begin(db).await.unwrap();
            assert_eq!(count, listed.len() as u64);
        }
    }
    let counted = glance::count_refunds(db).await.unwrap();
    assert_eq!((counted.all.rows, counted.sums), (open, vec![("IDR".to_owned(), sum)]));
    assert!(sum > i128::from(i64::MAX));
    for path in ["/api/v1/refunds", "/api/v1/refunds?state=completed", "/api/v1/orders?status=REFUNDED"] {
        assert_eq!(desk.api.get(path, &desk.support).await.status, 200, "{path}");
    }
}

// Rule F13: A row keeps the time of its first payment, whichever program writes the row.
#[tokio::test]
async fn row_keeps_its_first_payment() {
    let t = TestApp::start().await;
    let made = "SELECT dispatchq_create_order('SQL', 'RIDE', -6.2, 106.8, 'PAID', 100, 'IDR')";
    t.sql(made).await;
    let at = t.snapshot("SQL").await.order.paid_at;
    assert_eq!(at, Some(t.snapshot("SQL").await.order.created_at));
    // Programs that do not write the column `paid_at`, or clear it.
    for set in
        ["payment_status = 'DISPUTE'", "payment_status = 'PENDING', updated_at = dispatchq_now()", "paid_at = NULL"]
    {
        t.sql(&format!("UPDATE orders SET {set}")).await;
        assert_eq!(t.snapshot("SQL").await.order.paid_at, at, "{set}");
    }
    t.sql("SELECT dispatchq_create_order('LATER', 'RIDE', -6.2, 106.8)").await;
    assert_eq!(t.snapshot("LATER").await.order.paid_at, None);
    t.sql("UPDATE orders SET payment_status = 'SETTLEMENT' WHERE id = 'LATER'").await;
    assert!(t.snapshot("LATER").await.order.paid_at.is_some());
    assert_eq!(
        t.texts("SELECT (paid_at IS NOT NULL)::text FROM audit_orders ORDER BY order_id").await,
        ["true", "true"]
    );
}
