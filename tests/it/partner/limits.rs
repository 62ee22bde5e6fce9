//! Two worker processes share the limits of a partner, in normal operation and after an outage.

use partner_sim::{OutageKind, PartnerKnobs, PartnerSim, PartnerSimOptions, values::EventRate};
use serde_json::json;

use crate::support::partnership::{PARTNER, SECRET, SERVICE};
use crate::support::{Fleet, by, eventually, id};
use orders::create;

const RATE: u64 = 40;
/// Number of calls of a second that may arrive at once.
const BURST: u64 = RATE / 10;
const AT_ONCE: u64 = 6;
const ORDERS: i64 = 40;

#[tokio::test]
async fn two_processes_share_the_partner_limits() {
    share_what_a_partner_bears(1).await;
}

/// The limits are stored in one shard, the jobs in all shards.
#[tokio::test]
async fn nor_do_they_with_the_orders_in_four_shards() {
    share_what_a_partner_bears(4).await;
}

async fn share_what_a_partner_bears(shards: u16) {
    let knobs = PartnerKnobs {
        job_id_delay: "0s".parse().unwrap(),
        driver_delay: "1day".parse().unwrap(),
        driver_rate: EventRate::ALWAYS,
        latency: "150ms-250ms".parse().unwrap(),
        outage_kind: OutageKind::Unavailable,
        down: true,
        ..PartnerKnobs::default()
    };
    let sim = PartnerSim::start(&PartnerSimOptions { knobs, ..PartnerSimOptions::default() }).await.unwrap();
    let more = format!(
        "[service_types.{SERVICE}]\npartner = \"{PARTNER}\"\nattempt = \"60s\"\n\
         [partners.{PARTNER}]\nurl = \"{}\"\napi_key = \"partner-sim-key\"\ncallback_secret = \"{SECRET}\"\n\
         rate_per_s = {RATE}\nmax_concurrent = {AT_ONCE}\nmax_concurrent_per_process = 4\n\
         [partners.{PARTNER}.poll]\nfirst = \"200ms\"\ninitial = \"300ms\"\nmax = \"1s\"\n\
         [partners.{PARTNER}.breaker]\nfailures = 3\nopen = \"200ms\"\nmax_open = \"500ms\"\nramp_up = \"2s\"\n",
        sim.url()
    );
    let fleet = Fleet::with("60s", &more).await;
    if shards > 1 {
        let set = fleet.run(&["shards", "set", &shards.to_string()]);
        assert_eq!(set.code, Some(0), "{set:?}");
        fleet.app.core.shards.reload(&fleet.app.core.db).await.unwrap();
    }
    let mut workers = [fleet.worker("w1"), fleet.worker("w2")];
    eventually("both workers show up", || async { fleet.app.core.store.list_workers().await.unwrap().len() == 2 })
        .await;
    for n in 0..ORDERS {
        let new = json!({ "service_type": SERVICE, "pickup": { "latitude": -6.2, "longitude": 106.8 } });
        let new = serde_json::from_value(new).unwrap();
        create::create_order(&fleet.app.orders, id(&format!("ORD-{n}")), &new, &by("producer:test")).await.unwrap();
    }
    // The partner is down, so the breaker has opened.
    fleet.reach(1, "SELECT count(*) FROM bookings WHERE tries > 0").await;
    let partner = fleet.app.partners.registry.get(&PARTNER.into()).unwrap();
    eventually("the breaker opens", || async { partner.breaker_state(&fleet.app.core.store).await.unwrap().opens > 0 })
        .await;
    let away = sim.read_report().counters;
    sim.change_knobs(|knobs| knobs.down = false).unwrap();
    fleet.reach(ORDERS, "SELECT count(*) FROM orders WHERE job_id IS NOT NULL").await;

    let counters = sim.read_report().counters;
    // A quarter is added, because calls released evenly do not arrive evenly.
    assert!(counters.max_in_a_second <= RATE + BURST + RATE / 4, "{counters:?}");
    assert!(counters.max_concurrent <= AT_ONCE, "{counters:?}");
    assert!(away.requests < 40, "{} requests while it was away", away.requests);
    assert_eq!(counters.bookings, ORDERS.unsigned_abs(), "one for each");
    for worker in &mut workers {
        worker.terminate();
        assert_eq!(worker.ended().await.code(), Some(0));
        let (settled, _) = worker.settled_and_refused();
        assert!(settled > 10, "one worker did it all: {settled} here");
    }
}
