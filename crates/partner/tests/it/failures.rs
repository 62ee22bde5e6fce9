//! Orders that end without a job id, as metrics, log and refund alert report them.

use partner_sim::{PartnerKnobs, values::EventRate};

use model::order::OrderStatus;
use test_support::{
    Counting, LogLines, eventually,
    partnership::{Partnership, partner, patient, silent},
    secs,
};

const LIFETIME_S: u64 = 1800;

fn log_lines() -> LogLines {
    let lines = LogLines::default();
    tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::INFO).with_writer(lines.clone()).init();
    lines
}

/// Returns the reason of the refund alert of this order.
async fn refund_reason(p: &Partnership, order: &str) -> Vec<String> {
    p.texts(&format!(
        "SELECT payload->>'reason' FROM outbox WHERE kind = 'MANUAL_REFUND_REQUIRED' AND order_id = '{order}'"
    ))
    .await
}

// Rule L1: An order outside the polled share, and an order whose partner is down for its whole lifetime, count as one failure each.
// Rule L1: The reason for the failure is in the metric, in one ERROR line and in the refund alert.
// Rule L9: Compensation writes the three log lines of the requirement document.
// Rule L15: Only orders that a partner serves count as cancelled by the partner track.
#[tokio::test]
async fn unpolled_and_unbooked_orders_count_as_failures() {
    let (counting, lines) = (Counting::start(), log_lines());
    let p = Partnership::with(silent(), |config| partner(config).poll.percent = 0).await;
    p.booked("ORD-UNPOLLED", "PAID").await;
    p.sim.change_knobs(|knobs| knobs.down = true).unwrap();
    p.taxi("ORD-UNBOOKED", "PAID").await;
    p.taxi("ORD-UNPAID", "UNPAID").await;
    p.order_of("ORD-FLEET", "RIDE", "PAID").await;
    p.run_for(secs(LIFETIME_S + 1)).await;
    assert_eq!(p.polls(), 0, "the partner was not asked");
    for order in ["ORD-UNPOLLED", "ORD-UNBOOKED", "ORD-FLEET"] {
        assert_eq!(p.status(order).await, OrderStatus::CancelledBySystemAfterPayment, "{order}");
    }
    assert_eq!(p.status("ORD-UNPAID").await, OrderStatus::CancelledBySystem);

    // Each failure also counts as an attempt, so the alert on their ratio includes all of them.
    let counted = [
        "job_id_retrieval_attempts_total 3",
        "job_id_retrieval_failed_total{reason=\"never_booked\"} 2",
        "job_id_retrieval_failed_total{reason=\"not_polled\"} 1",
    ];
    assert_eq!(counting.of("job_id_"), counted);
    assert_eq!(counting.of("dispatchq_orders_with_job_id_total"), Vec::<String>::new());
    let ended = counting.of("order_status_count{status=\"CANCELLED_BY_SYSTEM_AFTER_PAYMENT\"");
    let by_track = [("fleet", 1), ("partner", 2)].map(|(track, orders)| {
        format!("order_status_count{{status=\"CANCELLED_BY_SYSTEM_AFTER_PAYMENT\",track=\"{track}\"}} {orders}")
    });
    assert_eq!(ended, by_track);

    for (order, reason, told) in [
        (
            "ORD-UNPOLLED",
            "not_polled",
            "Job ID retrieval failed: no callback came within 30 minutes, and the partner was not asked",
        ),
        ("ORD-UNBOOKED", "never_booked", "Job ID retrieval failed: the partner confirmed no booking within 30 minutes"),
    ] {
        assert_eq!(refund_reason(&p, order).await, [told]);
        let id = format!("order.id={order} ");
        let failures: Vec<_> =
            lines.with("Failed to retrieve the job id").into_iter().filter(|line| line.contains(&id)).collect();
        let [line] = failures.try_into().unwrap();
        for part in ["ERROR", &format!("reason=\"{reason}\""), "total_attempts=0 "] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    assert_eq!(lines.with("Failed to retrieve the job id").len(), 3, "the order of our own fleet has no job id");

    let manual = lines.with("Manual action required by supporting reservation team");
    let paid = ["ORD-UNPOLLED", "ORD-UNBOOKED", "ORD-FLEET"];
    assert_eq!(manual.len(), paid.len(), "{manual:?}");
    let refunds = lines.with("Order cancelled after payment - manual refund required");
    for order in paid {
        let fields = format!("order_id={order} alert_type=\"MANUAL_REFUND_REQUIRED\"");
        assert!(manual.iter().any(|line| line.contains("WARN") && line.contains(&fields)), "{fields}: {manual:?}");
        let field = format!("order_id={order}");
        assert_eq!(refunds.iter().filter(|line| line.contains("WARN") && line.contains(&field)).count(), 1, "{order}");
    }
    let [unpaid] = lines.with("Order cancelled (no payment)").try_into().unwrap();
    assert!(unpaid.contains("INFO") && unpaid.contains("order_id=ORD-UNPAID"), "{unpaid}");
}

// Rule L1: An order with several bookings counts once: at its first job id, or at its end without one.
#[tokio::test]
async fn orders_count_once_over_several_bookings() {
    let counting = Counting::start();
    let p = Partnership::start(PartnerKnobs { callback_rate: EventRate::NEVER, ..patient() }).await;
    p.assigned("ORD-1", "PAID").await;
    assert_eq!(p.tell("ORD-1", 1, "no_driver", serde_json::json!({})).await, "processed");
    p.run_for(secs(30)).await;
    let second = p.booking_id("ORD-1", 2).await;
    p.sim_steps(&second, "ORD-1", OrderStatus::Assigned).await;
    // A reader may see the order as assigned before the metric is updated.
    eventually("both job ids are counted", || async { counting.of("job_id_total") == ["job_id_total 2"] }).await;
    assert_eq!(counting.of("dispatchq_orders_with_job_id_total"), ["dispatchq_orders_with_job_id_total 1"]);
    // The lifetime ends without a driver, which is not a failure of the retrieval.
    p.run_for(secs(LIFETIME_S)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(counting.of("job_id_retrieval_failed_total"), Vec::<String>::new());
    assert_eq!(refund_reason(&p, "ORD-1").await, ["no driver within the lifetime of the order"]);
}
