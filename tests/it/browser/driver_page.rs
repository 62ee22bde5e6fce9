//! The page for drivers in real browsers at 360 px: a race for an offer, a lost connection, one-time links.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::chromium::Chromium;
use crate::support::{Api, TestApp, eventually, secs};
use accounts::api_keys::AccountRole;
use model::{details::Contact, order::OrderStatus};
use notify::channels::push::vapid::generate_keys;
use settings::Config;

/// Width of a small phone in pixels.
const WIDTH: u32 = 360;
/// Clicks the button "Accept" if the page still shows it.
const ACCEPT: &str = "[...document.querySelectorAll('.offer button')]
    .filter((e) => e.textContent === 'Accept').forEach((e) => e.click())";
const NOTICE: &str = "document.getElementById('notice').textContent";
/// Reasons that the loser of a race may read.
const REASONS: [&str; 3] =
    ["Another driver was faster and has this order.", "Another driver is taking this order.", "The offer has ended"];

/// Makes the service worker record the titles of its notifications.
const RECORD_NOTIFICATIONS: &str = "self.shown = [];
    self.registration.showNotification = async (title) => { self.shown.push(title); }; true";

fn with_page(config: &mut Config) {
    config.http.driver_page = true;
}

/// Returns the path of a new link, with its code.
async fn create_link(t: &TestApp, api: &Api, driver: &str) -> String {
    let key = t.key(AccountRole::Dispatcher).await;
    let path = format!("/api/v1/drivers/{driver}/sign-in-links");
    let made = api.post(&path, &key, json!({ "reason": "asked by phone" })).await;
    let (_, path) = made.text("url").split_once("/driver/").unwrap();
    format!("/driver/{path}")
}

/// Starts a phone whose driver has opened a link and pressed the button.
async fn open_phone(t: &TestApp, api: &Api, driver: &str) -> Chromium {
    let mut phone = Chromium::start().await;
    phone.resize(WIDTH, 740, true).await;
    phone.open(&api.url(&create_link(t, api, driver).await)).await;
    phone.click("button", "Sign in").await;
    phone.until_path("/driver").await;
    phone.until_text(driver).await;
    phone
}

async fn set_offline(phone: &mut Chromium, is_offline: bool) {
    let network = json!({ "offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1 });
    phone.call("Network.emulateNetworkConditions", network).await;
}

#[tokio::test]
async fn one_of_two_drivers_gets_the_offer() {
    let t = TestApp::with(|config| {
        with_page(config);
        config.dispatch.ask_at_once = 2;
    })
    .await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    let (mut one, mut two) = (open_phone(&t, &api, "D1").await, open_phone(&t, &api, "D2").await);
    t.order("ORD-1").await;
    t.run_due().await;
    for phone in [&mut one, &mut two] {
        phone.until("the offer is shown", "Boolean(document.querySelector('.offer progress'))").await;
    }
    tokio::join!(one.eval(ACCEPT), two.eval(ACCEPT));
    for phone in [&mut one, &mut two] {
        phone.until("the race is decided", "!document.querySelector('.offer')").await;
    }
    let winner = t.snapshot("ORD-1").await.order.driver_id.unwrap();
    let (winning, losing) = if winner.as_str() == "D1" { (&mut one, &mut two) } else { (&mut two, &mut one) };
    winning.until_text("Your order").await;
    let told = losing.eval(NOTICE).await;
    let told = told.as_str().unwrap();
    assert!(REASONS.iter().any(|reason| told.contains(reason)), "{told}");
    assert!(!losing.eval("document.body.innerText").await.as_str().unwrap().contains("Your order"));
    t.assert_sound().await;
}

#[tokio::test]
async fn page_shows_current_state_after_an_outage() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let mut phone = open_phone(&t, &api, "D1").await;
    phone.until_text("Waiting for an offer").await;
    phone.eval("window.remembered = true").await;
    set_offline(&mut phone, true).await;
    phone.until_text("No connection").await;
    phone.click("button", "Go off duty").await;
    phone.until_text("Your last tap may not have arrived").await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    t.advance(secs(30)).await;
    assert!(!phone.eval("document.body.innerText").await.as_str().unwrap().contains("ORD-1"));
    set_offline(&mut phone, false).await;
    phone.until_text("Your order ORD-1").await;
    phone.until("no problem is shown", "document.getElementById('connection').hidden").await;
    // An order that the system takes back disappears without a tap.
    t.cancel("ORD-1").await.unwrap();
    phone.until_text("Waiting for an offer").await;
    assert_eq!(phone.eval("window.remembered").await, true, "the page was never loaded again");
}

#[tokio::test]
async fn link_works_once_and_expires() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let link = api.url(&create_link(&t, &api, "D1").await);
    let (mut one, mut two) = (Chromium::start().await, Chromium::start().await);
    for phone in [&mut one, &mut two] {
        phone.resize(WIDTH, 740, true).await;
        phone.open(&link).await;
        phone.until("the code is filled in", "document.querySelector('input[name=code]').value.length === 14").await;
        assert_eq!(phone.eval("location.hash").await, "", "the history does not keep the code");
    }
    tokio::join!(
        one.eval("document.querySelector('.panel button').click()"),
        two.eval("document.querySelector('.panel button').click()")
    );
    for phone in [&mut one, &mut two] {
        let answered = "location.pathname === '/driver' || document.body.innerText.includes('This code is not valid')";
        phone.until("the sign-in is answered", answered).await;
    }
    let signed_in = [&mut one, &mut two];
    let mut count = 0;
    for phone in signed_in {
        count += u32::from(phone.eval("location.pathname").await == "/driver");
    }
    assert_eq!(count, 1, "one browser is signed in");

    let late = api.url(&create_link(&t, &api, "D1").await);
    t.advance(secs(15 * 60)).await;
    let mut phone = Chromium::start().await;
    phone.open(&late).await;
    phone.click("button", "Sign in").await;
    phone.until_text("This code is not valid").await;
    assert_eq!(phone.status, 401);
}

/// Switches push messages on, with a new key in this directory.
fn with_push(config: &mut Config, directory: &Path) {
    with_page(config);
    let file = directory.join("push-key.pem");
    fs::write(&file, generate_keys().unwrap().private_pem).unwrap();
    config.push.private_key_file = Some(file);
    config.push.subject = "mailto:ops@example.com".to_owned();
}

#[tokio::test]
async fn push_message_shows_a_notification() {
    let directory = tempfile::tempdir().unwrap();
    let t = TestApp::with(|config| with_push(config, directory.path())).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let mut phone = Chromium::start().await;
    phone.resize(WIDTH, 740, true).await;
    phone.call("ServiceWorker.enable", json!({})).await;
    phone.open(&api.url(&create_link(&t, &api, "D1").await)).await;
    phone.click("button", "Sign in").await;
    phone.until_path("/driver").await;
    phone.until_text("Wake me for offers").await;
    check_looks(&mut phone, "push").await;
    let registration = "navigator.serviceWorker.getRegistration('/driver/')";
    phone.until("the worker is active", &format!("{registration}.then((one) => Boolean(one?.active))")).await;
    // The headless shell shows no notifications, so the worker records them.
    let worker = phone.attach_to_worker().await;
    let page = phone.use_session(&worker);
    phone.eval(RECORD_NOTIFICATIONS).await;
    phone.use_session(&page);
    let id = phone.registrations.last().expect("a registration").clone();
    let message = json!({ "origin": api.url(""), "registrationId": id, "data": "new offer" });
    phone.call("ServiceWorker.deliverPushMessage", message).await;
    phone.use_session(&worker);
    phone.until("a notification is shown", "self.shown.join() === 'New offer'").await;
}

#[tokio::test]
async fn driver_works_on_a_small_phone() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.sql("UPDATE drivers SET available = false").await;
    let mut phone = Chromium::start().await;
    phone.resize(WIDTH, 740, true).await;
    let here = json!({ "latitude": -6.2088, "longitude": 106.8450, "accuracy": 10 });
    phone.call("Emulation.setGeolocationOverride", here).await;
    phone.call("Browser.grantPermissions", json!({ "permissions": ["geolocation"] })).await;
    phone.open(&api.url(&create_link(&t, &api, "D1").await)).await;
    phone.assert_fits("sign-in", WIDTH).await;
    phone.assert_accessible("sign-in").await;
    phone.click("button", "Sign in").await;
    phone.click("button", "Go on duty").await;
    phone.until_text("Your place was sent").await;
    assert_eq!(t.texts("SELECT lng::text FROM drivers").await, ["106.845"]);

    let create = t.create("ORD-1", |new| {
        new.pickup.address = Some("Jalan M.H. Thamrin 9, Menteng, Jakarta Pusat, lobby of the north tower".to_owned());
        new.dropoff = Some(
            serde_json::from_value(json!({ "latitude": -6.17, "longitude": 106.82,
            "address": "Jalan Medan Merdeka Barat 1" }))
            .unwrap(),
        );
        new.notes = Some("Two suitcases and a wheelchair. Please ring at the gate.".to_owned());
        let phone = Some("+628123456789".to_owned());
        new.contact = Some(Contact { name: Some("Ana".to_owned()), phone, ..Contact::default() });
    });
    create.await.unwrap();
    t.run_due().await;
    phone.until_text("Two suitcases").await;
    check_looks(&mut phone, "offer").await;
    phone.click("button", "Accept").await;
    phone.until_text("The order is yours.").await;
    phone.until_text("+628123456789").await;
    check_looks(&mut phone, "order").await;
    phone.click("button", "Picked up").await;
    phone.click("button", "Complete order").await;
    phone.until_text("Waiting for an offer").await;
    eventually("the order is complete", || async { t.status("ORD-1").await == OrderStatus::Completed }).await;

    phone.click("button", "Bahasa Indonesia").await;
    phone.until_text("Menunggu tawaran").await;
    check_looks(&mut phone, "Indonesian").await;
    phone.click("button", "Keluar").await;
    phone.until_path("/driver/sign-in").await;
    phone.assert_no_faults("the whole day").await;
    let cookies = phone.call("Network.getCookies", json!({})).await;
    let names: Vec<&Value> = cookies["cookies"].as_array().unwrap().iter().map(|cookie| &cookie["name"]).collect();
    assert_eq!(names, ["dispatchq_language"], "the session is gone");
    t.assert_sound().await;
}

/// Checks width, contrast and labels, in light and dark mode.
async fn check_looks(phone: &mut Chromium, what: &str) {
    for is_dark in [false, true] {
        phone.set_dark(is_dark).await;
        phone.assert_fits(what, WIDTH).await;
        phone.assert_accessible(what).await;
    }
}
