//! Counts the Postgres statements of many concurrent orders at a partner.

use model::order::OrderStatus;
use test_support::{
    costs::{assert_no_timer_left, assert_shared, count_statements, create_orders, timer_kinds},
    eventually,
    partnership::{Partnership, SERVICE, partner, patient},
    secs,
};

#[tokio::test]
async fn a_hundred_orders_at_a_partner_share_their_statements() {
    let mut p = Partnership::with(patient(), |config| {
        let partner = partner(config);
        (partner.rate_per_s, partner.max_concurrent, partner.max_concurrent_per_process) = (10_000, 1_000, 1_000);
    })
    .await;
    count_statements(&mut p.t.postgres).await;
    let first_xid = create_orders(&p.t, &p.api, SERVICE, 0.0).await;
    let _work = p.work();
    let all_booked = "SELECT count(*) FROM bookings WHERE state = 'booked'";
    eventually("all are booked", || async { p.count(all_booked).await == 100 }).await;
    let polls = async || p.timers().await.keys().filter(|id| id.starts_with("poll:")).count();
    eventually("all are to be asked about", || async { polls().await == 100 }).await;
    // The partner is polled and has no news.
    p.advance(secs(6)).await;
    eventually("all are asked about", || async {
        p.count("SELECT count(*) FROM orders WHERE poll_no = 1").await == 100
    })
    .await;
    for status in [OrderStatus::Assigned, OrderStatus::DriverAssigned, OrderStatus::PickedUp, OrderStatus::Completed] {
        for booking in p.texts("SELECT booking_id FROM bookings").await {
            assert!(p.sim.take_step(&booking));
        }
        let reached = format!("SELECT count(*) FROM orders WHERE status = '{}'", status.as_str());
        eventually(status.as_str(), || async { p.count(&reached).await == 100 }).await;
        if status == OrderStatus::Assigned {
            eventually("each attempt has its timeout", || async {
                timer_kinds(&p.t).await.get("timeout") == Some(&100)
            })
            .await;
        }
    }
    assert_no_timer_left(&p.t).await;
    assert_shared(&p.t, first_xid).await;
    p.assert_at_rest().await;
}
