//! Names, labels and label values of metrics as real processes expose them.

use std::{collections::BTreeSet, time::Instant};

use model::binding::BindingCommand;
use partner_sim::{PartnerKnobs, PartnerSim, PartnerSimOptions, values::EventRate};
use provider_sim::{ProviderSim, ProviderSimOptions};
use serde_json::{Value, json};

use super::rules::queries;
use crate::support::{
    Crowd, Fleet, PATIENCE, Prometheus, Scrape, by, eventually, hire, last_value, millis, secs, send_until_answered,
};
use accounts::{api_keys::AccountRole, key_admin};
use areas::{
    import,
    table::{
        ChangeAuthor, flag, geofences,
        limits::{self, LimitsChange},
    },
};
use bindings::{commands, servers, store::servers::ServerSettings};
use foundation::staff_actions::ActionAuthor;
use maintenance::proof::violations;
use model::{
    actor::{Actor, ActorRole},
    admission::limits::AdmissionFlag,
};
use partner::client::settings;

/// Speed of the partner simulator. A trip ends almost at once.
const SPEED: f64 = 1_000.0;

/// Returns the rows of the table in docs/METRICS.md.
fn documented() -> Vec<String> {
    let page = include_str!("../../../docs/METRICS.md");
    page.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect()
}

/// Returns the metric names in the table. Rules and dashboards may use only these.
pub(super) fn documented_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for row in documented() {
        let mut cells = row.split('|').map(|cell| cell.trim().trim_matches('`'));
        let (name, kind) = (cells.nth(1).unwrap(), cells.next().unwrap());
        if kind == "histogram" {
            names.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}")));
        } else {
            names.insert(name.to_owned());
        }
    }
    names
}

fn rows(scrape: &Scrape) -> Vec<String> {
    let row = |(name, family): (&String, &crate::support::Family)| {
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {} | {} | {} |", family.kind, labels.join(", "), family.help).replace("|  |", "| |")
    };
    scrape.families.iter().map(row).collect()
}

fn quick() -> PartnerKnobs {
    PartnerKnobs {
        driver_rate: EventRate::ALWAYS,
        driver_cancel_rate: EventRate::NEVER,
        job_id_callback_rate: EventRate::ALWAYS,
        callback_rate: EventRate::ALWAYS,
        ..PartnerKnobs::default()
    }
}

struct Shop {
    base: String,
    key: String,
    client: reqwest::Client,
}

impl Shop {
    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.base)).bearer_auth(&self.key).json(&body);
        let answer = send_until_answered(request).await;
        assert!(answer.status().is_success(), "{path}: {answer:?}");
        answer.json().await.unwrap()
    }

    async fn order(&self, service_type: &str, payment: &str) -> String {
        let order = json!({ "service_type": service_type, "payment_status": payment, "area_id": "JKT-PUSAT",
                            "customer_id": "C-4711", "pickup": { "latitude": -6.2, "longitude": 106.8 } });
        self.post("/api/v1/orders", order).await["order_id"].as_str().unwrap().to_owned()
    }
}

// Rule L2: The latency of calls is counted by action and server.
#[tokio::test]
async fn metrics_match_the_page_and_fill_every_panel() {
    let sim = PartnerSim::start(&PartnerSimOptions { knobs: quick(), speed: SPEED, ..PartnerSimOptions::default() })
        .await
        .unwrap();
    let provider = ProviderSim::start(&ProviderSimOptions::default()).await.unwrap();
    let fleet =
        Fleet::with("5s", "[providers.acme]\napi_key = \"provider-sim-key\"\nhosts = [\"127.0.0.1\"]\nallow_private = true\n[bindings]\nmetrics_for = [\"B1\"]\n")
            .await;
    fleet.configure(&format!(
        "[partners.bbd]\nurl = \"{}\"\napi_key = \"partner-sim-key\"\n\
         callback_secret = \"whsec_ZGlzcGF0Y2hxIHBhcnRuZXIgc2ltdWxhdG9y\"\n\
         poll = {{ first = \"200ms\", initial = \"100ms\", follow = \"200ms\" }}\n\
         [service_types.TAXI]\npartner = \"bbd\"\nattempt = \"30s\"\nlifetime = \"60s\"\n",
        sim.url()
    ));
    let (api, at_api) = fleet.spawn_showing("api", &["serve"]).await;
    let (_worker, at_worker) = fleet.spawn_showing("w1", &["work"]).await;
    eventually("the API listens", || async { api.said("Serving the API", "address").is_some() }).await;
    let base = format!("http://{}", api.said("Serving the API", "address").unwrap());
    sim.change_knobs(|knobs| knobs.callback_url = Some(format!("{base}/api/v1/callbacks/bbd"))).unwrap();
    let (_, key) =
        key_admin::create_permanent_key(&fleet.app.core.db, "shop", AccountRole::Producer, None).await.unwrap();
    let shop = Shop { base, key, client: foundation::outbound::build_client(secs(10)).unwrap() };

    // Alert rules watch for increases, so the metrics that they watch exist before the first event.
    let runs = async || Scrape::ask(&at_worker).await.has("dispatchq_settles_refused_total");
    eventually("the worker performs jobs", runs).await;
    let prometheus = Prometheus::start(&[&at_api, &at_worker]).await;
    let first = Scrape::ask(&at_worker).await;
    for process in [&first, &Scrape::ask(&at_api).await] {
        let build = process.families.get("dispatchq_build_info").unwrap();
        let labels: Vec<_> = build.labels.iter().map(String::as_str).collect();
        assert_eq!(labels, ["commit", "schema", "version"]);
    }
    for series in [
        "order_status_count{status=\"CANCELLED_BY_SYSTEM_AFTER_PAYMENT\",track=\"partner\"}",
        "job_id_retrieval_failed_total{reason=\"never_booked\"}",
        "job_id_via_callback_total",
        "dispatcher_cancel_total{area_id=\"\",reason=\"lifetime_timeout\",service_type=\"TAXI\"}",
        "dispatcher_attempt_total{area_id=\"\",result=\"assigned\",service_type=\"RIDE\"}",
        "dispatchq_status_updates_total{result=\"failed\"}",
        "dispatchq_partner_calls_total{call=\"book\",partner=\"bbd\",result=\"unauthorized\"}",
        "dispatchq_manual_interventions_total{alert=\"MANUAL_REFUND_REQUIRED\"}",
        "dispatchq_alert_response_seconds_count{alert=\"MANUAL_REFUND_REQUIRED\"}",
        "dispatchq_creations_refused_total",
        "dispatchq_reconciler_repairs_total",
        "dispatchq_redis_epoch_changes_total",
        "dispatchq_jobs_total{outcome=\"lost\",queue=\"dispatch-queue\"}",
        "dispatchq_binding_outcomes_total{binding=\"B1\",status=\"GAGAL\"}",
    ] {
        assert!(first.has(series), "{series} is not there from the start");
    }

    // The orders cover all outcomes: our own fleet with declines and silent drivers, deliveries that find no driver,
    // cancels, a partner that calls back, and a partner that does not.
    hire(&fleet.app, 3).await;
    let crowd = Crowd::start(&fleet.app);
    let mut orders = Vec::new();
    for n in 0..20 {
        orders.push(shop.order("RIDE", ["PAID", "UNPAID"][n % 2]).await);
    }
    orders.extend([shop.order("DELIVERY", "PAID").await, shop.order("DELIVERY", "UNPAID").await]);
    let cancelled = shop.order("DELIVERY", "PAID").await;
    shop.post(&format!("/api/v1/orders/{cancelled}/cancel"), json!({})).await;
    orders.push(cancelled);
    // Each order gets its job id in a certain way: the first is not polled, the second gets no callback.
    static OPERATOR: Actor = Actor::with_fixed_name(ActorRole::Operator, "test");
    let partner = "bbd".into();
    let author = ActionAuthor { actor: &OPERATOR, reason: None };
    let share = |percent| settings::set_percent(&fleet.app.core.db, &partner, percent, author);
    share(Some(0)).await.unwrap();
    orders.push(shop.order("TAXI", "PAID").await);
    fleet.reach(1, "SELECT count(*) FROM orders WHERE service_type = 'TAXI' AND status = 'COMPLETED'").await;
    sim.change_knobs(|knobs| (knobs.job_id_callback_rate, knobs.callback_rate) = (EventRate::NEVER, EventRate::NEVER))
        .unwrap();
    share(None).await.unwrap();
    orders.push(shop.order("TAXI", "PAID").await);
    fleet.reach(1, "SELECT count(*) FROM order_events WHERE reason = 'JOB_ID_VIA_PROACTIVE'").await;
    assert_eq!(fleet.count("SELECT count(*) FROM order_events WHERE reason = 'JOB_ID_VIA_CALLBACK'").await, 1);
    fleet.at_rest().await;
    drop(crowd);
    acknowledge_refund(&fleet, &shop).await;
    fill_the_area(&fleet, &shop, &at_api).await;
    run_a_binding(&fleet, &provider).await;

    let both = Scrape::ask(&at_api).await.and(Scrape::ask(&at_worker).await);
    let shown = rows(&both);
    assert!(documented() == shown, "docs/METRICS.md should say:\n{}", shown.join("\n"));
    assert_labels_name_nobody(&both, &orders);
    assert_panels_have_rows(&prometheus).await;
}

/// Acknowledges the refund of an order that was paid and found no driver.
async fn acknowledge_refund(fleet: &Fleet, shop: &Shop) {
    let due = "SELECT coalesce(min(id), 0) FROM alerts WHERE kind = 'MANUAL_REFUND_REQUIRED' AND acked_at IS NULL";
    fleet.reach(1, due).await;
    let alert = fleet.count(due).await;
    let (_, key) =
        key_admin::create_permanent_key(&fleet.app.core.db, "anna", AccountRole::Support, None).await.unwrap();
    let support = Shop { base: shop.base.clone(), key, client: shop.client.clone() };
    support.post(&format!("/api/v1/alerts/{alert}/ack"), json!({ "note": "refunded by hand" })).await;
}

/// Asserts that every dashboard query has returned series since the processes started, and that every KPI is a number.
async fn assert_panels_have_rows(prometheus: &Prometheus) {
    for (title, expr) in queries() {
        let expr = expr.replace("$__rate_interval", "1m").replace("$__range", "10m");
        // Panels that show only trouble may be empty. The test still checks that Prometheus accepts the query.
        let rows = prometheus.series(&expr).await;
        if rows.is_empty() && !expr.ends_with("> 0") {
            eventually(&format!("{title} has rows: {expr}"), || async { !prometheus.series(&expr).await.is_empty() })
                .await;
        }
        if expr.contains("dispatchq:") {
            let is_number =
                || async { last_value(&prometheus.series(&expr).await).is_some_and(|value| value != "NaN") };
            eventually(&format!("{title} is a number: {expr}"), is_number).await;
        }
    }
}

/// Runs one transaction after another until the account is empty.
async fn run_a_binding(fleet: &Fleet, provider: &ProviderSim) {
    static OPERATOR: Actor = Actor::with_fixed_name(ActorRole::Operator, "test");
    let settings = ServerSettings {
        provider: Some("acme".into()),
        base_url: Some(provider.server_url("S1")),
        ..ServerSettings::default()
    };
    servers::create_server(&fleet.app.bindings, &"S1".parse().unwrap(), &settings, &OPERATOR).await.unwrap();
    provider.set_balance("A1", 2);
    let new: commands::NewBinding =
        serde_json::from_value(json!({ "id": "B1", "server_id": "S1", "account_id": "A1" })).unwrap();
    commands::create_binding(&fleet.app.bindings, &new, &OPERATOR).await.unwrap();
    commands::command_binding(&fleet.app.bindings, &new.id, &BindingCommand::Start, &OPERATOR).await.unwrap();
    fleet.reach(1, "SELECT count(*) FROM bindings WHERE state = 'STOPPED'").await;
}

/// Creates orders for each admission result: one has room, one is refused, one passes for loyalty, and one would be
/// refused.
async fn fill_the_area(fleet: &Fleet, shop: &Shop, at_api: &str) {
    let author = ChangeAuthor { actor: &by("operator:test"), reason: Some("test") };
    let square = json!({ "type": "Polygon", "coordinates": [[[106.7, -6.3], [106.9, -6.3], [106.9, -6.1], [106.7, -6.1], [106.7, -6.3]]] });
    let feature = json!({ "type": "Feature", "properties": { "area_id": "JKT-PUSAT" }, "geometry": square });
    let areas = json!({ "type": "FeatureCollection", "features": [feature] }).to_string();
    geofences::import_areas(&fleet.app.core.db, &import::parse(&areas).unwrap(), false, None, author).await.unwrap();
    let limits = LimitsChange {
        service_type: "DELIVERY".into(),
        max_waiting_orders: Some(1),
        max_bypass_percentage: Some(100),
        // Keeps the area full until the test reads it.
        order_lifetime_sec: Some(600),
        ..LimitsChange::default()
    };
    limits::set_limits(&fleet.app.core.db, &"JKT-PUSAT".into(), &limits, None, author).await.unwrap();
    let set_flag = async |shadow_mode| {
        let flag = flag::load_flag(&fleet.app.core.db).await.unwrap();
        let wanted = AdmissionFlag { enabled: true, shadow_mode, ..flag.clone() };
        flag::set_flag(&fleet.app.core.db, &wanted, Some(flag.version), author).await.unwrap();
        // Processes read the limits twice a second.
        tokio::time::sleep(secs(4)).await;
    };
    let order = async |loyalty: &str| {
        let body = json!({ "service_type": "DELIVERY", "loyalty_level": loyalty,
                           "pickup": { "latitude": -6.2, "longitude": 106.8 } });
        let url = format!("{}/api/v1/orders", shop.base);
        let key = uuid::Uuid::new_v4().to_string();
        let begun = Instant::now();
        // An overloaded process returns a busy code; the request is sent again.
        loop {
            let request = shop.client.post(&url).bearer_auth(&shop.key).header("idempotency-key", &key).json(&body);
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            let body: Value = answer.json().await.unwrap();
            if !is_busy(&body["error_code"]) || begun.elapsed() > PATIENCE {
                return status;
            }
            tokio::time::sleep(millis(100)).await;
        }
    };
    set_flag(false).await;
    assert_eq!([order("EXPLORER").await, order("EXPLORER").await, order("ELITE").await], [201, 503, 201]);
    let refuses = "dispatchq_area_refuses{area_id=\"JKT-PUSAT\",cause=\"threshold\",service_type=\"DELIVERY\"}";
    eventually("the full area is shown", || async { Scrape::ask(at_api).await.has(refuses) }).await;
    set_flag(true).await;
    assert_eq!(order("TRAVELER").await, 201);
}

/// Asserts that label values come from short lists. They contain no order, person, phone number or place.
fn assert_labels_name_nobody(scrape: &Scrape, orders: &[String]) {
    for (label, values) in &scrape.label_values {
        for value in values {
            let fits = match label.as_str() {
                "area_id" => ["", "JKT-PUSAT"].contains(&value.as_str()),
                "service_type" => ["RIDE", "RENT", "DELIVERY", "TAXI"].contains(&value.as_str()),
                "loop" => {
                    let loops = [
                        "admission counts",
                        "copies of limits",
                        "feed board",
                        "gate",
                        "keys",
                        "late work",
                        "mirror of dead letters",
                        "offer board",
                        "orders of SQL",
                        "outage alarm",
                        "page changes",
                        "reconciler",
                        "replays to endpoints",
                        "rules",
                        "shards",
                        "waiting orders",
                        "webhook endpoints",
                    ];
                    loops.contains(&value.as_str())
                }
                "partner" => value == "bbd",
                "invariant" => violations::list_invariants().any(|(name, _)| name == value),
                "track" => ["fleet", "partner"].contains(&value.as_str()),
                "alert_route" => ["support", "dispatchers", "escalation", "unresolved"].contains(&value.as_str()),
                "channel" => ["log", "endpoint"].contains(&value.as_str()),
                "loyalty" => ["none", "EXPLORER", "TRAVELER", "VOYAGER", "ELITE"].contains(&value.as_str()),
                "source" => ["check", "create"].contains(&value.as_str()),
                "queue" => jobs::queues::ALL.contains(&value.as_str()),
                // The action of a provider call, and its server. Operators choose the server's name.
                "action" => ["start", "status", "otp", "settle"].contains(&value.as_str()),
                "server" => value == "S1",
                // A binding listed in bindings.metrics_for.
                "binding" => value == "B1",
                "alert" => value.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'),
                "state" => ["STOPPED", "RUNNING", "PAUSED", "STOPPING"].contains(&value.as_str()),
                // Status of an order, a transaction or an HTTP response.
                "status" => {
                    ["SUKSES", "GAGAL", "UNRESOLVED"].contains(&value.as_str())
                        || value.parse::<model::order::OrderStatus>().is_ok()
                        || (value.len() == 3 && value.bytes().all(|b| b.is_ascii_digit()))
                }
                "version" => value == env!("CARGO_PKG_VERSION"),
                "commit" => value == "unknown" || (value.len() == 12 && value.bytes().all(|b| b.is_ascii_hexdigit())),
                "schema" => value.parse::<u32>().is_ok(),
                "method" => ["GET", "POST", "PUT", "DELETE"].contains(&value.as_str()),
                // The route as the API document writes it, with placeholders for ids.
                "route" => value == "none" || api::OPENAPI.contains(&format!("\"{value}\": {{")),
                "call" | "cause" | "dependency" | "kind" | "outcome" | "reason" | "result" => {
                    value.len() <= 40 && value.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'-')
                }
                _ => false,
            };
            assert!(fits && !orders.contains(value), "{label}=\"{value}\"");
        }
    }
}

/// Returns whether an error code means that the process was too busy to decide.
fn is_busy(code: &Value) -> bool {
    code == "UNAVAILABLE" || code == "DISPATCHER_SERVICE_UNAVAILABLE"
}
