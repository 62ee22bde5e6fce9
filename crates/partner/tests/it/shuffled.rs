//! Complete lives of partner orders whose events occur in an order that depends on a seed.

use partner_sim::values::EventRate;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use model::decide::{actions, money};
use test_support::{
    by,
    partnership::{Partnership, silent},
    secs,
};

/// A partner event, which the test delivers later.
struct Letter {
    attempt: i32,
    kind: &'static str,
    fields: Value,
}

/// Runs an order through random events in an order that depends on the seed.
async fn shuffled_life(p: &Partnership, seed: u64) {
    let order = format!("ORD-{seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let payment = ["UNPAID", "PAID", "PENDING", "SETTLEMENT"][rng.random_range(0..4)];
    let mut letters: Vec<Letter> = Vec::new();
    p.lose_answers(if rng.random_bool(0.5) { EventRate::ALWAYS } else { EventRate::NEVER });
    p.taxi(&order, payment).await;
    p.run_due().await;
    for turn in 0..rng.random_range(6..20) {
        match rng.random_range(0..20) {
            0..6 => letters.extend(partner_goes_on(p, &order).await),
            6..12 if !letters.is_empty() => {
                let n = rng.random_range(0..letters.len());
                let Letter { attempt, kind, fields } = &letters[n];
                p.tell(&order, *attempt, kind, fields.clone()).await;
                if rng.random_bool(0.7) {
                    letters.swap_remove(n);
                }
            }
            12 => p.lose_answers(if rng.random_bool(0.5) { EventRate::ALWAYS } else { EventRate::NEVER }),
            13 => drop(p.run_for(secs(rng.random_range(1..10))).await),
            14 => drop(p.run_for(secs(rng.random_range(10..200))).await),
            15 => {
                let s = p.snapshot(&order).await;
                let known = s.bookings.iter().rfind(|b| b.booking_id.is_some());
                if let Some(booking) = known {
                    let other = json!({ "job_id": "J-other" });
                    p.tell(&order, booking.attempt_no, "job_id_assigned", other).await;
                }
            }
            16 => {
                let status = ["PENDING", "PAID", "SETTLEMENT"][rng.random_range(0..3)].to_owned().try_into().unwrap();
                let pay = |s: &_| money::record_payment(s, &by("producer:test"), &format!("P-{turn}"), &status);
                p.act(&order, pay).await.unwrap();
            }
            17 if rng.random_bool(0.3) => drop(p.cancel(&order).await),
            18 if rng.random_bool(0.3) => drop(p.run_for(secs(1800)).await),
            _ => drop(p.run_due().await),
        }
    }
    p.lose_answers(EventRate::NEVER);
    // An order with its passenger aboard completes; a waiting order is not served.
    while p.snapshot(&order).await.order.closed_at.is_none() {
        p.run_for(secs(700)).await;
        if p.status(&order).await.occupies_driver() {
            partner_goes_on(p, &order).await;
        }
        if p.snapshot(&order).await.order.held_for_review {
            p.act(&order, |s| actions::cancel_order(s, &by("operator:test"), None)).await.unwrap();
        }
    }
    p.run_for(secs(60)).await;
    // Trips of orders that were cancelled too late are completed too.
    for booking_id in p.sim.read_report().open {
        assert_eq!(p.at_partner(&booking_id).await["status"], "picked_up");
        p.sim.take_step(&booking_id);
    }
}

/// Advances the order's open booking by one step and returns the resulting event.
async fn partner_goes_on(p: &Partnership, order: &str) -> Option<Letter> {
    let open = p.sim.read_report().open;
    let booking_id = open.first()?;
    p.sim.take_step(booking_id);
    let said = p.at_partner(booking_id).await;
    let kind = match said["status"].as_str().unwrap() {
        "searching" => "job_id_assigned",
        "driver_assigned" => "driver_assigned",
        "picked_up" => "picked_up",
        "completed" => "completed",
        other => panic!("no request makes it {other}"),
    };
    let s = p.snapshot(order).await;
    let known = s.bookings.iter().find(|b| b.booking_id.as_ref() == Some(booking_id));
    let attempt = known.map_or(s.order.attempt_no, |b| b.attempt_no);
    let fields = json!({ "booking_id": booking_id, "job_id": said["job_id"], "driver_id": said["driver_id"] });
    Some(Letter { attempt, kind, fields })
}

#[tokio::test]
async fn no_order_of_arrival_breaks_a_real_order() {
    let p = Partnership::start(silent()).await;
    for seed in 0..24 {
        shuffled_life(&p, seed).await;
        assert_eq!(p.violations().await, Vec::<String>::new(), "seed {seed}");
        let order = format!("ORD-{seed}");
        let (open, reasons) = (p.sim.read_report().open, p.reasons(&order).await);
        assert_eq!(open, Vec::<String>::new(), "seed {seed}: {reasons:?}, {:?}", p.snapshot(&order).await.bookings);
    }
    let ends = "SELECT count(DISTINCT status) FROM orders";
    assert!(p.count(ends).await >= 3, "{:?}", p.texts("SELECT status FROM orders").await);
    assert_eq!(p.count("SELECT count(*) FROM inbox WHERE state = 'pending'").await, 0);
    p.assert_at_rest().await;
}
