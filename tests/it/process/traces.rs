//! One trace per order, across real processes, their calls, and a Redis that loses its data. Also the effect of a
//! collector that does not answer.

use std::collections::BTreeSet;

use partner_sim::{PartnerKnobs, PartnerSim, PartnerSimOptions, values::EventRate};
use serde_json::{Value, json};

use crate::support::{
    Child, CollectedSpan, Collector, Fleet, Receiver, Relay, Scrape, eventually, hire, redis_command, secs,
    send_until_answered,
};
use accounts::{api_keys::AccountRole, key_admin};
use foundation::{
    outbound::build_client,
    traces::{OrderTrace, SampleRatio},
};
use model::ids::DriverId;

/// Trace and span ids of the requests' caller.
const CALLER: [&str; 2] = ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"];
const REBUILDS: &str = "SELECT count(*) FROM reconcile_log WHERE rebuild";

/// A client of a fleet's API.
struct Client {
    base: String,
    http: reqwest::Client,
}

impl Client {
    fn new(base: &str) -> Self {
        Self { base: base.to_owned(), http: build_client(secs(30)).unwrap() }
    }

    /// Posts from within the caller's span. `flags` states whether the caller records it.
    async fn post(&self, path: &str, key: &str, flags: &str, body: &Value) -> Value {
        let request = self.http.post(format!("{}{path}", self.base)).bearer_auth(key).json(body);
        let request = request.header("traceparent", format!("00-{}-{}-{flags}", CALLER[0], CALLER[1]));
        let answer = send_until_answered(request).await;
        assert!(answer.status().is_success(), "{path}: {answer:?}");
        answer.json().await.unwrap()
    }
}

async fn key(fleet: &Fleet, name: &str, role: AccountRole, driver: Option<&DriverId>) -> String {
    key_admin::create_permanent_key(&fleet.app.core.db, name, role, driver).await.unwrap().1
}

fn order(id: &str, service_type: &str) -> Value {
    json!({ "order_id": id, "service_type": service_type, "payment_status": "UNPAID",
            "pickup": { "latitude": -6.2, "longitude": 106.8 } })
}

/// Stops the processes. They send their last spans before they exit.
async fn end_in_order(children: Vec<Child>) {
    for mut child in children {
        child.terminate();
        assert!(child.ended().await.success());
    }
}

/// Asserts that all spans belong to the order's trace, which has one root and no missing parent.
fn assert_one_trace(spans: &[CollectedSpan], order: &str) {
    let trace = OrderTrace::of_order(order);
    let strays: Vec<_> = spans.iter().filter(|span| span.trace != trace.trace_id.to_string()).collect();
    assert!(strays.is_empty(), "{strays:#?}");
    let ids: BTreeSet<_> = spans.iter().map(|span| span.id.as_str()).collect();
    assert_eq!(ids.len(), spans.len(), "an id was given twice");
    let roots: Vec<_> = spans.iter().filter(|span| span.parent.is_empty()).collect();
    assert_eq!(roots.len(), 1, "{roots:#?}");
    assert_eq!((roots[0].name.as_str(), &roots[0].id), ("order", &trace.root.to_string()));
    let orphans: Vec<_> =
        spans.iter().filter(|span| !span.parent.is_empty() && !ids.contains(span.parent.as_str())).collect();
    assert!(orphans.is_empty(), "{orphans:#?}");
}

fn named<'a>(spans: &'a [CollectedSpan], process: &str, name: &str) -> Vec<&'a CollectedSpan> {
    spans.iter().filter(|span| span.process == process && span.name == name).collect()
}

/// Asserts that the span named in the `traceparent` of a request has this name.
fn assert_sent_by(spans: &[CollectedSpan], traceparent: &str, name: &str) {
    let mut parts = traceparent.split('-');
    assert_eq!(parts.next(), Some("00"), "{traceparent}");
    let (trace, id, flags) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    assert_eq!(flags, "01", "{traceparent}");
    let sender = spans.iter().find(|span| (span.trace.as_str(), span.id.as_str()) == (trace, id));
    assert_eq!(sender.unwrap_or_else(|| panic!("no span sent {traceparent}")).name, name);
}

#[tokio::test]
async fn order_is_one_trace_even_across_flush() {
    let (collector, drivers) = (Collector::start().await, Receiver::start().await);
    let fleet = Fleet::with(
        "30m",
        &format!(
            "{}[service_types.RIDE]\nattempt = \"20m\"\n[channels.hook]\ntype = \"webhook\"\nurl = \"{}\"\n\
             [notifications]\ndriver = [\"hook\"]\n",
            collector.settings(1.0),
            drivers.url("/hook")
        ),
    )
    .await;
    hire(&fleet.app, 2).await;
    let (api, base) = fleet.api().await;
    let workers = [fleet.running_worker("w1").await, fleet.running_worker("w2").await];
    let client = Client::new(&base);
    let shop = key(&fleet, "shop", AccountRole::Producer, None).await;

    client.post("/api/v1/orders", &shop, "01", &order("ORD-1", "RIDE")).await;
    let offers = || drivers.received().into_iter().filter(|message| message.body["type"] == "OFFER");
    eventually("a driver is asked", || async { offers().count() == 1 }).await;
    let before = fleet.count(REBUILDS).await;
    redis_command::<()>(&fleet.redis.url(), &["FLUSHALL"]).await;
    fleet.reach(before + 1, REBUILDS).await;

    let offered = |message: &Value| {
        let of = |name: &str| message["data"][name].as_str().unwrap().to_owned();
        (of("driver_id"), json!({ "driver_id": of("driver_id"), "offer_id": of("offer_id") }))
    };
    let (driver, answer) = offered(&offers().next().unwrap().body);
    let declines = key(&fleet, &driver, AccountRole::Driver, Some(&DriverId::from(driver.as_str()))).await;
    client.post("/api/v1/orders/ORD-1/decline", &declines, "01", &answer).await;
    eventually("the next driver is asked", || async { offers().count() == 2 }).await;
    let (driver, answer) = offered(&offers().last().unwrap().body);
    let accepts = key(&fleet, &driver, AccountRole::Driver, Some(&DriverId::from(driver.as_str()))).await;
    // This caller does not record its span.
    client.post("/api/v1/orders/ORD-1/accept", &accepts, "00", &answer).await;
    client.post("/api/v1/orders/ORD-1/pickup", &accepts, "01", &json!({})).await;
    client.post("/api/v1/orders/ORD-1/complete", &accepts, "01", &json!({})).await;
    fleet.at_rest().await;
    let [first, second] = workers;
    end_in_order(vec![api, first, second]).await;

    let spans = collector.spans();
    assert_one_trace(&spans, "ORD-1");
    for name in [
        "order",
        "create",
        "POST /api/v1/orders/{id}/decline",
        "POST /api/v1/orders/{id}/accept",
        "POST /api/v1/orders/{id}/pickup",
        "POST /api/v1/orders/{id}/complete",
    ] {
        assert!(!named(&spans, "serve", name).is_empty(), "{name}: {spans:#?}");
    }
    for name in ["job dispatch", "change", "channel deliver"] {
        assert!(!named(&spans, "work", name).is_empty(), "{name}: {spans:#?}");
    }
    let late = named(&spans, "work", "job dispatch").iter().all(|span| span.integers.contains("job.lateness_ms"));
    assert!(late, "a collector can search for late jobs: {spans:#?}");
    // Requests link to callers that record their spans. Changes within a request do not repeat the link.
    let linked: BTreeSet<_> =
        spans.iter().filter(|span| !span.links.is_empty()).map(|span| span.name.as_str()).collect();
    let to_caller = [
        "POST /api/v1/orders/{id}/complete",
        "POST /api/v1/orders/{id}/decline",
        "POST /api/v1/orders/{id}/pickup",
        "create",
        "order",
    ];
    assert_eq!(linked, BTreeSet::from(to_caller));
    let [trace, span] = CALLER.map(str::to_owned);
    let link = (trace, span);
    assert!(spans.iter().flat_map(|span| &span.links).all(|found| *found == link), "{spans:#?}");
    // Messages to drivers, before and after the flush.
    for message in offers() {
        assert_sent_by(&spans, message.headers["traceparent"].to_str().unwrap(), "channel deliver");
    }
}

#[tokio::test]
async fn a_partner_is_told_the_trace_of_each_call() {
    let collector = Collector::start().await;
    let knobs = PartnerKnobs {
        driver_rate: EventRate::ALWAYS,
        driver_cancel_rate: EventRate::NEVER,
        job_id_callback_rate: EventRate::NEVER,
        callback_rate: EventRate::ALWAYS,
        ..PartnerKnobs::default()
    };
    let sim =
        PartnerSim::start(&PartnerSimOptions { knobs, speed: 1_000.0, ..PartnerSimOptions::default() }).await.unwrap();
    let relay = Relay::to_server(&sim.url()).await;
    let fleet = Fleet::with("30m", &collector.settings(1.0)).await;
    fleet.configure(&format!(
        "[partners.bbd]\nurl = \"{}\"\napi_key = \"partner-sim-key\"\n\
         callback_secret = \"whsec_ZGlzcGF0Y2hxIHBhcnRuZXIgc2ltdWxhdG9y\"\n\
         poll = {{ first = \"200ms\", initial = \"100ms\", follow = \"200ms\" }}\n\
         [service_types.TAXI]\npartner = \"bbd\"\nattempt = \"10m\"\nlifetime = \"20m\"\n",
        relay.url()
    ));
    let (api, base) = fleet.api().await;
    sim.change_knobs(|knobs| knobs.callback_url = Some(format!("{base}/api/v1/callbacks/bbd"))).unwrap();
    let worker = fleet.running_worker("w1").await;
    let shop = key(&fleet, "shop", AccountRole::Producer, None).await;
    Client::new(&base).post("/api/v1/orders", &shop, "00", &order("TAXI-1", "TAXI")).await;
    fleet.reach(1, "SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await;
    fleet.at_rest().await;
    end_in_order(vec![api, worker]).await;

    let spans = collector.spans();
    assert_one_trace(&spans, "TAXI-1");
    assert!(spans.iter().all(|span| span.links.is_empty()), "the producer records nothing: {spans:#?}");
    let seen = relay.seen();
    assert!(seen.iter().any(|request| request.path == "/bookings"), "{seen:?}");
    assert!(seen.iter().any(|request| request.path == "/job-status"), "{seen:?}");
    for request in seen {
        let call = if request.path == "/bookings" { "partner book" } else { "partner ask" };
        assert_sent_by(&spans, request.headers["traceparent"].to_str().unwrap(), call);
    }
}

/// Creates and cancels these orders, and stops the processes after all work is done.
async fn serve_orders(collector: &Collector, sample_ratio: f64, ids: &[String]) {
    let fleet = Fleet::with("30m", &collector.settings(sample_ratio)).await;
    let (api, base) = fleet.api().await;
    let worker = fleet.running_worker("w1").await;
    let shop = key(&fleet, "shop", AccountRole::Producer, None).await;
    let client = Client::new(&base);
    for id in ids {
        client.post("/api/v1/orders", &shop, "01", &order(id, "RIDE")).await;
        client.post(&format!("/api/v1/orders/{id}/cancel"), &shop, "01", &json!({})).await;
    }
    fleet.at_rest().await;
    end_in_order(vec![api, worker]).await;
}

#[tokio::test]
async fn sampled_order_is_traced_completely_or_never() {
    let collector = Collector::start().await;
    let ids: Vec<_> = (0..12).map(|n| format!("ORD-{n}")).collect();
    let half = SampleRatio::new(0.5);
    let is_sampled = |id: &String| half.includes(OrderTrace::of_order(id).trace_id);
    let sampled: BTreeSet<String> =
        ids.iter().filter(|id| is_sampled(id)).map(|id| OrderTrace::of_order(id).trace_id.to_string()).collect();
    assert!((1..ids.len()).contains(&sampled.len()), "these ids say nothing: {sampled:?}");
    serve_orders(&collector, 0.5, &ids).await;
    assert_eq!(collector.traces(), sampled);
    let spans = collector.spans();
    for id in &ids {
        let of_order: Vec<_> = spans.iter().filter(|span| span.texts.get("order.id") == Some(id)).cloned().collect();
        let named = |name: &str| of_order.iter().filter(|span| span.name == name).count();
        let expected = usize::from(is_sampled(id));
        assert_eq!((named("create"), named("POST /api/v1/orders/{id}/cancel")), (expected, expected), "{id}");
    }
}

#[tokio::test]
async fn a_share_of_nothing_sends_nothing() {
    let collector = Collector::start().await;
    serve_orders(&collector, 0.0, &["ORD-1".to_owned()]).await;
    assert_eq!(collector.receiver.received(), []);
}

#[tokio::test]
async fn unavailable_collector_delays_no_order() {
    let collector = Collector::start().await;
    collector.receiver.hold();
    let hanging = format!("{}timeout = \"60s\"\nmax_queued_spans = 1\nflush = \"0s\"\n", collector.settings(1.0));
    // The discard port, which has no listener.
    let gone = "[traces]\nendpoint = \"http://127.0.0.1:9/v1/traces\"\nsample_ratio = 1.0\n".to_owned();
    for (settings, result) in [(hanging, "queue_full"), (gone, "failed")] {
        let fleet = Fleet::with("30m", &settings).await;
        let (api, at_api) = fleet.spawn_showing("api", &["serve"]).await;
        eventually("the API listens", || async { api.said("Serving the API", "address").is_some() }).await;
        let base = format!("http://{}", api.said("Serving the API", "address").unwrap());
        let worker = fleet.running_worker("w1").await;
        let shop = key(&fleet, "shop", AccountRole::Producer, None).await;
        let client = Client::new(&base);
        let series = format!("dispatchq_trace_spans_total{{result=\"{result}\"}}");
        let mut orders = 0;
        while Scrape::ask(&at_api).await.value(&series) == 0.0 {
            let path = format!("/api/v1/orders/ORD-{orders}/cancel");
            client.post("/api/v1/orders", &shop, "01", &order(&format!("ORD-{orders}"), "RIDE")).await;
            client.post(&path, &shop, "01", &json!({})).await;
            orders += 1;
        }
        assert!(orders > 0, "no span was dropped before there was one");
        // Each order was answered and processed without delay, and shutdown does not wait for a collector.
        fleet.at_rest().await;
        assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE closed_at IS NOT NULL").await, orders);
        end_in_order(vec![api, worker]).await;
    }
}
