//! The frame of every page: stopped queues, and the time of loading.

use super::Browser;
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, secs};

/// Returns the refresh interval of a page in seconds, or 0 if it does not refresh.
fn refresh_of(page: &str) -> u32 {
    let rest = page.split("data-refresh=\"").nth(1).unwrap();
    rest.split('"').next().unwrap().parse().unwrap()
}

// Rule U4: Every page names each stopped queue, with time, actor and reason.
#[tokio::test]
async fn stopped_queue_is_named_on_every_page() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let pause = "/console/queues/notify-queue/pause";
    assert_eq!(operator.post(pause, &[("reason", "the mail server is away")]).await.status(), 303);
    for (person, path) in [
        (&viewer, "/console"),
        (&viewer, "/console/desk"),
        (&viewer, "/console/orders"),
        (&viewer, "/console/refunds"),
        (&viewer, "/console/areas"),
        (&operator, "/console/audit"),
        (&operator, "/console/queues"),
    ] {
        let page = person.text(path).await;
        let banner = page.split("<div id=\"paused\">").nth(1).unwrap().split("</div>").next().unwrap();
        for text in ["notify-queue", "<time datetime=", "operator:test-operator", "the mail server is away"] {
            assert!(banner.contains(text), "{path} lacks {text}: {banner}");
        }
    }
    let resume = "/console/queues/notify-queue/resume";
    assert_eq!(operator.post(resume, &[("reason", "it is back")]).await.status(), 303);
    assert!(viewer.text("/console").await.contains("<div id=\"paused\"></div>"));
}

// Rule U6: Each page refreshes itself or shows when it was loaded; the page Orders refreshes every two seconds.
#[tokio::test]
async fn pages_refresh_or_say_when_they_were_loaded() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let admin = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    t.drivers(&[("D1", 100.0)]).await;
    for path in ["drivers", "dead", "outbox", "audit", "keys", "sessions", "users", "drivers/D1"] {
        let page = admin.text(&format!("/console/{path}")).await;
        assert!((1..=15).contains(&refresh_of(&page)), "{path}");
    }
    let orders = admin.text("/console/orders").await;
    assert!(refresh_of(&orders) <= 2 && orders.contains("data-changes=\"/console/changes?of=orders\""), "{orders}");
    // The second page of a list does not refresh.
    for path in ["drivers?after=A", "outbox?before=7", "keys?after=01937c3e-8f00-7000-8000-000000000001"] {
        let page = admin.text(&format!("/console/{path}")).await;
        assert!(refresh_of(&page) == 0 && page.contains("Loaded <time datetime="), "{path}: {page}");
    }
}

// Rule U5: The Desk is sorted by the waiting time of orders, which a column shows.
// Rule U2: The page of an order shows its pickup.
#[tokio::test]
async fn desk_follows_its_column_and_orders_show_their_pickup() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.order_of("CREATED-FIRST", "RIDE", "PAID").await;
    t.advance(secs(60)).await;
    t.order_of("WAITS-LONGEST", "RENT", "PAID").await;
    t.run_due().await;
    t.advance(secs(60)).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    let held = dispatcher.post("/console/orders/CREATED-FIRST/hold", &[("reason", "they call back")]).await;
    assert_eq!(held.status(), 303);
    let page = viewer.text("/console/desk").await;
    let at = |order: &str| {
        page.find(&format!("data-href=\"/console/orders/{order}\"")).unwrap_or_else(|| panic!("{order}: {page}"))
    };
    assert!(at("WAITS-LONGEST") < at("CREATED-FIRST"), "{page}");
    let place = t
        .texts("SELECT to_char(pickup_lat, 'FM990.00000') || ', ' || to_char(pickup_lng, 'FM990.00000') FROM orders")
        .await;
    let order = viewer.text("/console/orders/CREATED-FIRST").await;
    assert!(order.contains(&format!("<dt>Pickup</dt><dd>{}</dd>", place[0])), "{order}");
}
