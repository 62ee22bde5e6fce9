//! Thresholds and their scope, set by operators on the page.

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use areas::{
    import,
    table::{ChangeAuthor, geofences},
};
use test_support::{Api, JAKARTA, TestApp, by};

const THRESHOLD: &str = "/console/areas/JKT-PUSAT/threshold";
const FLAG: &str = "/console/admission/flag";

async fn with_areas() -> (TestApp, Api) {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let person = by("operator:test");
    let author = ChangeAuthor { actor: &person, reason: Some("a test") };
    geofences::import_areas(&t.app.core.db, &import::parse(JAKARTA).unwrap(), false, None, author).await.unwrap();
    reload_rules(&t).await;
    (t, api)
}

/// Reloads the area rules. Processes do this twice a second.
async fn reload_rules(t: &TestApp) {
    t.app.areas.reload_if_changed().await.unwrap();
}

fn threshold<'a>(most: &'a str, version: &'a str) -> [(&'a str, &'a str); 4] {
    [("service_type", "RIDE"), ("max_waiting_orders", most), ("version", version), ("reason", "a concert")]
}

#[tokio::test]
async fn an_operator_sets_a_threshold_and_takes_it_back() {
    let (t, api) = with_areas().await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let set = operator.post(THRESHOLD, &threshold("7", "0")).await;
    assert_eq!((set.status().as_u16(), place(&set)), (303, "/console/areas?did=threshold"));
    reload_rules(&t).await;
    let page = operator.text("/console/areas?did=threshold").await;
    assert!(page.contains("0 of 7") && page.contains("The threshold was set."), "{page}");

    // A change by another person is not overwritten unseen.
    let stale = operator.post(THRESHOLD, &threshold("9", "0")).await;
    assert_eq!(stale.status(), 409);
    assert!(stale.text().await.unwrap().contains("Another person changed this in the meantime."));
    for most in ["many", "-1", "1000001"] {
        assert_eq!(operator.post(THRESHOLD, &threshold(most, "1")).await.status(), 422, "{most}");
    }
    assert_eq!(operator.post(THRESHOLD, &threshold("9", "x")).await.status(), 422);
    assert_eq!(operator.post(THRESHOLD, &threshold("9", "1")[..3]).await.status(), 422, "without a reason");
    assert_eq!(operator.post(THRESHOLD, &[("service_type", "BOAT"), ("reason", "a test")]).await.status(), 422);
    assert_eq!(operator.post("/console/areas/NOWHERE/threshold", &threshold("9", "")).await.status(), 404);
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    assert_eq!(dispatcher.post(THRESHOLD, &threshold("9", "1")).await.status(), 403);
    assert!(!dispatcher.text("/console/areas").await.contains("/threshold\""));

    assert_eq!(operator.post(THRESHOLD, &threshold("", "1")).await.status(), 303);
    assert_eq!(
        t.texts(
            "SELECT concat_ws(' ', area_id, after ->> 'service_type', coalesce(after ->> 'max_waiting_orders', '-'), actor, reason)
             FROM admission_audit WHERE what = 'limits set' ORDER BY id"
        )
        .await,
        [
            "JKT-PUSAT RIDE 7 operator:test-operator a concert",
            "JKT-PUSAT RIDE - operator:test-operator a concert"
        ]
    );
    let trail = operator.text("/console/audit").await;
    assert!(trail.contains("a concert") && trail.contains("JKT-PUSAT"), "{trail}");
}

#[tokio::test]
async fn operator_limits_shadow_mode_to_some_users() {
    let (t, api) = with_areas().await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    assert!(operator.text("/console/areas").await.contains("Thresholds are off"));
    let flag = |percentage: &'static str, areas: &'static str, version: &'static str| {
        [
            ("enabled", "true"),
            ("shadow_mode", "true"),
            ("percentage", percentage),
            ("enabled_areas", areas),
            ("version", version),
            ("reason", "a trial"),
        ]
    };
    let set = operator.post(FLAG, &flag("25", "JKT-PUSAT", "1")).await;
    assert_eq!((set.status().as_u16(), place(&set)), (303, "/console/areas?did=flag"));
    let page = operator.text("/console/areas").await;
    let said = "Thresholds apply to 25% of users, in JKT-PUSAT, on all channels. Shadow mode is on";
    assert!(page.contains(said), "{page}");
    assert_eq!(operator.post(FLAG, &flag("30", "", "1")).await.status(), 409, "it was changed meanwhile");
    for (percentage, areas) in [("101", ""), ("half", ""), ("25", "NOWHERE")] {
        assert_eq!(operator.post(FLAG, &flag(percentage, areas, "2")).await.status(), 422, "{percentage} {areas}");
    }
    assert_eq!(operator.post(FLAG, &[("reason", "a test")]).await.status(), 422);
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    assert_eq!(dispatcher.post(FLAG, &flag("30", "", "2")).await.status(), 403);
    assert!(dispatcher.text("/console/areas").await.contains(said), "all staff read it");
    assert_eq!(
        t.texts("SELECT concat_ws(' ', actor, reason) FROM admission_audit WHERE what = 'flag set'").await,
        ["operator:test-operator a trial"]
    );
}
