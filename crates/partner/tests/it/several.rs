//! Two partners for one service type: shares, failover, and bookings that stay with their partner.

use chrono::Utc;
use partner_sim::{OutageKind, PartnerSim, PartnerSimOptions};
use serde_json::json;

use desk::explain::gather;
use model::{
    order::{BookingState, OrderStatus},
    partner::choice::ListedPartner,
};
use queue::store::BreakerPolicy;
use settings::Config;
use test_support::{
    Counting, id,
    partnership::{PARTNER, Partnership, SECRET, SERVICE, configured, silent},
    secs,
};

const OTHER: &str = "xyz";

/// Starts a partnership with `bbd` and, for the same service type, `xyz`. Without shares, `bbd` is preferred.
async fn two_partners(shares: Option<[u32; 2]>) -> (Partnership, PartnerSim) {
    let other =
        PartnerSim::start(&PartnerSimOptions { knobs: silent(), ..PartnerSimOptions::default() }).await.unwrap();
    let url = other.url();
    let p = Partnership::with(silent(), |config: &mut Config| {
        config.partners.insert(OTHER.into(), configured(&url));
        let listed = [PARTNER, OTHER].into_iter().enumerate();
        let listed = listed.map(|(n, name)| ListedPartner { name: name.into(), share: shares.map(|s| s[n]) });
        let service = config.service_types.get_mut(SERVICE).unwrap();
        (service.partner, service.partners) = (None, Some(listed.collect()));
    })
    .await;
    (p, other)
}

async fn partners_of(p: &Partnership, order: &str) -> Vec<String> {
    p.snapshot(order).await.bookings.into_iter().map(|b| b.partner.into_string()).collect()
}

async fn explained(p: &Partnership, order: &str) -> String {
    gather::explain_order(&p.app.desk, &id(order)).await.unwrap().expect("the order exists").why
}

/// Opens the breaker of this partner for two minutes.
async fn trip(p: &Partnership, partner: &str) {
    let policy = BreakerPolicy { failures: 1, open: secs(120), max_open: secs(120) };
    p.app.core.store.breaker_tripped(&format!("partner:{partner}"), &policy, "down").await.unwrap();
}

#[tokio::test]
async fn partners_get_orders_by_their_share() {
    let (p, other) = two_partners(Some([70, 30])).await;
    for n in 0..20 {
        p.taxi(&format!("ORD-{n}"), "PAID").await;
    }
    p.run_due().await;
    let counters = [p.sim.read_report().counters.bookings, other.read_report().counters.bookings];
    assert_eq!(counters, [14, 6]);
    assert_eq!(p.count("SELECT count(*) FROM orders WHERE partner = 'xyz'").await, 6);
    p.assert_sound().await;
}

#[tokio::test]
async fn open_breaker_moves_attempt_to_next_partner() {
    let counting = Counting::start();
    let (p, other) = two_partners(None).await;
    p.taxi("ORD-1", "PAID").await;
    let why = explained(&p, "ORD-1").await;
    assert!(why.contains("will be booked at bbd or xyz"), "{why}");
    trip(&p, PARTNER).await;
    p.run_due().await;
    assert_eq!(partners_of(&p, "ORD-1").await, [OTHER]);
    assert_eq!(p.snapshot("ORD-1").await.order.partner, Some(OTHER.into()));
    let why = explained(&p, "ORD-1").await;
    assert!(why.contains("Booked at xyz") && why.contains("Chosen: xyz: bbd cannot be called"), "{why}");
    let chosen = "dispatchq_partner_choices_total{partner=\"xyz\",reason=\"failover\"} 1";
    assert_eq!(counting.of("dispatchq_partner_choices_total"), [chosen]);

    // Polls for the job id and the driver go to xyz.
    let booking_id = p.booking_id("ORD-1", 1).await;
    assert!(other.take_step(&booking_id));
    p.run_for(secs(10)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::Assigned);
    assert!(other.take_step(&booking_id));
    p.run_for(secs(60)).await;
    let order = p.snapshot("ORD-1").await.order;
    assert!(order.driver_id.as_ref().is_some_and(|driver| driver.starts_with("xyz:")), "{order:?}");
    assert_eq!(p.sim.read_report().counters.requests, 0, "bbd is left alone");

    // With both breakers open, no attempt starts.
    trip(&p, OTHER).await;
    let p = restarted(p);
    p.taxi("ORD-2", "PAID").await;
    p.run_due().await;
    assert_eq!(partners_of(&p, "ORD-2").await, Vec::<String>::new());
    // The first breaker's open time is over, and the attempt tries that partner again.
    p.run_for(secs(60)).await;
    let p = restarted(p);
    p.run_for(secs(40)).await;
    assert_eq!(partners_of(&p, "ORD-2").await, [PARTNER]);
    p.assert_sound().await;
}

/// Restarts the process. A process caches breaker states by the real clock; a new process reads them from Redis.
fn restarted(mut p: Partnership) -> Partnership {
    p.restart();
    p
}

#[tokio::test]
async fn late_callback_changes_only_its_own_booking() {
    let (p, other) = two_partners(None).await;
    let first = p.booked("ORD-1", "PAID").await;
    p.tell("ORD-1", 1, "no_driver", json!({})).await;
    p.run_for(secs(15)).await;
    assert_eq!(partners_of(&p, "ORD-1").await, [PARTNER, OTHER]);
    assert_eq!(p.at_partner(&first).await["status"], "cancelled");
    let second = p.booking_id("ORD-1", 2).await;

    // A partner cannot change another partner's booking, whatever ids its callback contains.
    let foreign = p.callback("ORD-1", 1, "driver_assigned", json!({ "job_id": "J-9", "driver_id": "D-9" })).await;
    assert_eq!(p.send_signed(OTHER, &foreign, SECRET, Utc::now().timestamp()).await.status, 200);
    assert_eq!(p.texts("SELECT state FROM inbox WHERE partner = 'xyz'").await, ["ignored"]);
    assert_eq!(p.booking_states("ORD-1").await, [BookingState::Cancelled, BookingState::Booked]);

    // The first partner reports a driver late: its booking is cancelled again, and the second booking stays.
    p.tell("ORD-1", 1, "driver_assigned", json!({ "job_id": "J-1", "driver_id": "D-7" })).await;
    assert_eq!(p.booking_states("ORD-1").await, [BookingState::CancelWanted, BookingState::Booked]);
    let order = p.snapshot("ORD-1").await.order;
    assert_eq!((order.status, order.partner, order.driver_id), (OrderStatus::PendingJobId, Some(OTHER.into()), None));
    p.run_due().await;
    assert_eq!(p.booking_states("ORD-1").await, [BookingState::Cancelled, BookingState::Booked]);

    assert!(other.take_step(&second) && other.take_step(&second));
    p.run_for(secs(30)).await;
    let order = p.snapshot("ORD-1").await.order;
    assert_eq!(order.status, OrderStatus::DriverAssigned);
    assert!(order.driver_id.as_ref().is_some_and(|driver| driver.starts_with("xyz:")), "{order:?}");
    p.assert_sound().await;
}

#[tokio::test]
async fn next_partner_waits_for_the_confirmed_cancel() {
    let (p, other) = two_partners(None).await;
    let first = p.booked("ORD-1", "PAID").await;
    p.sim.change_knobs(|knobs| (knobs.down, knobs.outage_kind) = (true, OutageKind::Unavailable)).unwrap();
    p.tell("ORD-1", 1, "no_driver", json!({})).await;
    p.run_for(secs(100)).await;
    assert_eq!(p.booking_states("ORD-1").await, [BookingState::CancelWanted]);
    assert_eq!(other.read_report().counters.requests, 0);

    p.sim.change_knobs(|knobs| knobs.down = false).unwrap();
    let p = restarted(p);
    p.run_for(secs(100)).await;
    assert_eq!(partners_of(&p, "ORD-1").await, [PARTNER, OTHER]);
    assert_eq!(p.at_partner(&first).await["status"], "cancelled");
    assert_eq!(p.booking("ORD-1", 2).await.state, BookingState::Booked);
    p.assert_sound().await;
}
