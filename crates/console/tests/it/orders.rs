//! Number of orders that match a filter, and links to other systems.

use serde_json::json;

use super::{Browser, statements_of};
use accounts::api_keys::AccountRole;
use settings::PartnerConfig;
use test_support::{Api, TestApp, ride_with_id};

#[tokio::test]
async fn counts_follow_the_filter_and_lead_to_their_orders() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.order_of("WAITS", "RENT", "PAID").await;
    t.run_due().await;
    t.order("NEW-1").await;
    t.order("NEW-2").await;
    t.cancel("NEW-2").await.unwrap();
    t.order("NEW-3").await;
    t.sql("UPDATE orders SET customer_id = 'CUS-1' WHERE id IN ('NEW-2', 'NEW-3')").await;
    let of = |status: &str| format!("<a href=\"/console/orders?{status}\">");
    for (query, all, addresses) in [
        ("", 3, &["status=DISPATCHING", "status=PENDING"][..]),
        ("?service_type=RENT", 1, &["status=PENDING&#38;service_type=RENT"][..]),
        ("?q=CUS-1", 2, &["q=CUS-1&#38;status=CANCELLED_BY_USER", "q=CUS-1&#38;status=DISPATCHING"][..]),
        ("?status=CANCELLED_BY_USER", 1, &["status=CANCELLED_BY_USER"][..]),
    ] {
        let (page, statements) = statements_of(&viewer, &format!("/console/orders{query}")).await;
        assert!((1..=8).contains(&statements.len()), "{query}: {statements:#?}");
        assert!(page.contains(&format!("<b>{all}</b> orders found:")), "{query}: {page}");
        for address in addresses {
            assert!(page.contains(&of(address)), "{address}: {page}");
        }
    }
    assert!(viewer.text("/console/orders?q=CUS-9").await.contains("No orders found"));

    t.sql("SELECT dispatchq_create_order('MANY-' || n, 'DELIVERY', -6.2, 106.8) FROM generate_series(1, 1001) n").await;
    assert!(viewer.text("/console/orders?service_type=DELIVERY").await.contains("<b>1,000+</b> orders found:"));
}

#[tokio::test]
async fn scheduled_orders_are_listed_by_local_hour() {
    let t = TestApp::with(|config| config.admission.time_zone = "Europe/Berlin".parse().unwrap()).await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert!(viewer.text("/console/scheduled").await.contains("No scheduled orders"));
    // It is 08:00 UTC, 09:00 in Berlin.
    for (order, pickup_at) in
        [("A", "2030-01-01T10:00:00Z"), ("B", "2030-01-01T10:59:00Z"), ("C", "2030-01-02T23:30:00Z")]
    {
        t.order_at(order, pickup_at.parse().unwrap()).await;
    }
    let page = viewer.text("/console/scheduled").await;
    let (first, second) = ("Tue 2030-01-01 11:00 +01:00", "Thu 2030-01-03 00:00 +01:00");
    assert!(page.contains(first) && page.contains(second) && page.contains("Europe/Berlin"), "{page}");
    let hour = "/console/scheduled?hour=1893492000";
    assert!(page.contains(hour), "{page}");
    let page = viewer.text(hour).await;
    let rows = ["A", "B", "C"].map(|order| page.contains(&format!("data-href=\"/console/orders/{order}\"")));
    assert_eq!(rows, [true, true, false], "{page}");
    assert!(viewer.text("/console/scheduled?service_type=RENT").await.contains("No scheduled orders"));
    assert_eq!(viewer.get("/console/scheduled?hour=noon").await.status(), 422);
    let page = viewer.text("/console/orders?status=SCHEDULED").await;
    assert!(page.contains("<b>3</b> orders found:") && page.contains("Start of dispatch"), "{page}");
    let page = viewer.text("/console/orders/A").await;
    assert!(page.contains("Pickup time") && page.contains("Dispatch starts at"), "{page}");
}

#[tokio::test]
async fn orders_are_listed_without_a_timely_count() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    // The statement counts only what follows a full page.
    t.sql("SELECT dispatchq_create_order('MANY-' || n, 'RIDE', -6.2, 106.8) FROM generate_series(1, 100) n").await;
    t.order("ORD-1").await;
    t.sql(
        "CREATE FUNCTION is_found_soon() RETURNS boolean LANGUAGE plpgsql AS $$
         BEGIN
             IF current_query() LIKE '%-- count searched orders%' THEN PERFORM pg_sleep(60); END IF;
             RETURN true;
         END $$;
         ALTER TABLE orders RENAME TO orders_kept;
         CREATE VIEW orders AS SELECT * FROM orders_kept WHERE is_found_soon()",
    )
    .await;
    let page = viewer.text("/console/orders?service_type=RIDE").await;
    assert!(page.contains("data-href=\"/console/orders/ORD-1\""), "{page}");
    assert!(page.contains("could not be counted within two seconds") && !page.contains("orders found:"), "{page}");
}

#[tokio::test]
async fn without_redis_order_page_shows_jobs_as_unknown() {
    let mut t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    t.order("ORD-1").await;
    assert!(!operator.text("/console/orders/ORD-1").await.contains("Not known"));
    t.redis.kill().await;
    let page = operator.text("/console/orders/ORD-1").await;
    for said in ["Redis does not respond:", "dispatch:ORD-1:1", "Not known"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert!(!page.contains("dispatchq reconcile run"), "none is known to be missing: {page}");
    let queues = operator.get("/console/queues").await;
    assert_eq!(queues.status(), 503);
    let page = queues.text().await.unwrap();
    assert!(page.contains("does not respond") && page.contains(">Try again</a>"), "{page}");
    t.redis.restart().await.unwrap();
}

#[tokio::test]
async fn links_to_other_systems_have_values_of_the_order() {
    let t = TestApp::with(|config| {
        let links = &mut config.console.links;
        links.order = Some("https://crm.example.com/{metadata.crm_id}".to_owned());
        links.customer = Some("https://crm.example.com/customers/{id}?from={order_id}".to_owned());
        links.driver = Some("https://hr.example.com/{id}".to_owned());
        links.booking = Some("https://bbd.example.com/{partner}/{partner_job_id}".to_owned());
        config.partners.insert("bbd".into(), PartnerConfig::with_url("http://127.0.0.1:9/v1"));
        config.service_types.entry("TAXI".into()).or_default().partner = Some("bbd".into());
    })
    .await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("PLAIN").await;
    let mut ride = ride_with_id("ORD-1");
    ride["customer_id"] = json!("a&b/c");
    ride["metadata"] = json!({ "crm_id": "7 <x>", "other": "1" });
    let created = api.post("/api/v1/orders", &t.key(AccountRole::Producer).await, ride).await;
    assert_eq!(created.status, 201, "{created:?}");

    let page = viewer.text("/console/orders/ORD-1").await;
    for address in ["https://crm.example.com/7%20%3Cx%3E", "https://crm.example.com/customers/a%26b%2Fc?from=ORD-1"] {
        let link = format!("href=\"{address}\" target=\"_blank\" rel=\"noopener noreferrer\"");
        assert!(page.contains(&link), "{address}: {page}");
    }
    assert!(page.contains("Open crm.example.com") && !page.contains("hr.example.com"), "{page}");
    assert!(!viewer.text("/console/orders/PLAIN").await.contains("example.com"), "links without values");
    assert!(viewer.text("/console/drivers/D1").await.contains("href=\"https://hr.example.com/D1\""));

    t.cancel("PLAIN").await.unwrap();
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    assert!(viewer.text("/console/orders/ORD-1").await.contains("href=\"https://hr.example.com/D1\""));

    t.order_of("TAXI-1", "TAXI", "UNPAID").await;
    t.run_due().await;
    assert!(!viewer.text("/console/orders/TAXI-1").await.contains("bbd.example.com"), "the job id is not known");
    t.sql("UPDATE bookings SET job_id = 'J/1' WHERE order_id = 'TAXI-1'").await;
    let page = viewer.text("/console/orders/TAXI-1").await;
    assert!(page.contains("href=\"https://bbd.example.com/bbd/J%2F1\""), "{page}");
}
