//! Number of orders that match a filter.

use super::{Browser, statements_of};
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp};

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
async fn orders_are_listed_without_a_timely_count() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
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
