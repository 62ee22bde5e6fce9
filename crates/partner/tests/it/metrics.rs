//! Metrics of a partner's orders.

use partner_sim::{PartnerKnobs, values::EventRate};

use model::order::OrderStatus;
use test_support::{
    Counting, Scrape,
    partnership::{Partnership, partner, patient, silent},
    secs,
};

/// Returns the job id metrics with a nonzero value.
fn job_ids(counting: &Counting) -> Vec<String> {
    counting.of("job_id_")
}

#[tokio::test]
async fn polls_of_one_job_id_count_once() {
    let counting = Counting::start();
    let p = Partnership::start(silent()).await;
    let booking_id = p.booked("ORD-1", "PAID").await;
    assert_eq!(job_ids(&counting), Vec::<String>::new());
    p.run_for(secs(30)).await;
    let asked = p.snapshot("ORD-1").await.order.poll_no;
    assert!(asked > 1, "{asked} polls");
    assert_eq!(job_ids(&counting), ["job_id_retrieval_attempts_total 1"]);

    p.sim.take_step(&booking_id);
    p.run_for(secs(60)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::Assigned);
    let retrieved = [
        "job_id_retrieval_attempts_count 1",
        "job_id_retrieval_attempts_total 1",
        "job_id_retrieval_duration_seconds_count 1",
        "job_id_retrieval_success_total 1",
        "job_id_total 1",
        "job_id_via_proactive_total 1",
    ];
    assert_eq!(job_ids(&counting), retrieved);
    let average = counting.read().value("job_id_retrieval_attempts_sum");
    assert!(average > f64::from(asked), "{average} questions, the one that was answered included");
    let questions = counting.read();
    let [put, baseline] =
        ["", "_baseline"].map(|part| questions.value(&format!("dispatchq_job_id_questions{part}_total")));
    assert_eq!(put, average);
    assert!(baseline >= 15.0, "half a minute has 15 questions of the baseline: {baseline}");

    // Later polls are about the driver and the trip, not about the job id.
    p.sim.take_step(&booking_id);
    p.run_for(secs(1200)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::DriverAssigned);
    assert_eq!(job_ids(&counting), retrieved);
    let calls = counting.of("dispatchq_partner_calls_total");
    assert_eq!(calls[0], "dispatchq_partner_calls_total{call=\"book\",partner=\"bbd\",result=\"ok\"} 1");
    let polls =
        format!("dispatchq_partner_calls_total{{call=\"job_status\",partner=\"bbd\",result=\"ok\"}} {}", p.polls());
    assert_eq!(calls[1..], [polls]);
}

#[tokio::test]
async fn a_job_id_that_comes_by_callback_is_no_retrieval() {
    let counting = Counting::start();
    let p = Partnership::start(patient()).await;
    let booking_id = p.assigned("ORD-1", "PAID").await;
    p.run_due().await;
    let by_callback = ["job_id_retrieval_duration_seconds_count 1", "job_id_total 1", "job_id_via_callback_total 1"];
    assert_eq!(job_ids(&counting), by_callback);
    // The baseline counts at least one poll.
    assert_eq!(counting.of("dispatchq_job_id_questions"), ["dispatchq_job_id_questions_baseline_total 1"]);
    // The trip is polled occasionally.
    p.sim_steps(&booking_id, "ORD-1", OrderStatus::DriverAssigned).await;
    p.run_for(secs(1200)).await;
    assert!(p.polls() > 0);
    assert_eq!(job_ids(&counting), by_callback);
}

// Rule L1: An order that never gets a job id counts as one failure when it ends, even if polling ended earlier.
#[tokio::test]
async fn asking_in_vain_fails_once_whichever_time_is_over_first() {
    let failed = [
        "job_id_retrieval_attempts_total 1",
        "job_id_retrieval_failed_total{reason=\"timeout\"} 1",
        "job_id_retrieval_max_retries_exceeded_total 1",
    ];
    for budget in [secs(60), secs(7200)] {
        let counting = Counting::start();
        let p = Partnership::with(silent(), |config| partner(config).poll.budget = budget).await;
        p.booked("ORD-1", "PAID").await;
        p.run_for(secs(1799)).await;
        assert_eq!(job_ids(&counting), failed[..1], "a callback may still come: {budget:?}");
        p.run_for(secs(1)).await;
        assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
        assert_eq!(job_ids(&counting), failed, "{budget:?}");
    }
}

#[tokio::test]
async fn a_booking_the_partner_has_lost_fails_with_time_left() {
    let counting = Counting::start();
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    p.sql("UPDATE bookings SET booking_id = 'B-never-was'").await;
    p.run_for(secs(180)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(
        job_ids(&counting),
        ["job_id_retrieval_attempts_total 1", "job_id_retrieval_failed_total{reason=\"not_found\"} 1"]
    );
    let attempts = counting.of("dispatcher_attempt_total");
    assert_eq!(attempts, ["dispatcher_attempt_total{area_id=\"\",result=\"timeout\",service_type=\"TAXI\"} 1"]);
}

#[tokio::test]
async fn failed_calls_are_counted_and_open_breaker() {
    let counting = Counting::start();
    let p = Partnership::start(PartnerKnobs { error_503_rate: EventRate::ALWAYS, ..silent() }).await;
    let (at, _stop) = counting.shown(&p.app).await;
    let left_alone = async || Scrape::ask(&at).await.value("dispatchq_partner_breaker_open{partner=\"bbd\"}");
    let transient = "dispatchq_partner_calls_total{call=\"book\",partner=\"bbd\",result=\"transient\"}";
    p.taxi("ORD-1", "PAID").await;
    p.run_due().await;
    assert_eq!(counting.of("dispatchq_partner_calls_total"), [format!("{transient} 1")]);
    assert_eq!(left_alone().await, 0.0, "one failure is none");
    p.run_for(secs(300)).await;
    assert!(counting.read().value(transient) >= 10.0);
    assert_eq!(left_alone().await, 1.0);
    p.advance(secs(60)).await;
    assert_eq!(left_alone().await, 1.0, "half open: whether it is back is not known yet");
    p.app.core.store.breaker_succeeded("partner:bbd").await.unwrap();
    assert_eq!(left_alone().await, 0.0);
}
