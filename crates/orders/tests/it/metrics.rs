//! Metrics of orders, and when they count.

use model::{decide::money, order::OrderStatus};
use test_support::{Counting, TestApp, by, secs};

/// Returns SQL that makes Postgres refuse the end of every order with this code.
fn refuse(code: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{code}'; END $$;
         CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW
         WHEN (NEW.status LIKE 'CANCELLED%') EXECUTE FUNCTION refuse()"
    )
}

#[tokio::test]
async fn attempts_and_searches_are_counted_by_how_they_end() {
    let counting = Counting::start();
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(t.decline_offer("ORD-1").await, "D1");
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D2");
    t.run_for(secs(120 + 15)).await;
    let offer = t.live_offer("ORD-1").await;
    t.accept("ORD-1", &offer.driver_id, offer.id).await.unwrap();
    // Repeats the request, as a client does after a lost answer.
    t.accept("ORD-1", &offer.driver_id, offer.id).await.unwrap();
    t.carry_out("ORD-1", &offer.driver_id).await;
    let ride = |rest: &str| format!("{{area_id=\"\",{rest}service_type=\"RIDE\"}}");
    let assigned = ride("result=\"assigned\",");
    assert_eq!(
        counting.of("dispatcher_"),
        [
            format!("dispatcher_attempt_duration_seconds_count{} 3", ride("")),
            format!("dispatcher_attempt_total{assigned} 1"),
            format!("dispatcher_attempt_total{} 2", ride("result=\"timeout\",")),
            format!("dispatcher_order_lifetime_seconds_count{assigned} 1"),
            format!("dispatcher_retry_count_total{} 2", ride("")),
        ]
    );
    let per_order = |part: &str| counting.read().value(&format!("dispatchq_attempts_per_order_{part}{}", ride("")));
    assert_eq!((per_order("count"), per_order("sum")), (1.0, 3.0));
    let entered =
        |status: &str, times: u32| format!("order_status_count{{status=\"{status}\",track=\"fleet\"}} {times}");
    let once = ["COMPLETED", "DISPATCHING", "DRIVER_ASSIGNED", "PICKED_UP"].map(|status| entered(status, 1));
    assert_eq!(counting.of("order_status_count"), once);

    // A cancelled order also ends its attempt, which is not a failure.
    t.order("ORD-2").await;
    t.run_due().await;
    t.asked("ORD-2").await;
    t.cancel("ORD-2").await.unwrap();
    let count = counting.read();
    let attempts = |result: &str| counting.read().value(&format!("dispatcher_attempt_total{}", ride(result)));
    assert_eq!((attempts("result=\"assigned\","), attempts("result=\"timeout\",")), (1.0, 2.0));
    assert_eq!(count.value(&format!("dispatcher_cancel_total{}", ride("reason=\"user\","))), 1.0);
    let ended =
        |result: &str| format!("dispatcher_order_lifetime_seconds_count{}", ride(&format!("result=\"{result}\",")));
    assert_eq!(count.value(&ended("cancelled_user")), 1.0);
}

#[tokio::test]
async fn lifetime_end_counts_the_attempt_as_timeout() {
    let counting = Counting::start();
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_for(secs(1800)).await;
    let order = t.snapshot("ORD-1").await.order;
    assert_eq!(order.status, OrderStatus::CancelledBySystemAfterPayment);
    let ride = |rest: &str| format!("{{area_id=\"\",{rest}service_type=\"RIDE\"}}");
    assert_eq!(
        counting.of("dispatcher_"),
        [
            format!("dispatcher_attempt_duration_seconds_count{} {}", ride(""), order.attempt_no),
            format!("dispatcher_attempt_total{} {}", ride("result=\"timeout\","), order.attempt_no),
            format!("dispatcher_cancel_total{} 1", ride("reason=\"lifetime_timeout\",")),
            format!("dispatcher_order_lifetime_seconds_count{} 1", ride("result=\"cancelled_timeout\",")),
            format!("dispatcher_retry_count_total{} {}", ride(""), order.attempt_no - 1),
        ]
    );
    assert_eq!(
        counting.of("order_status_count"),
        [
            "order_status_count{status=\"CANCELLED_BY_SYSTEM_AFTER_PAYMENT\",track=\"fleet\"} 1",
            "order_status_count{status=\"COMPENSATING\",track=\"fleet\"} 1",
            "order_status_count{status=\"DISPATCHING\",track=\"fleet\"} 1",
        ]
    );
    assert_eq!(counting.of("dispatchq_status_updates_total"), ["dispatchq_status_updates_total{result=\"success\"} 1"]);

    // An operator starts the refund an hour later, which answers the alert.
    let refund = "{alert=\"MANUAL_REFUND_REQUIRED\"}";
    assert_eq!(
        counting.of("dispatchq_manual_interventions_total"),
        [format!("dispatchq_manual_interventions_total{refund} 1")]
    );
    t.advance(secs(3600)).await;
    t.act("ORD-1", |s| money::start_refund(s, &by("operator:test"), None)).await.unwrap();
    let response = |part: &str| counting.read().value(&format!("dispatchq_alert_response_seconds_{part}{refund}"));
    assert_eq!((response("count"), response("sum") >= 3600.0), (1.0, true));
}

#[tokio::test]
async fn an_end_the_database_refuses_is_a_failed_status_update() {
    let counting = Counting::start();
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.sql(&refuse("55P03")).await;
    t.run_for(secs(1800)).await;
    let updates =
        |result: &str| counting.read().value(&format!("dispatchq_status_updates_total{{result=\"{result}\"}}"));
    assert_eq!((updates("success"), updates("failed"), updates("unreachable") > 0.0), (0.0, 0.0, true));
    t.sql(&refuse("P0001")).await;
    t.run_for(secs(3)).await;
    assert_eq!((updates("success"), updates("failed") > 0.0), (0.0, true));
    t.sql("DROP TRIGGER refuse ON orders").await;
    t.run_for(secs(60)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(updates("success"), 1.0);
}

#[tokio::test]
async fn sql_order_is_counted_with_first_change() {
    let counting = Counting::start();
    let t = TestApp::start().await;
    t.sql("SELECT dispatchq_create_order('ORD-1', 'RIDE', -6.2, 106.8, area_id => '0812345678')").await;
    assert_eq!(counting.of("order_status_count"), Vec::<String>::new());
    t.cancel("ORD-1").await.unwrap();
    let once = ["CANCELLED_BY_USER", "DISPATCHING"]
        .map(|status| format!("order_status_count{{status=\"{status}\",track=\"fleet\"}} 1"));
    assert_eq!(counting.of("order_status_count"), once);
    let other = "dispatcher_cancel_total{area_id=\"other\",reason=\"user\",service_type=\"RIDE\"} 1";
    assert_eq!(counting.of("dispatcher_cancel_total"), [other], "a telephone number is no area");
}
