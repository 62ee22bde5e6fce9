//! Access to pages, their cost, and the effects of their buttons.

use super::{ABOUT_ORDERS, ACTIONS, Browser, FOR_STAFF, PAGES, lay_out, place, statements_of};
use accounts::api_keys::AccountRole;
use reqwest::header::{COOKIE, HOST, SET_COOKIE};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use test_support::{Api, TestApp, secs};

#[tokio::test]
async fn a_key_is_exchanged_for_a_session_that_ends() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let mut browser = Browser::new(&api);
    let asked = browser.get("/console/orders?q=X%201").await;
    assert_eq!(
        (asked.status().as_u16(), place(&asked)),
        (303, "/console/login?next=%2Fconsole%2Forders%3Fq%3DX%25201")
    );
    for key in ["", "nonsense", &format!("dq_{}", "0".repeat(64))] {
        let refused = browser.post("/console/login", &[("key", key)]).await;
        assert_eq!((refused.status().as_u16(), refused.headers().get(SET_COOKIE)), (401, None));
    }
    let producer = t.key(AccountRole::Producer).await;
    assert_eq!(browser.post("/console/login", &[("key", &producer)]).await.status(), 403);

    let key = t.key(AccountRole::Support).await;
    for (next, leads_to) in
        [("/console/refunds", "/console/refunds"), ("https://evil.example", "/console"), ("/consolex", "/console")]
    {
        let answer = browser.post("/console/login", &[("key", &key), ("next", next)]).await;
        assert_eq!((answer.status().as_u16(), place(&answer)), (303, leads_to));
        browser.take_cookie(&answer);
        let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Lax; Max-Age=86400"), "{cookie}");
        let policy = answer.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"), "{policy}");
    }
    let page = browser.text("/console").await;
    assert!(page.contains("test-support") && !page.contains(&key), "{page}");
    assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains("onclick"), "{page}");

    t.advance(secs(9 * 3600)).await;
    assert_eq!(browser.get("/console").await.status(), 303, "idle for 8 hours");
    let answer = browser.post("/console/login", &[("key", &key)]).await;
    browser.take_cookie(&answer);
    browser.text("/console/alerts").await;
    let out = browser.post("/console/logout", &[]).await;
    assert_eq!((out.status().as_u16(), place(&out)), (303, "/console/login"));
    assert_eq!(browser.get("/console").await.status(), 303, "signed out");

    let answer = browser.post("/console/login", &[("key", &key)]).await;
    browser.take_cookie(&answer);
    browser.text("/console").await;
    t.sql("UPDATE api_keys SET revoked_at = dispatchq_now() WHERE role = 'support'").await;
    assert_eq!(browser.get("/console").await.status(), 303, "its key was revoked");
}

#[tokio::test]
async fn there_is_no_session_over_plain_http_from_elsewhere() {
    let t = TestApp::with(|config| config.http.trusted_proxies = vec!["127.0.0.1".to_owned()]).await;
    let api = Api::start(&t.app).await;
    let mut browser = Browser::new(&api);
    let key = t.key(AccountRole::Viewer).await;
    let elsewhere = [("sec-fetch-site", "same-origin"), ("host", "ops.example.com")];
    let refused = browser.post_with("/console/login", &[("key", &key)], &elsewhere).await;
    assert_eq!((refused.status().as_u16(), refused.headers().get(SET_COOKIE)), (403, None));
    let page = browser.client.get(api.url("/console/login")).header(HOST, "ops.example.com").send().await.unwrap();
    assert!(page.text().await.unwrap().contains("plain http"));

    let secure = [elsewhere[0], elsewhere[1], ("x-forwarded-for", "203.0.113.5"), ("x-forwarded-proto", "https")];
    let answer = browser.post_with("/console/login", &[("key", &key)], &secure).await;
    browser.take_cookie(&answer);
    let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-dispatchq=") && cookie.contains("Path=/; Secure; HttpOnly"), "{cookie}");
    let page = browser.client.get(api.url("/console")).header(COOKIE, &browser.cookie);
    let page = page.header("x-forwarded-for", "203.0.113.5").header("x-forwarded-proto", "https").send().await.unwrap();
    assert_eq!(page.status(), 200);
}

#[tokio::test]
async fn neither_a_viewer_nor_another_site_changes_anything() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let admin = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    let before = t.dump().await;
    for (path, form) in ACTIONS {
        assert_eq!(viewer.post(path, form).await.status(), 403, "{path}");
        for headers in [
            &[("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "https://evil.example")],
            &[("origin", "null")],
            &[],
        ] {
            assert_eq!(admin.post_with(path, form, headers).await.status(), 403, "{path} {headers:?}");
        }
    }
    let support = Browser::signed_in(&t, &api, AccountRole::Support).await;
    assert_eq!(support.post(ACTIONS[0].0, ACTIONS[0].1).await.status(), 403);
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    assert_eq!(dispatcher.post(ACTIONS[8].0, ACTIONS[8].1).await.status(), 403);
    assert_eq!(t.dump().await, before);
    assert_eq!(t.count("SELECT count(*) FROM staff_actions").await, 0);
    for (i, path) in PAGES.into_iter().enumerate() {
        assert_eq!(viewer.get(path).await.status() == 200, i < FOR_STAFF, "{path}");
    }
}

#[tokio::test]
async fn each_page_takes_at_most_eight_statements() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let browser = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    let subjects = ["/console/orders/ORD-1", "/console/drivers/D1", "/console/desk?order=ORD-1"];
    let pages: Vec<&str> = PAGES.into_iter().chain(subjects).collect();
    for path in PAGES {
        let page = browser.text(path).await;
        assert!(!page.contains("ORD-1") && !page.is_empty(), "{path}");
    }
    assert_eq!(browser.get("/console/orders/ORD-1").await.status(), 404);
    assert_eq!(browser.get("/console/nonsense").await.status(), 404);
    lay_out(&t).await;
    t.run_due().await;
    t.sql("UPDATE orders SET held_for_review = true, held_reason = 'a test' WHERE id = 'ORD-1'").await;
    for path in pages {
        let (page, statements) = statements_of(&browser, path).await;
        assert!((1..=8).contains(&statements.len()), "{path} takes {}: {statements:#?}", statements.len());
        let shows_order = page.contains("ORD-1") || page.contains("OWED");
        let is_about = PAGES[1..ABOUT_ORDERS].contains(&path) && !path.contains("COMPLETED");
        assert!(shows_order || !is_about, "{path}");
    }
}

#[tokio::test]
async fn what_buttons_do_is_done_and_recorded() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    let held = dispatcher.post("/console/orders/ORD-1/hold", &[("reason", "they call back"), ("back", "/desk")]).await;
    assert_eq!((held.status().as_u16(), place(&held)), (303, "/console/desk?did=hold"));
    let page = dispatcher.text("/console/desk?did=hold").await;
    assert!(page.contains("they call back") && page.contains("The order is under review"), "{page}");
    assert_eq!(dispatcher.post("/console/orders/ORD-1/assign", &[("driver_id", "D1")]).await.status(), 422);
    let wrong = dispatcher.post("/console/orders/ORD-1/assign", &[("driver_id", "D9"), ("reason", "x")]).await;
    assert_eq!(wrong.status(), 409);
    assert!(wrong.text().await.unwrap().contains("There is no driver with this id."));
    let assigned =
        dispatcher.post("/console/orders/ORD-1/assign", &[("driver_id", "D1"), ("reason", "by phone")]).await;
    assert_eq!(place(&assigned), "/console/orders/ORD-1?did=assign");
    let events = "SELECT concat_ws(' ', reason, actor) FROM order_events WHERE actor LIKE 'dispatcher:%' ORDER BY seq";
    assert_eq!(
        t.texts(events).await,
        ["HELD_FOR_REVIEW dispatcher:test-dispatcher", "ASSIGNED_BY_HAND dispatcher:test-dispatcher"]
    );

    let support = Browser::signed_in(&t, &api, AccountRole::Support).await;
    let alert = t.count("SELECT id FROM alerts WHERE order_id = 'OWED' AND acked_at IS NULL").await;
    let acked = support.post(&format!("/console/alerts/{alert}/ack"), &[("note", "I have it")]).await;
    assert_eq!(place(&acked), "/console/alerts?did=ack");
    assert_eq!(
        t.texts("SELECT concat_ws(' ', acked_by, ack_note) FROM alerts WHERE order_id = 'OWED'").await,
        ["support:test-support I have it"]
    );
    let back = ("back", "/refunds");
    assert_eq!(
        place(&support.post("/console/orders/OWED/refund-start", &[back]).await),
        "/console/refunds?did=refund-start"
    );
    assert_eq!(support.post("/console/orders/OWED/refund-done", &[back]).await.status(), 422, "how is to be said");
    assert!(support.text("/console/refunds.csv").await.contains("OWED,started,REFUND_PENDING,PAID"));
    support.post("/console/orders/OWED/refund-done", &[("note", "bank transfer 17"), back]).await;
    assert_eq!(t.texts("SELECT status FROM orders WHERE id = 'OWED'").await, ["REFUNDED"]);
    t.assert_sound().await;

    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let admin = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    let stopped = operator.post("/console/queues/notify-queue/pause", &[("reason", "a storm")]).await;
    assert_eq!(place(&stopped), "/console/queues?did=pause");
    assert!(operator.text("/console/queues").await.contains("Paused"));
    operator.post("/console/drivers/D1/disable", &[("reason", "left")]).await;
    assert_eq!(operator.get("/console/sessions").await.status(), 403);
    let session = &t.texts("SELECT id::text FROM console_sessions WHERE role = 'operator'").await[0];
    let ended = admin.post(&format!("/console/sessions/{session}/end"), &[("reason", "lost laptop")]).await;
    assert_eq!(place(&ended), "/console/sessions?did=session-ended");
    assert_eq!(operator.get("/console/queues").await.status(), 303);
    let recorded = t.texts("SELECT concat_ws(' ', action, actor, reason) FROM audit_staff_actions ORDER BY id").await;
    assert_eq!(
        recorded,
        [
            "QUEUE_PAUSED operator:test-operator a storm",
            "DRIVER_DISABLED operator:test-operator left",
            "SESSION_ENDED admin:test-admin lost laptop"
        ]
    );
}

#[tokio::test]
async fn the_path_is_a_setting_and_files_keep_for_ever() {
    let t = TestApp::with(|config| config.console.path = "/ops/console".to_owned()).await;
    let api = Api::start(&t.app).await;
    let mut browser = Browser::new(&api);
    let answer = browser.post("/ops/console/login", &[("key", &t.key(AccountRole::Viewer).await)]).await;
    assert_eq!(place(&answer), "/ops/console");
    browser.take_cookie(&answer);
    let page = browser.text("/ops/console").await;
    assert!(!page.contains("\"/console"), "{page}");
    let files: Vec<&str> = page.split('"').filter(|text| text.starts_with("/ops/console/assets/")).collect();
    assert!(files.len() >= 4, "{files:?}");
    let mut size = 0;
    for file in files {
        let answer = browser.get(file).await;
        assert_eq!(answer.headers()["cache-control"], "public, max-age=31536000, immutable");
        size += answer.bytes().await.unwrap().len();
    }
    assert!(size < 200 * 1024, "{size} bytes, not even compressed");
    let off = t.reconfigured(|config| config.console.enabled = false);
    assert_eq!(Browser::new(&Api::start(&off).await).get("/ops/console").await.status(), 404);
}

#[test]
fn vendored_scripts_have_the_noted_sums() {
    let files: [&[u8]; 2] =
        [include_bytes!("../../assets/htmx.min.js"), include_bytes!("../../assets/redoc.standalone.js")];
    for file in files {
        let sum: String = Sha256::digest(file).iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        });
        assert!(include_str!("../../assets/README.md").contains(&sum), "{sum}");
    }
}
