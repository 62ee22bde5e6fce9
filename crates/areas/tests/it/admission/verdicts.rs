//! Metrics, stored counts and reports of admission requests.

use serde_json::{Value, json};

use super::{AUTHOR, HERE, create, create_at, flag, full_at, limit, new, refresh};
use accounts::api_keys::AccountRole;
use areas::{
    admission::check,
    table::{limits::LimitsChange, overrides},
};
use desk::reports::area_status;
use model::{
    admission::{
        answer::AdmissionAnswer,
        decide::AdmissionCaller,
        limits::{ForcedStatus, LoyaltyLevel},
    },
    ids::LatLng,
};
use test_support::{Api, Counting, LogLines, TestApp, by, eventually, id, millis, secs};

/// Returns the advice for a pickup at `HERE`.
async fn ask(t: &TestApp, loyalty: Option<LoyaltyLevel>) -> AdmissionAnswer {
    ask_at(t, HERE, loyalty).await
}

async fn ask_at(t: &TestApp, (lat, lng): (f64, f64), loyalty: Option<LoyaltyLevel>) -> AdmissionAnswer {
    let caller = AdmissionCaller { channel: Some("MYBB"), user: Some("USR-1"), loyalty };
    check::preview_admission(&t.app.areas, LatLng::new(lat, lng), &"RIDE".into(), caller).await
}

async fn force(t: &TestApp, status: Option<ForcedStatus>) {
    overrides::set_override(&t.app.core.db, &"JKT".into(), status.map(|status| (status, None)), None, AUTHOR)
        .await
        .unwrap();
    refresh(t).await;
}

async fn enable(t: &TestApp, enabled: bool) {
    limit(t, "JKT", LimitsChange { enabled: Some(enabled), ..LimitsChange::default() }).await;
}

async fn kept(t: &TestApp) -> Vec<String> {
    t.app.areas.tally.write_counts(&t.app.core.db).await.unwrap();
    let mut kept = t
        .texts(
            "SELECT concat_ws(' ', area_id, source, verdict, cause, nullif(loyalty, ''), sum(requests))
             FROM admission_counts GROUP BY area_id, source, verdict, cause, loyalty",
        )
        .await;
    kept.sort();
    kept
}

#[tokio::test]
async fn every_verdict_is_counted_by_source_and_cause() {
    let counting = Counting::start();
    let t = TestApp::start().await;
    full_at(&t, 2).await;
    limit(&t, "JKT", LimitsChange { max_bypass_percentage: Some(50), ..LimitsChange::default() }).await;
    for order in ["ORD-1", "ORD-2"] {
        assert_eq!(create(&t, order, None).await, None);
    }
    assert!(create(&t, "ORD-3", None).await.is_some());
    assert_eq!(ask(&t, None).await.http_status(), 503);
    assert!(matches!(ask(&t, Some(LoyaltyLevel::Elite)).await, AdmissionAnswer::Bypassed(_)));
    assert_eq!(create(&t, "ORD-4", Some("ELITE")).await, None);
    assert_eq!(t.snapshot("ORD-4").await.order.admission.as_deref(), Some("BYPASSED"));
    assert_eq!(ask_at(&t, (0.0, 0.0), None).await, AdmissionAnswer::NoArea);
    assert!(create_at(&t, "ORD-0", (0.0, 0.0), None).await.is_some());
    force(&t, Some(ForcedStatus::ForceBusy)).await;
    assert!(create(&t, "ORD-5", None).await.is_some() && ask(&t, None).await.http_status() == 503);
    force(&t, None).await;
    enable(&t, false).await;
    assert!(create(&t, "ORD-6", None).await.is_some() && ask(&t, None).await.http_status() == 503);
    enable(&t, true).await;
    flag(&t, |flag| flag.shadow_mode = true).await;
    assert!(create(&t, "ORD-7", None).await.is_none() && ask(&t, None).await.http_status() == 200);

    let expected = [
        " check REFUSED outside 1",
        " create REFUSED outside 1",
        "JKT check BYPASSED threshold ELITE 1",
        "JKT check REFUSED disabled 1",
        "JKT check REFUSED forced 1",
        "JKT check REFUSED threshold 1",
        "JKT check WOULD_REFUSE threshold 1",
        "JKT create BYPASSED threshold ELITE 1",
        "JKT create REFUSED disabled 1",
        "JKT create REFUSED forced 1",
        "JKT create REFUSED threshold 1",
        "JKT create TAKEN none 2",
        "JKT create WOULD_REFUSE threshold 1",
    ];
    assert_eq!(kept(&t).await, expected);
    assert_eq!(kept(&t).await, expected, "nothing is written twice");
    let waited = "SELECT DISTINCT waiting::text FROM admission_counts WHERE verdict = 'TAKEN' ORDER BY 1";
    assert_eq!(t.texts(waited).await, ["0", "1"]);

    let place = "area_id=\"JKT\"";
    let ride = "service_type=\"RIDE\"";
    let count = counting.read();
    // A forced or disabled area does not count as full.
    assert_eq!(count.value(&format!("dispatcher_threshold_reached_total{{{place},{ride}}}")), 6.0);
    assert_eq!(count.value(&format!("dispatcher_cancel_total{{{place},reason=\"server_busy\",{ride}}}")), 6.0);
    let mut refusals = Vec::new();
    for (at, cause) in [("area_id=\"\"", "outside"), (place, "disabled"), (place, "forced"), (place, "threshold")] {
        refusals.extend(
            ["check", "create"].map(|source| {
                format!("dispatchq_refusals_total{{{at},cause=\"{cause}\",{ride},source=\"{source}\"}} 1")
            }),
        );
    }
    assert_eq!(counting.of("dispatchq_refusals_total"), refusals);
    for (name, loyalty) in [("dispatchq_bypasses_total", "ELITE"), ("dispatchq_shadow_rejects_total", "none")] {
        let by_source = ["check", "create"]
            .map(|source| format!("{name}{{{place},loyalty=\"{loyalty}\",{ride},source=\"{source}\"}} 1"));
        assert_eq!(counting.of(name), by_source);
    }

    // Each request is counted in one snapshot.
    let snapshots = "SELECT concat_ws(' ', sum(rejected), sum(would_reject), sum(bypassed)) FROM waiting_snapshots";
    for _ in 0..2 {
        area_status::save_snapshot(&t.app.desk).await.unwrap();
        assert_eq!(t.texts(snapshots).await, ["6 2 2"]);
        t.advance(secs(60)).await;
    }
}

#[tokio::test]
async fn undecided_requests_are_stored_once_postgres_returns() {
    let counting = Counting::start();
    let mut t = TestApp::start().await;
    full_at(&t, 1).await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let place = json!({ "latitude": HERE.0, "longitude": HERE.1 });
    let (check, create) = ("/api/v1/dispatcher/availability-check", "/api/v1/orders");
    let question = json!({ "pickup_location": place, "service_type": "RIDE" });
    let order = json!({ "service_type": "RIDE", "pickup": place });
    // From here on the process has the key in its cache.
    assert_eq!(api.post(check, &key, question.clone()).await.status, 200);
    t.redis.stop().await.unwrap();
    t.postgres.kill().await;
    // Advice may be 100 ms old.
    tokio::time::sleep(millis(150)).await;
    let (advice, creation) = tokio::join!(api.post(check, &key, question), api.post(create, &key, order));
    let undecided = (503, "DISPATCHER_SERVICE_UNAVAILABLE");
    assert_eq!((advice.error(), creation.error()), (undecided, undecided));

    t.postgres.restart().await.unwrap();
    t.redis.restart().await.unwrap();
    let is_written = || async { t.app.areas.tally.write_counts(&t.app.core.db).await.is_ok() };
    eventually("what was counted meanwhile is written", is_written).await;
    assert_eq!(
        kept(&t).await,
        ["JKT check REFUSED unavailable 1", "JKT check TAKEN none 1", "JKT create REFUSED unavailable 1"]
    );
    let refusals = ["check", "create"].map(|source| {
        let labels = "area_id=\"JKT\",cause=\"unavailable\",service_type=\"RIDE\"";
        format!("dispatchq_refusals_total{{{labels},source=\"{source}\"}} 1")
    });
    assert_eq!(counting.of("dispatchq_refusals_total"), refusals);
    assert_eq!(counting.of("dispatcher_cancel_total"), [""; 0], "an outage is no busy server");
}

#[tokio::test]
async fn shadow_mode_records_each_admitted_request() {
    let lines = LogLines::default();
    tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::INFO).with_writer(lines.clone()).init();
    let mut t = TestApp::start().await;
    full_at(&t, 1).await;
    create(&t, "ORD-1", None).await;
    flag(&t, |flag| flag.shadow_mode = true).await;
    let mut order = new("ORD-2", HERE, Some("EXPLORER"));
    order.channel = Some("MYBB".to_owned());
    orders::create::create_order(&t.app.orders, id("ORD-2"), &order, &by("producer:test")).await.unwrap();
    let kept = t.snapshot("ORD-2").await.order;
    let texts = [kept.channel, kept.loyalty_level, kept.admission].map(Option::unwrap_or_default);
    assert_eq!(texts, ["MYBB", "EXPLORER", "WOULD_REFUSE"]);
    assert_eq!(t.snapshot("ORD-1").await.order.admission.as_deref(), Some("TAKEN"));
    assert_eq!(ask(&t, Some(LoyaltyLevel::Traveler)).await.http_status(), 200);
    t.redis.stop().await.unwrap();
    assert_eq!(create(&t, "ORD-3", None).await, None);
    t.app.areas.tally.write_counts(&t.app.core.db).await.unwrap();
    let rows = t
        .texts(
            "SELECT concat_ws(' ', source, coalesce(order_id, '-'), area_id, service_type, waiting >= 1, threshold, channel,
                              loyalty_level)
             FROM audit_shadow_refusals ORDER BY coalesce(order_id, '')",
        )
        .await;
    let expected =
        ["check - JKT RIDE t 1 MYBB TRAVELER", "create ORD-2 JKT RIDE t 1 MYBB EXPLORER", "create ORD-3 JKT RIDE t 1"];
    assert_eq!(rows, expected, "the last one without Redis");
    let logged = lines.with("Shadow mode let in a request that would have been refused.");
    assert_eq!(logged.len(), 3, "one line for each: {logged:#?}");
    for told in ["order.id=\"ORD-2\"", "area.id=\"JKT\"", "source=\"create\"", "threshold=1", "channel=\"MYBB\""] {
        assert!(logged[0].contains(told), "{told}: {}", logged[0]);
    }
    t.redis.restart().await.unwrap();
}

#[tokio::test]
async fn override_and_disable_ignore_the_flag() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    let seen = async || {
        let statuses = area_status::area_statuses(&t.app.desk).await.unwrap();
        let jakarta = statuses.into_iter().find(|row| row.area_id == "JKT" && row.service_type == "RIDE").unwrap();
        (jakarta.mode, jakarta.enforcement.as_str())
    };
    create(&t, "ORD-0", None).await;
    for (n, enforcement) in ["OFF", "SHADOW", "OFF", "PARTLY", "ON"].into_iter().enumerate() {
        flag(&t, |flag| {
            (flag.enabled, flag.shadow_mode) = (n > 0, n == 1);
            // A customer without an id is not in the first percent.
            flag.percentage = [100, 100, 0, 1, 100][n];
        })
        .await;
        force(&t, Some(ForcedStatus::ForceBusy)).await;
        assert_eq!(create(&t, &format!("BUSY-{n}"), None).await.unwrap()["reason"], "test");
        assert_eq!(ask(&t, None).await.error_code(), Some("DISPATCHER_AREA_THRESHOLD_REACHED"));
        assert_eq!(seen().await, ("FORCE_BUSY", enforcement));
        force(&t, Some(ForcedStatus::ForceAvailable)).await;
        assert_eq!(create(&t, &format!("FREE-{n}"), None).await, None, "full, and open all the same");
        assert_eq!(seen().await, ("FORCE_AVAILABLE", enforcement));
        enable(&t, false).await;
        assert_eq!(create(&t, &format!("SHUT-{n}"), None).await.unwrap()["error_code"], "DISPATCHER_AREA_DISABLED");
        assert_eq!(seen().await, ("DISABLED", enforcement));
        enable(&t, true).await;
        force(&t, None).await;
        assert_eq!(seen().await, ("AUTO", enforcement));
        assert_eq!(create(&t, &format!("AUTO-{n}"), None).await.is_some(), enforcement == "ON");
    }
}

/// Twenty areas over a hundred hours, with requests for one of them in the last hour.
const PAST: &str = "
    INSERT INTO waiting_snapshots (at, area_id, service_type, waiting, threshold, rejected, would_reject, bypassed, refuses)
        SELECT date_trunc('hour', dispatchq_now(), 'UTC') - n * interval '1 hour', 'A' || a, 'RIDE', 50, 100, 0, 0, 0, ''
        FROM generate_series(1, 100) n, generate_series(1, 20) a;
    INSERT INTO admission_counts (hour, area_id, service_type, source, verdict, cause, loyalty, waiting, requests)
        SELECT date_trunc('hour', dispatchq_now(), 'UTC') - interval '1 hour', 'A1', 'RIDE', c.*
        FROM (VALUES ('create', 'TAKEN', 'none', '', 10, 5), ('create', 'TAKEN', 'none', '', 60, 7),
                     ('create', 'BYPASSED', 'threshold', 'ELITE', 55, 2), ('check', 'REFUSED', 'threshold', '', 100, 3),
                     ('check', 'REFUSED', 'forced', '', 100, 4)) c";

#[tokio::test]
async fn report_shows_what_another_threshold_refuses() {
    let t = TestApp::start().await;
    t.sql(PAST).await;
    let api = Api::start(&t.app).await;
    let (key, producer) = (t.key(AccountRole::Dispatcher).await, t.key(AccountRole::Producer).await);
    let get =
        async |query: &str, key: &str| api.get(&format!("/api/v1/admin/dispatcher/areas/report?{query}"), key).await;
    let all = get("hours=120", &key).await.body;
    let rows = |name: &str| all[name].as_array().unwrap().len();
    assert_eq!((rows("hours"), rows("areas")), (2_000, 20));
    assert_eq!((&all["threshold"], &all["hours"][0]["what_if"]), (&Value::Null, &Value::Null));

    let tried = get("area_id=A1&hours=1&threshold=50", &key).await.body;
    let hour = &tried["hours"][0];
    assert_eq!((hour["area_id"].as_str(), &hour["mean_utilization"]), (Some("A1"), &json!(0.5)));
    assert_eq!((&hour["rejected"], &hour["would_reject"], &hour["bypassed"]), (&json!(7), &json!(0), &json!(2)));
    let forced = json!({ "source": "check", "verdict": "REFUSED", "cause": "forced", "requests": 4 });
    assert_eq!(hour["requests"][0], forced);
    // Customers that met a count of 50 are refused, loyal customers from 60 on. Forced refusals are independent of the
    // threshold.
    let what_if = json!({ "checks": 3, "checks_refused": 3, "creations": 14, "creations_refused": 7 });
    assert_eq!((&hour["what_if"], &tried["areas"][0]["what_if"]), (&what_if, &what_if));

    for wrong in ["hours=0", "hours=745", "threshold=-1", "area_id=%00", "until=0001-01-01T00:00:00Z", "day=1"] {
        assert_eq!(get(wrong, &key).await.error(), (422, "INVALID"), "{wrong}");
    }
    assert_eq!(get("hours=1", &producer).await.error(), (403, "FORBIDDEN"));
}
