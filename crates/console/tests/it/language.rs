//! Pages in English and Indonesian, as chosen by the person or preferred by the browser.

use std::collections::BTreeSet;

use reqwest::header::{ACCEPT_LANGUAGE, SET_COOKIE};
use serde_json::json;

use super::{Browser, PAGES, lay_out, place};
use accounts::api_keys::AccountRole;
use test_support::{Api, ProviderStage, TestApp};

const LOGIN: &str = "/console/login";
const SWITCH: &str = "/console/language";
const INDONESIAN: &str = "; dispatchq_language=id";
/// Elements whose text belongs to the page. Chips and cells contain names and data.
const TAGS: [&str; 12] =
    ["title", "h1", "h2", "h3", "th", "dt", "summary", "button", "label", "strong", "p", "figcaption"];
/// Texts that are equal in both languages.
const SAME: [&str; 10] = [
    "Audit",
    "Audit · dispatchq",
    "Binding",
    "Binding · dispatchq",
    "Binding B · dispatchq",
    "Menu",
    "Mode",
    "OTP",
    "Server",
    "URL",
];

/// Returns the texts of a page, without the person's name and parts marked as English.
fn texts_of(page: &str) -> BTreeSet<String> {
    let mut texts = BTreeSet::new();
    for part in page.split('<') {
        let Some((tag, text)) = part.split_once('>') else { continue };
        let is_said = TAGS.contains(&tag.split(' ').next().unwrap()) || tag.starts_with("span class=\"label\"");
        let text = text.trim();
        if is_said && !tag.contains("lang=\"en\"") && !text.starts_with("test-") && text.contains(char::is_alphabetic) {
            texts.insert(text.to_owned());
        }
    }
    texts
}

/// Asserts that no English text is on the Indonesian page. Returns the number of texts.
async fn assert_translated(english: &Browser, indonesian: &Browser, path: &str) -> usize {
    let (one, other) = (english.text(path).await, indonesian.text(path).await);
    assert!(one.contains("<html lang=\"en\""), "{path}");
    assert!(other.contains("<html lang=\"id\""), "{path}");
    let (one, other) = (texts_of(&one), texts_of(&other));
    let same: Vec<_> = one.intersection(&other).filter(|text| !SAME.contains(&text.as_str())).collect();
    assert!(same.is_empty(), "{path} says {same:?} in both languages");
    assert_eq!(one.is_empty(), other.is_empty(), "{path}");
    other.len()
}

/// Returns the same signed-in browser with Indonesian pages.
fn in_indonesian(browser: &Browser, api: &Api) -> Browser {
    Browser { cookie: format!("{}{INDONESIAN}", browser.cookie), ..Browser::new(api) }
}

#[tokio::test]
async fn every_page_is_in_indonesian_too() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let english = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    let indonesian = in_indonesian(&english, &api);
    let pages = || PAGES.into_iter().filter(|path| !path.ends_with(".csv")).chain([LOGIN]);
    for path in pages() {
        assert!(assert_translated(&english, &indonesian, path).await > 3, "{path}");
    }
    lay_out(&t).await;
    t.run_due().await;
    t.sql("UPDATE orders SET held_for_review = true, held_reason = 'a test' WHERE id = 'ORD-1'").await;
    for path in pages().chain([
        "/console/orders/ORD-1",
        "/console/orders/OWED",
        "/console/drivers/D1",
        "/console/desk?did=hold",
        "/console/desk?order=ORD-1&did=take",
    ]) {
        assert!(assert_translated(&english, &indonesian, path).await > 3, "{path}");
    }
    assert_eq!(english.post("/console/dead/plan", &[("verb", "discard"), ("reason", "a test")]).await.status(), 303);
    let plan = format!("/console/plans/{}", t.texts("SELECT id::text FROM plans").await[0]);
    assert!(assert_translated(&english, &indonesian, &plan).await > 3);
    let page = indonesian.text("/console/orders/ORD-1").await;
    assert!(page.contains("Tindakan") && page.contains(">Titik jemput</text>"), "{page}");
}

#[tokio::test]
async fn the_page_of_a_binding_is_in_indonesian_too() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    stage.t.run_due().await;
    let api = Api::start(&stage.t.app).await;
    let english = Browser::signed_in(&stage.t, &api, AccountRole::Operator).await;
    let indonesian = in_indonesian(&english, &api);
    for path in ["/console/bindings", "/console/bindings/B"] {
        assert!(assert_translated(&english, &indonesian, path).await > 3, "{path}");
    }
}

#[tokio::test]
async fn what_is_refused_is_said_in_indonesian_too() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let mut viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    viewer.cookie.push_str(INDONESIAN);
    let missing = viewer.get("/console/orders/ORD-9").await;
    assert_eq!(missing.status(), 404);
    let missing = missing.text().await.unwrap();
    assert!(missing.contains("lang=\"id\"") && missing.contains("Tidak ada pesanan dengan id ini."), "{missing}");
    let refused = viewer.post("/console/orders/ORD-9/hold", &[("reason", "a test")]).await;
    assert_eq!(refused.status(), 403);
    let refused = refused.text().await.unwrap();
    assert!(refused.contains("Viewer hanya dapat membaca"), "{refused}");
    let unread = viewer.get("/console/orders?status=NONE").await;
    assert_eq!(unread.status(), 422);
    assert!(unread.text().await.unwrap().contains("Status ini tidak ada untuk pesanan."));
}

#[tokio::test]
async fn the_switch_is_remembered_and_leads_back() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let mut browser = Browser::new(&api);
    let page = browser.text(LOGIN).await;
    assert!(page.contains("lang=\"en\"") && page.contains("Bahasa Indonesia"), "{page}");
    let liked = browser.client.get(api.url(LOGIN)).header(ACCEPT_LANGUAGE, "id-ID,id;q=0.9,en;q=0.8");
    let liked = liked.send().await.unwrap().text().await.unwrap();
    assert!(liked.contains("<html lang=\"id\""), "{liked}");

    let desk = "/console/login?next=%2Fconsole%2Fdesk";
    let pages = [
        (api.url(desk), desk),
        (api.url("/console/orders?q=a+b&from=2026-01-08T09%3A30"), "/console/orders?q=a+b&from=2026-01-08T09%3A30"),
        (api.url("/api/v1/orders"), "/console"),
        ("nonsense".to_owned(), "/console"),
    ];
    for (referer, leads_to) in pages {
        let headers = [("sec-fetch-site", "same-origin"), ("referer", referer.as_str())];
        let answer = browser.post_with(SWITCH, &[("language", "id")], &headers).await;
        assert_eq!((answer.status().as_u16(), place(&answer)), (303, leads_to), "{referer}");
        let cookie = answer.headers()[SET_COOKIE].to_str().unwrap().to_owned();
        assert_eq!(cookie, "dispatchq_language=id; Path=/console; HttpOnly; SameSite=Lax; Max-Age=31536000");
        browser.take_cookie(&answer);
    }
    let page = browser.text(LOGIN).await;
    assert!(page.contains("<html lang=\"id\"") && page.contains("Masuk") && page.contains("English"), "{page}");
    let liked = browser.client.get(api.url(LOGIN)).header(ACCEPT_LANGUAGE, "en").header("cookie", &browser.cookie);
    let liked = liked.send().await.unwrap().text().await.unwrap();
    assert!(liked.contains("<html lang=\"id\""), "a choice comes before the browser: {liked}");

    for (form, headers, status) in [
        ([("language", "fr")], [("sec-fetch-site", "same-origin")], 422),
        ([("language", "")], [("sec-fetch-site", "same-origin")], 422),
        ([("language", "en")], [("sec-fetch-site", "cross-site")], 403),
    ] {
        let refused = browser.post_with(SWITCH, &form, &headers).await;
        assert_eq!((refused.status().as_u16(), refused.headers().get(SET_COOKIE)), (status, None), "{form:?}");
    }
    let back = browser.post(SWITCH, &[("language", "en")]).await;
    browser.take_cookie(&back);
    assert!(browser.text(LOGIN).await.contains("<html lang=\"en\""));
    browser.cookie = "dispatchq_language=fr".to_owned();
    assert!(browser.text(LOGIN).await.contains("<html lang=\"en\""), "a language that pages are not in");
}
