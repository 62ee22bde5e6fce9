//! The search in the frame of every page.

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp};

#[tokio::test]
async fn search_with_one_result_leads_to_it() {
    let t = TestApp::with(|config| {
        config.console.links.order = Some("https://crm.example.com/{metadata.crm_id}".to_owned());
    })
    .await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.sql(
        "UPDATE orders SET customer_id = 'CUS-1', job_id = 'JOB-1' WHERE id = 'ORD-1';
         INSERT INTO order_details (order_id, metadata, created_at)
         VALUES ('ORD-1', '{\"crm_id\": \"4711\", \"desk\": \"9\"}', dispatchq_now())",
    )
    .await;
    for (text, page) in [
        ("ORD-1", "/console/orders/ORD-1"),
        ("%20ORD-1%20", "/console/orders/ORD-1"),
        ("JOB-1", "/console/orders/ORD-1"),
        ("CUS-1", "/console/orders/ORD-1"),
        ("D1", "/console/drivers/D1"),
        ("4711", "/console/orders/ORD-1"),
        ("desk%3D9", "/console/orders/ORD-1"),
    ] {
        let found = viewer.get(&format!("/console/search?q={text}")).await;
        assert_eq!((found.status().as_u16(), place(&found)), (303, page), "{text}");
    }
    for text in ["", "9", "desk%3D8", "ORD", "%25"] {
        assert!(viewer.text(&format!("/console/search?q={text}")).await.contains("Nothing found"), "{text}");
    }
    assert_eq!(viewer.get(&format!("/console/search?q={}", "x".repeat(129))).await.status(), 422);
}

#[tokio::test]
async fn search_lists_all_that_have_the_id() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.drivers(&[("X-1", 100.0)]).await;
    for order in ["ORD-1", "ORD-2", "ORD-3"] {
        t.order(order).await;
    }
    t.sql("UPDATE orders SET customer_id = 'X-1', job_id = 'X-1' WHERE id <> 'ORD-3'").await;
    let page = viewer.text("/console/search?q=X-1").await;
    for text in [
        "href=\"/console/drivers/X-1\"",
        ">ORD-1</a>",
        ">ORD-2</a>",
        ">Customer, Job id of a partner<",
        "value=\"X-1\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("ORD-3"), "{page}");
}
