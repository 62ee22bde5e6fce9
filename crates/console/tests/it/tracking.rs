//! The page for customers: what it shows, what it hides, and when it ends.

use reqwest::{
    StatusCode,
    header::{
        ACCEPT_LANGUAGE, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, REFERRER_POLICY,
    },
};
use serde_json::{Value, json};
use tracing::Level;

use accounts::api_keys::AccountRole;
use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::db;
use settings::Config;
use test_support::{Api, Counting, LogLines, TestApp, by, ride_with_id, secs};

const ORDERS: &str = "/api/v1/orders";

fn with_page(config: &mut Config) {
    config.http.tracking = true;
    config.http.public_url = "https://dispatch.example.com".to_owned();
    // The tests act as several clients.
    config.http.trusted_proxies = vec!["127.0.0.1".to_owned()];
}

/// Creates an order with all contents and returns the path of its link.
async fn create_order(t: &TestApp, api: &Api, id: &str) -> String {
    let mut order = ride_with_id(id);
    order["customer_id"] = json!("CUS-77");
    order["pickup"]["address"] = json!("Jalan Thamrin 9");
    order["dropoff"] = json!({ "latitude": -6.17, "longitude": 106.82, "address": "Jalan Merdeka 1" });
    order["notes"] = json!("Ring twice");
    order["contact"] = json!({ "name": "Cahya Putri", "phone": "+628123456789", "email": "cahya@example.com" });
    order["metadata"] = json!({ "crm_id": "CRM-9" });
    let made = api.post(ORDERS, &t.key(AccountRole::Producer).await, order).await;
    made.text("tracking_url").strip_prefix("https://dispatch.example.com").unwrap().to_owned()
}

/// An answer without its date.
#[derive(Debug, PartialEq)]
struct Seen {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Seen {
    fn header(&self, name: HeaderName) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// Asserts the headers that every answer has.
    fn assert_private(&self) {
        assert_eq!((self.header(REFERRER_POLICY), self.header(CACHE_CONTROL)), ("no-referrer", "no-store"));
    }
}

/// Requests a page as a client with this address.
async fn see(api: &Api, path: &str, client: &str) -> Seen {
    let request = api.client.get(api.url(path)).header("x-forwarded-for", client);
    let answer = request.send().await.unwrap();
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    headers.remove("date");
    Seen { status, headers, body: answer.text().await.unwrap() }
}

async fn text(api: &Api, path: &str) -> String {
    let seen = see(api, path, "203.0.113.1").await;
    assert_eq!(seen.status, 200, "{seen:?}");
    seen.body
}

#[tokio::test]
async fn page_follows_the_order_until_its_end() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("DRV-1", 1_234.0)]).await;
    t.sql("UPDATE drivers SET name = 'Ana Maria Santos', phone = '+628111222333'").await;
    let link = create_order(&t, &api, "ORD-1").await;
    let page = text(&api, &link).await;
    assert!(page.contains("Looking for a driver") && !page.contains("<svg"), "{page}");
    t.run_due().await;
    assert!(!text(&api, &link).await.contains("Ana"), "an offer is no accept");
    t.accept_offer("ORD-1").await;
    let page = text(&api, &link).await;
    assert!(page.contains("<h1>Ana is on the way</h1>") && page.contains("1.2 km from the pickup."), "{page}");
    assert!(page.contains("<svg class=\"map\"") && page.contains("aria-label=\"Ana is on the way\""), "{page}");
    t.sql("UPDATE drivers SET name = NULL").await;
    assert!(text(&api, &link).await.contains("Your driver is on the way"));
    t.sql("UPDATE drivers SET name = '<b>Budi'").await;
    let driver = t.driver_key("DRV-1").await;
    assert_eq!(api.post("/api/v1/orders/ORD-1/pickup", &driver, json!({})).await.status, 200);
    let page = text(&api, &link).await;
    assert!(page.contains("On the way with &#60;b&#62;Budi") && page.contains("<svg"), "{page}");
    assert_eq!(api.post("/api/v1/orders/ORD-1/complete", &driver, json!({})).await.status, 200);
    assert_eq!(see(&api, &link, "203.0.113.1").await.status, 404);
    t.assert_sound().await;
}

#[tokio::test]
async fn page_contains_no_other_data() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("DRV-1", 1_234.0)]).await;
    t.sql("UPDATE drivers SET name = 'Ana Maria Santos', phone = '+628111222333'").await;
    let link = create_order(&t, &api, "ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    let seen = see(&api, &link, "203.0.113.1").await;
    let all = format!("{:?} {}", seen.headers, seen.body);
    let token = link.strip_prefix("/track/").unwrap();
    for hidden in [
        "ORD-1",
        "DRV-1",
        "Maria",
        "Santos",
        "+62",
        "Thamrin",
        "Merdeka",
        "Ring twice",
        "Cahya",
        "cahya@",
        "CRM-9",
        "CUS-77",
        "106.84",
        "-6.2",
        token,
    ] {
        assert!(!all.contains(hidden), "{hidden}: {all}");
    }
    seen.assert_private();
    let policy = seen.header(CONTENT_SECURITY_POLICY);
    assert!(policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!seen.headers.contains_key("etag") && !seen.headers.contains_key("x-request-id"), "{:?}", seen.headers);
    assert!(!seen.body.contains("<style") && !seen.body.contains(" style="), "{}", seen.body);
}

#[tokio::test]
async fn driver_is_shown_on_a_grid() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("DRV-1", 400.0)]).await;
    let link = create_order(&t, &api, "ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    // Moves the driver by a metre at a time, over 100 m.
    let mut pages = Vec::new();
    for metre in 0..50 {
        t.sql("UPDATE drivers SET lat = lat + 2.0 / 111195").await;
        let page = see(&api, &link, &format!("203.0.113.{metre}")).await.body;
        if pages.last() != Some(&page) {
            pages.push(page);
        }
    }
    assert!((2..=3).contains(&pages.len()), "{} places in 100 m", pages.len());
}

#[tokio::test]
async fn refused_links_have_one_answer() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    let open = create_order(&t, &api, "ORD-1").await;
    let ended = create_order(&t, &api, "ORD-2").await;
    t.cancel("ORD-2").await.unwrap();
    let unknown = see(&api, "/track/unknown", "203.0.113.1").await;
    assert_eq!((unknown.status.as_u16(), unknown.header(CONTENT_TYPE)), (404, "text/html; charset=utf-8"));
    unknown.assert_private();
    assert!(unknown.body.contains("This link is not valid, or the order has ended."), "{}", unknown.body);
    assert_eq!(see(&api, &ended, "203.0.113.1").await, unknown);
    let changed = format!("{}{}", &open[..open.len() - 1], if open.ends_with('A') { "Q" } else { "A" });
    let long = format!("/track/{}", "x".repeat(6_000));
    let bad =
        ["/track/%00", "/track/%FF", "/track/%C3%A4", "/track/ORD-1", "/track/a%2Fb", "/track/%20", "/track/..%2F"];
    for path in bad.into_iter().chain([changed.as_str(), long.as_str()]) {
        assert_eq!(see(&api, path, "203.0.113.2").await, unknown, "{path:.80}");
    }
    // An address over its limit. Other addresses still see the page.
    let mut limited = None;
    for _ in 0..200 {
        let seen = see(&api, &open, "203.0.113.3").await;
        if seen.status != StatusCode::OK {
            limited = Some(seen);
            break;
        }
    }
    assert_eq!(limited.as_ref(), Some(&unknown));
    assert_eq!(see(&api, &open, "203.0.113.4").await.status, 200);
    let posted = api.client.post(api.url(&open)).body("x=1").send().await.unwrap();
    assert_eq!((posted.status(), posted.text().await.unwrap()), (unknown.status, unknown.body));
}

#[tokio::test]
async fn page_has_the_language_of_the_browser() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    let link = create_order(&t, &api, "ORD-1").await;
    for (path, text) in [(link.as_str(), "Mencari pengemudi"), ("/track/x", "Tautan ini tidak berlaku")] {
        let request = api.client.get(api.url(path)).header(ACCEPT_LANGUAGE, "id-ID, en;q=0.5");
        let page = request.send().await.unwrap().text().await.unwrap();
        assert!(page.contains("lang=\"id\"") && page.contains(text), "{page}");
    }
}

#[tokio::test]
async fn token_appears_in_no_log_row_or_metric() {
    let lines = LogLines::default();
    // The level TRACE includes the lines of libraries.
    tracing_subscriber::fmt().with_ansi(false).with_max_level(Level::TRACE).with_writer(lines.clone()).init();
    let counting = Counting::start();
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("DRV-1", 100.0)]).await;
    let link = create_order(&t, &api, "ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    text(&api, &link).await;
    t.cancel("ORD-1").await.unwrap();
    assert_eq!(see(&api, &link, "203.0.113.1").await.status, 404);
    let token = link.strip_prefix("/track/").unwrap();
    assert!(!lines.with("tracked order").is_empty(), "the statement is logged");
    for part in [token, &token[..20], &token[token.len() - 20..]] {
        assert_eq!(lines.with(part).first(), None);
    }
    let series = counting.of("dispatchq_http_requests_total").join("\n");
    assert!(series.contains("/track/{token}") && !series.contains(token), "{series}");
    let tables = "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                  WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition";
    for table in t.texts(tables).await {
        let rows = t.texts(&format!("SELECT x::text FROM {table} x")).await;
        assert!(!rows.iter().any(|row| row.contains(token)), "{table}");
    }
    let keys: Vec<String> = t.redis(&["KEYS", "*"]).await;
    for key in keys {
        let dumped: Vec<u8> = t.redis(&["DUMP", &key]).await;
        assert!(!dumped.windows(token.len()).any(|part| part == token.as_bytes()), "{key}");
    }
}

#[tokio::test]
async fn erased_order_has_no_link() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    for (subject, id, order) in
        [(ErasureSubject::Order, "ORD-1", "ORD-1"), (ErasureSubject::Customer, "CUS-77", "ORD-2")]
    {
        let link = create_order(&t, &api, order).await;
        let now = db::database_now(&t.app.core.db).await.unwrap();
        let erasure = ErasureRecord::new(subject, id, "a request", &by("cli:eve"), now);
        let in_use = privacy::erase_subject(&t.app.core, &erasure).await.unwrap();
        assert!(!matches!(in_use, ErasureOutcome::Done { .. }), "an open order cannot be erased");
        assert_eq!(see(&api, &link, "203.0.113.1").await.status, 200);
        t.cancel(order).await.unwrap();
        t.advance(secs(60)).await;
        let now = db::database_now(&t.app.core.db).await.unwrap();
        let erasure = ErasureRecord::new(subject, id, "a request", &by("cli:eve"), now);
        let done = privacy::erase_subject(&t.app.core, &erasure).await.unwrap();
        assert_eq!(done, ErasureOutcome::Done { orders: 1 }, "{order}");
        assert_eq!(see(&api, &link, "203.0.113.1").await.status, 404, "{order}");
    }
}

#[tokio::test]
async fn new_key_ends_all_links() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    let link = create_order(&t, &api, "ORD-1").await;
    t.sql("UPDATE tracking_key SET secret = sha256('another')").await;
    let restarted = Api::start(&t.reconfigured(|_| {})).await;
    assert_eq!(see(&restarted, &link, "203.0.113.1").await.status, 404);
    let link = create_order(&t, &restarted, "ORD-2").await;
    assert_eq!(see(&restarted, &link, "203.0.113.1").await.status, 200);
}

#[tokio::test]
async fn page_that_is_off_has_no_route() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    let link = create_order(&t, &api, "ORD-1").await;
    let without = Api::start(&t.reconfigured(|config| config.http.tracking = false)).await;
    let answer = without.get(&link, "").await;
    assert_eq!(answer.error(), (404, "NOT_FOUND"));
    assert_eq!(answer.body["tracking_url"], Value::Null);
}
