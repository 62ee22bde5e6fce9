//! A page recovers when the process that served it restarts.

use serde_json::json;

use super::chromium::Chromium;
use crate::support::{Fleet, by, id};
use accounts::{api_keys::AccountRole, key_admin};
use desk::operator::order::{self, OrderAction};
use orders::create;

/// Script that runs before each page: keeps each stream that the page opens in `streams`, and counts its messages in
/// `told`.
const WATCH_STREAMS: &str = "window.streams = []; window.told = 0; const Stream = window.EventSource;
    window.EventSource = class extends Stream {
        constructor(address) {
            super(address);
            window.streams.push(this);
            this.addEventListener('change', () => { window.told += 1; });
        }
    };";
const LISTENS: &str = "streams.some((stream) => stream.readyState === EventSource.OPEN)";
const LIVE_STATE: &str = "document.getElementById('live-state').textContent";

#[tokio::test]
async fn page_recovers_after_serve_is_killed() {
    let fleet = Fleet::start().await;
    let (_, key) =
        key_admin::create_permanent_key(&fleet.app.core.db, "desk", AccountRole::Viewer, None).await.unwrap();
    let new = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } });
    let new = serde_json::from_value(new).unwrap();
    create::create_order(&fleet.app.orders, id("ORD-1"), &new, &by("producer:test")).await.unwrap();
    let (mut serve, origin) = fleet.api().await;
    let mut browser = Chromium::start().await;
    browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": WATCH_STREAMS })).await;
    browser.sign_in(&origin, "/console/orders/ORD-1", &key).await;
    browser.until("the page is live", &format!("{LIVE_STATE} === 'Live'")).await;
    browser.eval("window.remembered = true").await;
    browser.until("the page is told of changes", LISTENS).await;

    let before = browser.eval("window.told").await;
    serve.kill();
    browser.until("the stream is broken", &format!("!{LISTENS}")).await;
    let lost = format!("{LIVE_STATE} === 'No connection. Trying again'");
    browser.until("the page says that it has no connection", &lost).await;
    let why = Some("the customer calls back");
    order::act_on_order(&fleet.app.desk, &id("ORD-1"), &OrderAction::Hold, &by("dispatcher:test"), why).await.unwrap();
    let address = origin.trim_start_matches("http://");
    let (_serve, again) = fleet.api_named("api-2", &[("DISPATCHQ_HTTP__BIND", address)]).await;
    assert_eq!(again, origin);

    browser.until_text("Under review").await;
    browser.until("the page is live again", &format!("{LIVE_STATE} === 'Live'")).await;
    assert_eq!(browser.eval("window.remembered").await, true, "the page was never loaded again");
    // A new stream starts with a change, because some changes may have been missed.
    browser.until("a stream is back", &format!("{LISTENS} && window.told > {before}")).await;
    let told = browser.eval("window.told").await;
    let resumed =
        order::act_on_order(&fleet.app.desk, &id("ORD-1"), &OrderAction::Resume, &by("dispatcher:test"), why).await;
    resumed.unwrap();
    browser.until("the stream tells of a change", &format!("window.told > {told}")).await;
    browser.until("the review is over", "!document.getElementById('live').innerText.includes('Under review')").await;
    order::act_on_order(&fleet.app.desk, &id("ORD-1"), &OrderAction::Hold, &by("dispatcher:test"), why).await.unwrap();
    browser.click(".menu a", "Desk").await;
    browser.until_text("the customer calls back").await;
}
