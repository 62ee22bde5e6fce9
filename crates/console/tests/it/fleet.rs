//! Pages of one driver, one area, and partners.

use super::{Browser, place, statements_of};
use accounts::api_keys::AccountRole;
use model::ids::LatLng;
use orders::fleet::drivers::{self, DriverFix};
use queue::store::BreakerPolicy;
use settings::PartnerConfig;
use test_support::{Api, TestApp, secs};

// Rule U3: Staff with the right to call drivers see a driver's phone number on demand, and each view is recorded.
#[tokio::test]
async fn phone_of_driver_is_shown_and_recorded() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.sql("UPDATE drivers SET phone = '+628123456789' WHERE id = 'D1'").await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    for path in ["/console/drivers/D1", "/console/orders/ORD-1"] {
        let page = dispatcher.text(path).await;
        assert!(page.contains("action=\"/console/drivers/D1/phone\""), "{path}: {page}");
        assert!(!page.contains("+628123456789"), "{path} shows the number unasked");
    }
    let shown = dispatcher.post("/console/drivers/D1/phone", &[("back", "/orders/ORD-1")]).await;
    assert_eq!(shown.status(), 200);
    let page = shown.text().await.unwrap();
    assert!(page.contains("href=\"tel:+628123456789\"") && page.contains("href=\"/console/orders/ORD-1\""), "{page}");
    let page = dispatcher.post("/console/drivers/D2/phone", &[]).await.text().await.unwrap();
    assert!(page.contains("No phone number is stored for this driver."), "{page}");
    assert_eq!(dispatcher.post("/console/drivers/D9/phone", &[]).await.status(), 404);
    assert_eq!(place(&dispatcher.get("/console/drivers/D1/phone").await), "/console/drivers/D1");
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert_eq!(viewer.post("/console/drivers/D1/phone", &[]).await.status(), 403);
    assert!(!viewer.text("/console/drivers/D1").await.contains("/phone\""));
    assert_eq!(
        t.texts("SELECT concat_ws(' ', action, subject, actor) FROM audit_staff_actions ORDER BY id").await,
        ["DRIVER_PHONE_SHOWN D1 dispatcher:test-dispatcher", "DRIVER_PHONE_SHOWN D2 dispatcher:test-dispatcher"]
    );
}

#[tokio::test]
async fn driver_page_shows_place_and_offer_outcomes() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert_eq!(viewer.get("/console/drivers/D1").await.status(), 404);
    t.drivers(&[("D1", 100.0)]).await;
    let page = viewer.text("/console/drivers/D1").await;
    assert!(page.contains("No offers") && page.contains("Available"), "{page}");

    t.order("DECLINED").await;
    t.run_due().await;
    t.decline_offer("DECLINED").await;
    t.advance(secs(1)).await;
    t.order("TAKEN-BACK").await;
    t.run_due().await;
    t.cancel("TAKEN-BACK").await.unwrap();
    t.advance(secs(1)).await;
    t.order("WON").await;
    t.run_due().await;
    let asked = viewer.text("/console/drivers/D1").await;
    assert!(asked.contains("Waiting for an answer") && asked.contains("countdown"), "{asked}");
    t.accept_offer("WON").await;
    t.advance(secs(1)).await;

    let page = viewer.text("/console/drivers/D1").await;
    let rows: Vec<_> = ["WON", "TAKEN-BACK", "DECLINED"]
        .map(|order| {
            page.find(&format!("data-href=\"/console/orders/{order}\"")).unwrap_or_else(|| panic!("{order}: {page}"))
        })
        .into();
    assert!(rows.is_sorted(), "the latest first: {page}");
    for text in ["Has an order", ">Accepted<", ">Declined<", ">Withdrawn<", "<dt>Age of the location</dt><dd>3 s</dd>"]
    {
        assert!(page.contains(text), "{text}: {page}");
    }
    drivers::move_to(&t.app.core.db, &"D1".into(), DriverFix { place: LatLng::new(-6.25, 106.75), at: None })
        .await
        .unwrap();
    let page = viewer.text("/console/drivers/D1").await;
    assert!(page.contains("-6.25000, 106.75000") && page.contains("<dd>0 s</dd>"), "{page}");
    // The time of the driver's location is unknown.
    t.sql("UPDATE drivers SET located_at = NULL").await;
    assert!(viewer.text("/console/drivers/D1").await.contains("<dd>Not known</dd>"));
    let statements = statements_of(&viewer, "/console/drivers/D1").await.1;
    assert!((1..=8).contains(&statements.len()), "{statements:#?}");

    assert!(!page.contains("/drivers/D1/disable"), "a viewer has no button");
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    assert!(operator.text("/console/drivers/D1").await.contains("/drivers/D1/disable"));
    let form = [("reason", "complaints"), ("back", "/drivers/D1")];
    let disabled = operator.post("/console/drivers/D1/disable", &form).await;
    assert_eq!(place(&disabled), "/console/drivers/D1?did=driver-disabled");
    let page = operator.text("/console/drivers/D1").await;
    assert!(page.contains("Disabled since") && page.contains("/drivers/D1/enable"), "{page}");
    assert!(operator.text("/console/drivers").await.contains("href=\"/console/drivers/D1\""));
    assert_eq!(place(&operator.get("/console/drivers?id=D1").await), "/console/drivers/D1");
}

#[tokio::test]
async fn partners_page_shows_breakers_and_waiting_work() {
    let t = TestApp::with(|config| {
        for name in ["bbd", "quiet"] {
            config.partners.insert(name.into(), PartnerConfig::with_url("http://127.0.0.1:9/v1"));
        }
        config.service_types.entry("TAXI".into()).or_default().partner = Some("bbd".into());
    })
    .await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.order_of("ORD-1", "TAXI", "UNPAID").await;
    t.sql("INSERT INTO partner_settings (partner, polling_percent, changed_by) VALUES ('quiet', 7, 'cli:root')").await;
    let policy = BreakerPolicy { failures: 5, open: secs(60), max_open: secs(60) };
    t.app.core.store.breaker_tripped("partner:bbd", &policy, "it refuses our key").await.unwrap();
    let (page, statements) = statements_of(&viewer, "/console/partners").await;
    assert!((1..=8).contains(&statements.len()), "{statements:#?}");
    for text in [
        "Paused for another 1 min 0 s",
        "it refuses our key",
        "TAXI",
        "7%, set by cli:root",
        "100%, from the configuration",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let of = |name: &str| page.split("<tr>").find(|row| row.contains(name)).unwrap_or_else(|| panic!("{name}: {page}"));
    let searching = "data-label=\"Searching for a driver\">";
    assert!(
        of(">bbd<").contains(&format!("{searching}1<")) && of(">quiet<").contains(&format!("{searching}0<")),
        "{page}"
    );
    assert!(of(">quiet<").contains(">Called normally<"), "{page}");
}

#[tokio::test]
async fn operator_sets_the_polling_share_of_a_partner() {
    let t = TestApp::with(|config| {
        config.partners.insert("bbd".into(), PartnerConfig::with_url("http://127.0.0.1:9/v1"));
    })
    .await;
    let api = Api::start(&t.app).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let share = |percent: &'static str| [("percent", percent), ("reason", "callbacks come late")];
    for percent in ["101", "-1", "half"] {
        assert_eq!(operator.post("/console/partners/bbd/share", &share(percent)).await.status(), 422, "{percent}");
    }
    assert_eq!(operator.post("/console/partners/other/share", &share("50")).await.status(), 404);
    for (percent, shown) in [("50", "50%, set by operator:test-operator"), ("", "100%, from the configuration")] {
        let set = operator.post("/console/partners/bbd/share", &share(percent)).await;
        assert_eq!((set.status().as_u16(), place(&set)), (303, "/console/partners?did=share"));
        let page = operator.text("/console/partners?did=share").await;
        assert!(page.contains(shown) && page.contains("The polling share was set."), "{page}");
    }
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    assert_eq!(dispatcher.post("/console/partners/bbd/share", &share("50")).await.status(), 403);
    assert!(!dispatcher.text("/console/partners").await.contains("/share"));
    assert_eq!(
        t.texts("SELECT concat_ws(' | ', action, subject, actor, reason) FROM audit_staff_actions ORDER BY id").await,
        [
            "PARTNER_SHARE_SET | bbd 50 % | operator:test-operator | callbacks come late",
            "PARTNER_SHARE_SET | bbd as configured | operator:test-operator | callbacks come late"
        ]
    );
}

#[tokio::test]
async fn without_redis_partners_are_shown_all_the_same() {
    let mut t = TestApp::with(|config| {
        config.partners.insert("bbd".into(), PartnerConfig::with_url("http://127.0.0.1:9/v1"));
    })
    .await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.redis.kill().await;
    let page = viewer.text("/console/partners").await;
    assert!(page.contains("Unknown: Redis does not respond") && page.contains(">bbd<"), "{page}");
    t.redis.restart().await.unwrap();
}

#[tokio::test]
async fn the_page_of_an_area_reports_hour_by_hour() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert_eq!(viewer.get("/console/areas/A1").await.status(), 404);
    t.sql(
        "INSERT INTO waiting_snapshots (at, area_id, service_type, waiting, threshold, rejected, would_reject, bypassed, refuses)
         VALUES (dispatchq_now() - interval '10 minutes', 'A1', 'RIDE', 5, 10, 0, 0, 0, '')",
    )
    .await;
    t.sql(
        "INSERT INTO admission_counts (hour, area_id, service_type, source, verdict, cause, loyalty, waiting, requests)
         SELECT date_trunc('hour', dispatchq_now() - interval '1 hour'), 'A1', 'RIDE', 'check', v.verdict, 'threshold', '', 7, v.requests
         FROM (VALUES ('REFUSED', 3), ('WOULD_REFUSE', 4)) AS v (verdict, requests)",
    )
    .await;
    let (page, statements) = statements_of(&viewer, "/console/areas/A1?threshold=6").await;
    assert!((1..=8).contains(&statements.len()), "{statements:#?}");
    for text in
        ["All these hours", "data-label=\"Average utilization\">50%<", "data-label=\"Refused\">3<", "7 of 7 refused"]
    {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(page.contains("data-label=\"Admitted by shadow mode\">4<"), "{page}");
    assert!(viewer.text("/console/areas/A1?threshold=8").await.contains("0 of 7 refused"));
    assert!(!viewer.text("/console/areas/A1").await.contains(" of 7 refused"));
    for query in ["hours=0", "hours=x", "hours=169", "threshold=-1", "threshold=x"] {
        assert_eq!(viewer.get(&format!("/console/areas/A1?{query}")).await.status(), 422, "{query}");
    }
}

#[tokio::test]
async fn operators_add_and_change_drivers() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let new = |id: &'static str, latitude: &'static str| {
        [
            ("id", id),
            ("service_types", "RIDE, RENT"),
            ("latitude", latitude),
            ("longitude", "106.8456"),
            ("available", "true"),
            ("phone", "%2B628123456789"),
            ("reason", "signed the contract"),
        ]
    };
    for (id, latitude) in [("D 9", "-6.2"), ("", "-6.2"), ("D9", "north"), ("D9", "NaN"), ("D9", "91")] {
        assert_eq!(operator.post("/console/fleet/create", &new(id, latitude)).await.status(), 422, "{id} {latitude}");
    }
    let made = operator.post("/console/fleet/create", &new("D9", "-6.2088")).await;
    assert_eq!((made.status().as_u16(), place(&made)), (303, "/console/drivers/D9?did=driver-created"));
    let page = operator.text("/console/drivers/D9?did=driver-created").await;
    assert!(page.contains("The driver was added.") && page.contains("RIDE, RENT"), "{page}");
    assert_eq!(operator.post("/console/fleet/create", &new("D9", "-6.2088")).await.status(), 409, "sent again");

    let change = |services: &'static str, phone: &'static str| {
        [("service_types", services), ("phone", phone), ("reason", "has a larger car")]
    };
    let stored = "SELECT concat_ws(' ', array_to_string(service_types, '+'), coalesce(phone, 'none')) FROM drivers";
    for (services, phone, is) in [
        ("DELIVERY", "", "DELIVERY +628123456789"),
        ("RIDE,DELIVERY,", "%2B62899999999", "RIDE+DELIVERY +62899999999"),
        ("RIDE", "-", "RIDE none"),
    ] {
        let changed = operator.post("/console/drivers/D9/change", &change(services, phone)).await;
        assert_eq!(place(&changed), "/console/drivers/D9?did=driver-changed");
        assert_eq!(t.texts(stored).await, [is]);
    }
    for (services, phone) in [(" ,", ""), ("RIDE", "0812")] {
        assert_eq!(operator.post("/console/drivers/D9/change", &change(services, phone)).await.status(), 422);
    }
    assert_eq!(operator.post("/console/drivers/D8/change", &change("RIDE", "")).await.status(), 404);
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    assert_eq!(dispatcher.post("/console/fleet/create", &new("D8", "-6.2")).await.status(), 403);
    assert_eq!(dispatcher.post("/console/drivers/D9/change", &change("RENT", "")).await.status(), 403);
    assert!(!dispatcher.text("/console/drivers").await.contains("/fleet/create"));
    let recorded = t.texts("SELECT concat_ws(' ', action, subject, reason) FROM audit_staff_actions ORDER BY id").await;
    assert_eq!(recorded[0], "DRIVER_CREATED D9 signed the contract");
    assert_eq!(recorded[1..], vec!["DRIVER_CHANGED D9 has a larger car"; 3]);
}
