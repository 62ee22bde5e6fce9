//! The process dies at each side effect of each handler, and its orders still end correctly.

use std::time::Instant;

use partner_sim::{PartnerKnobs, PartnerSim, PartnerSimOptions, values::EventRate};
use serde_json::{Value, json};

use crate::support::partnership::{PARTNER, SECRET, SERVICE};
use crate::support::{Child, Fleet, by, eventually, id, millis, secs, update_order};
use accounts::{api_keys::AccountRole, key_admin};
use foundation::outbound;
use maintenance::audit;
use model::{decide::actions, partner::observation::CallbackBody};
use orders::create;
use partner::inbox;

/// Knobs with which six of ten bookings find a driver quickly, half of the callbacks are lost, and one in five arrives
/// twice.
fn lively() -> PartnerKnobs {
    let knobs = json!({
        "job_id_delay": "50ms-300ms", "driver_delay": "50ms-400ms", "no_driver_delay": "300ms-3s",
        "pickup_delay": "50ms-200ms", "trip_duration": "50ms-200ms", "callback_delay": "0s-200ms",
        "driver_rate": 0.6, "driver_cancel_rate": 0.1, "job_id_callback_rate": 0.5, "callback_rate": 0.5,
        "doubled_callback_rate": 0.2, "latency": "0s-20ms",
    });
    serde_json::from_value(knobs).unwrap()
}

/// Servers, a partner, and later processes. An attempt takes one second, and an order lives six.
struct Scene {
    fleet: Fleet,
    sim: PartnerSim,
}

impl Scene {
    async fn start(knobs: PartnerKnobs) -> Self {
        let sim = PartnerSim::start(&PartnerSimOptions { knobs, ..PartnerSimOptions::default() }).await.unwrap();
        let more = format!(
            "[service_types.{SERVICE}]\npartner = \"{PARTNER}\"\nattempt = \"1s\"\n\
             [partners.{PARTNER}]\nurl = \"{}\"\napi_key = \"partner-sim-key\"\ncallback_secret = \"{SECRET}\"\n\
             [partners.{PARTNER}.poll]\nfirst = \"200ms\"\ninitial = \"100ms\"\nmax = \"500ms\"\nfollow = \"500ms\"\n",
            sim.url()
        );
        Self { fleet: Fleet::with("6s", &more).await, sim }
    }

    /// Starts the API with these settings and directs callbacks to it.
    async fn api(&self, settings: &[(&str, &str)]) -> (Child, String) {
        let (api, base) = self.fleet.api_with(settings).await;
        let url = format!("{base}/api/v1/callbacks/{PARTNER}");
        self.sim.change_knobs(|knobs| knobs.callback_url = Some(url)).unwrap();
        (api, base)
    }

    async fn order(&self, n: usize) {
        let payment = ["UNPAID", "PAID", "PENDING", "SETTLEMENT"][n % 4];
        let new = json!({ "service_type": SERVICE, "payment_status": payment,
                          "pickup": { "latitude": -6.2, "longitude": 106.8 } });
        let new = serde_json::from_value(new).unwrap();
        create::create_order(&self.fleet.app.orders, id(&format!("ORD-{n}")), &new, &by("producer:test"))
            .await
            .unwrap();
    }

    fn doomed_worker(&self, point: &str) -> Child {
        self.fleet.worker_with(point, &[("CRASH_AT", point)])
    }

    /// Starts one worker per crash point. Orders are created until the last worker has died; every fifth is cancelled.
    async fn workers_die_at(&self, points: &[&str]) {
        let mut doomed: Vec<_> = points.iter().map(|point| (*point, self.doomed_worker(point))).collect();
        let start = Instant::now();
        let mut orders = 0;
        for tick in 0.. {
            let left: Vec<_> = doomed.iter().map(|(point, _)| *point).collect();
            if left.is_empty() {
                break;
            }
            assert!(start.elapsed() < secs(120), "no worker came by {left:?}");
            // New orders are needed until the end, because any timer of an order may be the first to see its end.
            if orders < 60 || tick % 3 == 0 {
                self.order(orders).await;
                if orders % 5 == 4 {
                    let cancel = |s: &_| actions::cancel_order(s, &by("producer:test"), None);
                    // The order may have ended already.
                    let _ = update_order(&self.fleet.app.orders, &id(&format!("ORD-{}", orders - 2)), cancel).await;
                }
                orders += 1;
            }
            tokio::time::sleep(millis(100)).await;
            for (point, mut child) in std::mem::take(&mut doomed) {
                if child.runs() {
                    doomed.push((point, child));
                } else if child.log().contains("did not answer 'ping'") {
                    // On a slow machine the worker exits before the crash point. A supervisor would restart it.
                    doomed.push((point, self.doomed_worker(point)));
                } else {
                    assert!(child.log().contains(&format!("CRASH_AT={point}")), "{point}: {}", child.log());
                }
            }
        }
    }

    /// Asserts that every order, booking and callback ends, and that the partner has no open booking.
    async fn assert_all_end(&self) {
        let open =
            "SELECT (SELECT count(*) FROM bookings WHERE state IN ('intent', 'unknown', 'booked', 'cancel_wanted'))
                    + (SELECT count(*) FROM inbox WHERE state = 'pending')";
        self.fleet.at_rest().await;
        eventually("all bookings have ended", || async { self.fleet.count(open).await == 0 }).await;
        assert_eq!(audit::check_history(&self.fleet.app.maintenance).await.unwrap(), []);
        assert_eq!(self.sim.read_report().open, Vec::<String>::new());
        assert_eq!(self.fleet.count("SELECT count(*) FROM orders WHERE held_for_review").await, 0);
        assert_eq!(self.fleet.count("SELECT count(*) FROM orders WHERE closed_at IS NULL").await, 0);
        let dead: u64 =
            self.fleet.app.core.store.queue_stats(&jobs::queues::ALL).await.unwrap().iter().map(|s| s.dead).sum();
        assert_eq!(dead, 0);
    }
}

async fn survive(knobs: PartnerKnobs, points: &[&str]) {
    let scene = Scene::start(knobs).await;
    let (_api, _) = scene.api(&[]).await;
    scene.workers_die_at(points).await;
    scene.sim.change_knobs(|knobs| knobs.driver_rate = lively().driver_rate).unwrap();
    let _survivor = scene.fleet.worker("survivor");
    // Some of these orders have time for a trip, however slow the machine is.
    for n in 100..115 {
        scene.order(n).await;
    }
    scene.assert_all_end().await;
    assert!(scene.fleet.count("SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await > 0);
}

#[tokio::test]
async fn a_worker_may_die_at_every_step_of_a_booking() {
    survive(
        lively(),
        &[
            "intent.decided",
            "intent.written",
            "book.sends",
            "book.answered",
            "dispatch.learnt",
            "dispatch.returns",
            "update.commits:3",
            "update.committed:3",
        ],
    )
    .await;
}

#[tokio::test]
async fn worker_crash_during_job_id_poll_is_recovered() {
    survive(
        lively(),
        &[
            "ask.sends",
            "ask.answered",
            "poll.learnt",
            "poll.returns",
            "timeout.learnt",
            "timeout.returns",
            "update.commits:7",
            "update.committed:7",
        ],
    )
    .await;
}

#[tokio::test]
async fn worker_crash_during_cancel_or_message_is_recovered() {
    survive(
        lively(),
        &[
            "cancel.sends",
            "cancel.answered",
            "cancel-booking.learnt",
            "cancel-booking.returns",
            "notify.sent",
            "notify.returns",
        ],
    )
    .await;
}

#[tokio::test]
async fn worker_crash_during_order_ending_is_recovered() {
    // Few orders find a driver, so most reach the end of their lifetime.
    let unlucky = PartnerKnobs { driver_rate: "0.1".parse().unwrap(), ..lively() };
    survive(
        unlucky,
        &[
            "lifetime.decided",
            "lifetime.returns",
            "compensate.decided",
            "compensate.returns",
            "update.commits:20",
            "update.committed:20",
        ],
    )
    .await;
}

/// The API dies while it handles a request or a callback. A worker dies with a callback that the API left behind.
#[tokio::test]
async fn crash_at_any_callback_step_is_recovered() {
    let lucky = PartnerKnobs { driver_rate: EventRate::ALWAYS, driver_cancel_rate: EventRate::NEVER, ..lively() };
    let scene = Scene::start(PartnerKnobs { job_id_callback_rate: EventRate::ALWAYS, ..lucky.clone() }).await;
    let worker = scene.fleet.worker("first");
    let mut orders = 100..;
    for point in ["callback.stored", "callback.learnt", "callback.enqueues", "update.commits"] {
        let (mut api, _) = scene.api(&[("CRASH_AT", point)]).await;
        let start = Instant::now();
        // On a slow machine the worker may poll before each callback of an order arrives. The callback then changes
        // nothing.
        while api.runs() {
            assert!(start.elapsed() < secs(120), "no callback came by {point}");
            scene.order(orders.next().unwrap()).await;
            let _ = tokio::time::timeout(millis(500), api.ended()).await;
        }
        assert!(!api.ended().await.success(), "{point}");
    }
    let (_, key) =
        key_admin::create_permanent_key(&scene.fleet.app.core.db, "shop", AccountRole::Producer, None).await.unwrap();
    let new = json!({ "service_type": SERVICE, "pickup": { "latitude": -6.2, "longitude": 106.8 } });
    let client = outbound::build_client(secs(10)).unwrap();
    for point in ["request.enqueues", "request.enqueues:2"] {
        let (mut api, base) = scene.api(&[("CRASH_AT", point)]).await;
        let create = || client.post(format!("{base}/api/v1/orders")).bearer_auth(&key).json(&new).send();
        while create().await.is_ok() {}
        assert!(!api.ended().await.success(), "{point}");
    }
    drop(worker);

    // These callbacks were stored by an API that died. Only the reconciler finds them.
    scene
        .sim
        .change_knobs(|knobs| (knobs.job_id_callback_rate, knobs.callback_rate) = (EventRate::NEVER, EventRate::NEVER))
        .unwrap();
    let doomed = ["callback.learnt", "callback.returns", "update.commits:6"];
    let start = |point: &&str| scene.fleet.worker_with(point, &[("CRASH_AT", point)]);
    // The third worker may die at any booking. If it started with the others, it could take all bookings.
    let mut workers: Vec<_> = doomed[..2].iter().map(start).collect();
    for n in 10..30 {
        scene.order(n).await;
    }
    scene.fleet.reach(10, "SELECT count(*) FROM bookings WHERE booking_id IS NOT NULL").await;
    workers.push(start(&doomed[2]));
    leave_callbacks_behind(&scene).await;
    for (worker, point) in workers.iter_mut().zip(doomed) {
        assert!(!worker.ended().await.success(), "{point}");
    }

    scene
        .sim
        .change_knobs(|knobs| {
            (knobs.job_id_callback_rate, knobs.callback_rate) = (EventRate::ALWAYS, EventRate::ALWAYS);
        })
        .unwrap();
    let (_api, _) = scene.api(&[]).await;
    let _survivor = scene.fleet.worker("survivor");
    scene.assert_all_end().await;
    assert_eq!(scene.fleet.count("SELECT count(*) FROM inbox WHERE state NOT IN ('processed', 'ignored')").await, 0);
}

/// Stores callbacks as the API does before it handles them: one per booking, with the job id if there is one.
async fn leave_callbacks_behind(scene: &Scene) {
    let bookings: Vec<(String, i32, String)> =
        sqlx::query_as("SELECT order_id, attempt_no, booking_id FROM bookings WHERE booking_id IS NOT NULL")
            .fetch_all(&scene.fleet.app.core.db)
            .await
            .unwrap();
    let client = outbound::build_client(secs(10)).unwrap();
    for (order, attempt, booking_id) in bookings {
        let url = format!("{}/_sim/bookings/{booking_id}", scene.sim.control_url());
        let booking: Value = client.get(url).send().await.unwrap().json().await.unwrap();
        let raw = json!({ "event_id": format!("E-left-{order}-{attempt}"), "type": "job_id_assigned",
                          "booking_id": booking_id, "job_id": booking["job_id"],
                          "reference": format!("{order}:{attempt}") });
        let body: CallbackBody = serde_json::from_value(raw.clone()).unwrap();
        inbox::store_callback(&scene.fleet.app.orders.rows, &PARTNER.into(), &body, &raw).await.unwrap();
    }
}
