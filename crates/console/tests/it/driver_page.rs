//! The page for drivers: sign-in, forms without scripts, and what it refuses.

use reqwest::header::{COOKIE, HOST, SET_COOKIE};
use serde_json::json;

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use model::{details::Contact, order::OrderStatus};
use settings::Config;
use test_support::{Api, TestApp, secs};

/// Path of the form that exchanges a code.
const SIGN_IN: &str = "/driver/sign-in";
const HOME: &str = "/driver";

pub(super) fn with_page(config: &mut Config) {
    config.http.driver_page = true;
}

/// Returns a new code of a driver.
async fn create_code(t: &TestApp, api: &Api, driver: &str) -> String {
    let key = t.key(AccountRole::Dispatcher).await;
    let path = format!("/api/v1/drivers/{driver}/sign-in-links");
    let made = api.post(&path, &key, json!({ "reason": "asked by phone" })).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.text("code").to_owned()
}

/// Returns the browser of a driver who is signed in.
pub(super) async fn signed_in(t: &TestApp, api: &Api, driver: &str) -> Browser {
    let mut browser = Browser::new(api);
    let code = create_code(t, api, driver).await;
    let answer = browser.post(SIGN_IN, &[("code", &code)]).await;
    assert_eq!((answer.status().as_u16(), place(&answer)), (303, HOME));
    browser.take_cookie(&answer);
    browser
}

#[tokio::test]
async fn opening_a_link_does_not_use_it() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let code = create_code(&t, &api, "D1").await;
    let mut browser = Browser::new(&api);
    for _ in 0..3 {
        let page = browser.text(SIGN_IN).await;
        assert!(page.contains("<button") && page.contains("name=\"code\"") && !page.contains(&code), "{page}");
    }
    let answer = browser.post(SIGN_IN, &[("code", &code.to_lowercase())]).await;
    assert_eq!((answer.status().as_u16(), place(&answer)), (303, HOME));
    let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("Path=/driver; HttpOnly; SameSite=Lax; Max-Age=2592000"), "{cookie}");
    let policy = answer.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"), "{policy}");
    browser.take_cookie(&answer);
    assert!(browser.text(HOME).await.contains("<h1>D1</h1>"));

    let again = Browser::new(&api).post(SIGN_IN, &[("code", &code)]).await;
    assert_eq!((again.status().as_u16(), again.headers().get(SET_COOKIE)), (401, None));
    assert!(again.text().await.unwrap().contains("This code is not valid"));
}

#[tokio::test]
async fn dispatchers_create_links_in_the_console() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let (page, form) = ("/console/drivers/D1", "/console/drivers/D1/sign-in-link");
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert!(!viewer.text(page).await.contains(form));
    assert_eq!(viewer.post(form, &[("reason", "a test")]).await.status(), 403);
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    assert!(dispatcher.text(page).await.contains(form));
    assert_eq!(dispatcher.post(form, &[("reason", "")]).await.status(), 422);
    let made = dispatcher.post(form, &[("reason", "asked by phone")]).await;
    assert_eq!((made.status().as_u16(), &made.headers()["cache-control"]), (200, &"no-store".parse().unwrap()));
    let made = made.text().await.unwrap();
    let code = made.split("<code id=\"code\">").nth(1).unwrap().split('<').next().unwrap();
    let answer = Browser::new(&api).post(SIGN_IN, &[("code", code)]).await;
    assert_eq!(place(&answer), HOME);
    assert_eq!(place(&dispatcher.get(form).await), page, "a reload");
    assert_eq!(dispatcher.post("/console/drivers/D9/sign-in-link", &[("reason", "a test")]).await.status(), 404);
    let without = Api::start(&t.reconfigured(|config| config.http.driver_page = false)).await;
    let elsewhere =
        Browser { base: without.url(""), client: dispatcher.client.clone(), cookie: dispatcher.cookie.clone() };
    assert!(!elsewhere.text(page).await.contains(form));
    assert_eq!(elsewhere.post(form, &[("reason", "a test")]).await.status(), 409);
}

#[tokio::test]
async fn wrong_codes_are_limited_per_address() {
    let t = TestApp::with(|config| {
        with_page(config);
        config.http.failures_per_min_per_address = 3;
    })
    .await;
    let api = Api::start(&t.app).await;
    let browser = Browser::new(&api);
    let mut statuses = Vec::new();
    for code in ["", "nonsense", "0000-0000-0000", "0000-0000-0001"] {
        statuses.push(browser.post(SIGN_IN, &[("code", code)]).await.status().as_u16());
    }
    assert_eq!(statuses, [401, 401, 401, 429]);
}

#[tokio::test]
async fn session_ends_with_its_driver() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0), ("D2", 100.0)]).await;
    let (one, two) = (signed_in(&t, &api, "D1").await, signed_in(&t, &api, "D2").await);
    let admin = t.key(AccountRole::Admin).await;
    let why = json!({ "reason": "a test" });
    assert_eq!(api.post("/api/v1/drivers/D1/disable", &admin, why.clone()).await.status, 200);
    assert_eq!(place(&one.get(HOME).await), SIGN_IN);
    assert_eq!(place(&one.post("/driver/duty", &[("available", "true")]).await), SIGN_IN);
    assert_eq!(two.get(HOME).await.status(), 200);
    assert_eq!(api.post("/api/v1/drivers/D2/remove", &admin, why).await.status, 200);
    assert_eq!(place(&two.get(HOME).await), SIGN_IN);
    assert_eq!(t.count("SELECT count(*) FROM driver_sessions").await, 0);
}

#[tokio::test]
async fn signed_out_driver_is_asked_for_a_code() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let browser = signed_in(&t, &api, "D1").await;
    let out = browser.post("/driver/sign-out", &[]).await;
    assert_eq!(place(&out), SIGN_IN);
    assert!(out.headers()[SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(place(&browser.get(HOME).await), SIGN_IN);
}

#[tokio::test]
async fn driver_has_no_session_of_the_console() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let mut driver = signed_in(&t, &api, "D1").await;
    driver.cookie = driver.cookie.replace("dispatchq-driver=", "dispatchq-console=");
    assert_eq!(place(&driver.get("/console").await), "/console/login?next=%2Fconsole");
    let mut admin = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    admin.cookie = admin.cookie.replace("dispatchq-console=", "dispatchq-driver=");
    assert_eq!(place(&admin.get(HOME).await), SIGN_IN);
}

#[tokio::test]
async fn order_is_carried_out_with_forms_alone() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let phone = signed_in(&t, &api, "D1").await;
    assert_eq!(place(&phone.post("/driver/duty", &[("available", "false")]).await), "/driver?notice=off_duty");
    assert!(phone.text("/driver?notice=off_duty").await.contains("Go on duty to get offers."));
    assert_eq!(place(&phone.post("/driver/duty", &[("available", "true")]).await), "/driver?notice=on_duty");
    let here = [("latitude", "-6.21"), ("longitude", "106.85")];
    assert_eq!(phone.post("/driver/location", &here).await.status(), 204);
    assert_eq!(t.texts("SELECT lat || ' ' || lng FROM drivers").await, ["-6.21 106.85"]);
    let create = t.create("ORD-1", |new| {
        new.pickup.address = Some("Jalan Thamrin 9 <lobby>".to_owned());
        new.notes = Some("Two suitcases.".to_owned());
        new.contact = Some(Contact { name: Some("Ana".to_owned()), ..Contact::default() });
    });
    create.await.unwrap();
    t.run_due().await;
    let page = phone.text(HOME).await;
    for text in ["Jalan Thamrin 9 &#60;lobby&#62;", "Two suitcases.", " m</strong> to the pickup", "countdown"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("Ana"), "the contact before the accept: {page}");
    let offer = t.live_offer("ORD-1").await.id.to_string();
    let accepted = phone.post("/driver/orders/ORD-1/accept", &[("offer_id", &offer)]).await;
    assert_eq!(place(&accepted), "/driver?notice=accepted");
    let page = phone.text("/driver?notice=accepted").await;
    assert!(page.contains("The order is yours.") && page.contains("Ana") && page.contains("Picked up"), "{page}");
    assert_eq!(place(&phone.post("/driver/orders/ORD-1/pickup", &[]).await), "/driver?notice=picked_up");
    assert_eq!(place(&phone.post("/driver/orders/ORD-1/complete", &[]).await), "/driver?notice=completed");
    assert_eq!(t.status("ORD-1").await, OrderStatus::Completed);
    assert!(phone.text(HOME).await.contains("Waiting for an offer"));
    t.assert_sound().await;
}

#[tokio::test]
async fn declined_and_returned_orders_go_on() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let phone = signed_in(&t, &api, "D1").await;
    t.order("ORD-1").await;
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await.id.to_string();
    let answer = async |path: &str, form: &[(&str, &str)]| place(&phone.post(path, form).await).to_owned();
    assert_eq!(answer("/driver/orders/ORD-1/decline", &[("offer_id", &offer)]).await, "/driver?notice=declined");
    assert_eq!(answer("/driver/orders/ORD-1/accept", &[("offer_id", &offer)]).await, "/driver?notice=OFFER_DECLINED");
    assert!(phone.text("/driver?notice=OFFER_DECLINED").await.contains("You have already declined this offer."));
    t.order("ORD-2").await;
    t.run_due().await;
    t.accept_offer("ORD-2").await;
    assert_eq!(answer("/driver/orders/ORD-2/return", &[("reason", "flat tyre")]).await, "/driver?notice=returned");
    assert!(
        t.texts("SELECT detail FROM order_events WHERE reason = 'DRIVER_CANCELLED'").await[0].contains("flat tyre")
    );
    assert_eq!(answer("/driver/orders/ORD-2/pickup", &[]).await, "/driver?notice=ORDER_NOT_FOUND");
}

#[tokio::test]
async fn page_waits_until_something_changes() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let phone = signed_in(&t, &api, "D1").await;
    t.order("ORD-1").await;
    let waiting = phone.text("/driver?wait=20&known=&seen=true");
    let (page, ()) = tokio::join!(waiting, async { drop(t.run_due().await) });
    let offer = t.live_offer("ORD-1").await.id;
    assert!(page.contains(&format!("data-known=\"{offer}:0\"")), "{page}");
    t.advance(secs(121)).await;
    let ended = phone.text(&format!("/driver?wait=20&known={offer}:0&seen=true")).await;
    assert!(ended.contains("The offer has ended") && ended.contains("data-known=\"\""), "{ended}");
    // A changed order or availability is shown at once.
    let other = phone.text("/driver?wait=20&known=&seen=false").await;
    assert!(other.contains("data-seen=\"true\""), "{other}");
}

#[tokio::test]
async fn bad_forms_are_refused_and_change_nothing() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let phone = signed_in(&t, &api, "D1").await;
    let before = (t.dump().await, t.texts("SELECT d::text FROM drivers d").await);
    let long = "x".repeat(501);
    let values = ["", "null", "-1", "91", "1e400", "NaN", "true1", "a%00b", "%F0%9F%98%80", "%0A", long.as_str()];
    let fields: [(&str, &[&str]); 5] = [
        ("/driver/duty", &["available"]),
        ("/driver/location", &["latitude", "longitude"]),
        ("/driver/orders/ORD-1/accept", &["offer_id"]),
        ("/driver/orders/ORD-1/decline", &["offer_id"]),
        ("/driver/orders/ORD-1/return", &["reason"]),
    ];
    for (path, names) in fields {
        for name in names {
            for value in values {
                let form: Vec<(&str, &str)> =
                    names.iter().map(|n| (*n, if n == name { value } else { "200" })).collect();
                let answer = phone.post(path, &form).await;
                let (status, to) = (answer.status().as_u16(), answer.headers().get("location").cloned());
                // The order is not the driver's, so a valid reason is refused too.
                let codes = ["ORDER_NOT_FOUND", "WRONG_STATE"].map(|code| format!("/driver?notice={code}"));
                let is_refused = to.is_some_and(|to| codes.iter().any(|code| to == code.as_str()));
                assert!(status == 422 || is_refused, "{path} {name}={value}: {status}");
            }
        }
        assert!([422, 303].contains(&phone.post(path, &[]).await.status().as_u16()), "{path} without fields");
        let foreign = phone.post_with(path, &[], &[("sec-fetch-site", "cross-site")]).await;
        assert_eq!(foreign.status(), 403, "{path} from another site");
    }
    for query in ["wait=-1", "wait=x&known=y&seen=%00", "known=1,2,3", "notice=%3Cscript%3E", "wait=99999999999"] {
        let page = phone.text(&format!("/driver?{query}")).await;
        assert!(!page.contains("<script>"), "{query}: {page}");
    }
    for path in
        ["/driver/orders/%00/accept", "/driver/orders/%C3%A4/pickup", "/driver/nonsense", "/driver/orders/a%20b/return"]
    {
        let status = phone.post(path, &[("offer_id", "x")]).await.status().as_u16();
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    assert_eq!((t.dump().await, t.texts("SELECT d::text FROM drivers d").await), before);
}

#[tokio::test]
async fn drivers_sign_in_over_https_or_here() {
    let t = TestApp::with(|config| {
        with_page(config);
        config.http.trusted_proxies = vec!["127.0.0.1".to_owned()];
    })
    .await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let code = create_code(&t, &api, "D1").await;
    let mut browser = Browser::new(&api);
    let elsewhere = [("sec-fetch-site", "same-origin"), ("host", "ride.example.com")];
    let refused = browser.post_with(SIGN_IN, &[("code", &code)], &elsewhere).await;
    assert_eq!((refused.status().as_u16(), refused.headers().get(SET_COOKIE)), (403, None));
    let page = browser.client.get(api.url(SIGN_IN)).header(HOST, "ride.example.com").send().await.unwrap();
    assert!(page.text().await.unwrap().contains("over https"));
    let secure = [elsewhere[0], elsewhere[1], ("x-forwarded-for", "203.0.113.5"), ("x-forwarded-proto", "https")];
    let answer = browser.post_with(SIGN_IN, &[("code", &code)], &secure).await;
    browser.take_cookie(&answer);
    let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-dispatchq-driver=") && cookie.contains("Path=/; Secure; HttpOnly"), "{cookie}");
    let page = browser.client.get(api.url(HOME)).header(COOKIE, &browser.cookie);
    let page = page.header("x-forwarded-for", "203.0.113.5").header("x-forwarded-proto", "https").send().await.unwrap();
    assert_eq!(page.status(), 200);
}

#[tokio::test]
async fn page_is_installable_in_both_languages() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let phone = signed_in(&t, &api, "D1").await;
    let manifest = Browser::new(&api).get("/driver/manifest.webmanifest").await;
    assert_eq!(manifest.headers()["content-type"], "application/manifest+json");
    let manifest: serde_json::Value = manifest.json().await.unwrap();
    assert_eq!((&manifest["start_url"], &manifest["display"]), (&json!("/driver"), &json!("standalone")));
    let icon = manifest["icons"][0]["src"].as_str().unwrap();
    assert_eq!(phone.get(icon).await.headers()["content-type"], "image/svg+xml");
    let page = phone.text(HOME).await;
    assert!(page.contains("href=\"/driver/manifest.webmanifest\"") && page.contains("lang=\"en\""), "{page}");
    assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains("onclick"), "{page}");

    let chosen = phone.post("/driver/language", &[("language", "id")]).await;
    let cookie = chosen.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(place(&chosen), HOME);
    let request = phone.client.get(api.url(HOME)).header(COOKIE, format!("{}; {cookie}", phone.cookie));
    let page = request.send().await.unwrap().text().await.unwrap();
    assert!(page.contains("lang=\"id\"") && page.contains("Menunggu tawaran"), "{page}");
}
