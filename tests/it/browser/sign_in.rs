//! Sign-in, and the data that the browser keeps of it.

use super::{
    chromium::Chromium,
    stage::{Console, import_areas, let_wait, reload_rules},
};
use crate::support::{Api, OidcServer, TestApp};
use accounts::api_keys::AccountRole;

/// Data that a script of the page can read.
const READABLE: &str = "JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }])";

// Rule U18: The sign-in link that the demo prints signs in, and its key does not stay in any address.
#[tokio::test]
async fn a_key_opens_the_console_and_is_not_kept() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Support).await;
    let mut browser = Chromium::start().await;
    browser.open(&api.url("/console/refunds?state=owed")).await;
    browser.until_path("/console/login").await;
    browser.assert_no_faults("the page for signing in").await;
    browser.assert_accessible("the page for signing in").await;

    browser.fill("input[name=key]", "dq_wrong").await;
    browser.click("button", "Sign in").await;
    browser.until_text("This key does not exist").await;
    assert_eq!(browser.status, 401);
    browser.assert_accessible("a wrong key").await;

    browser.fill("input[name=key]", &key).await;
    browser.click("button", "Sign in").await;
    browser.until_path("/console/refunds").await;
    assert_eq!(browser.eval("location.search").await, "?state=owed");
    browser.until_text("test-support").await;
    let readable = browser.eval(READABLE).await;
    assert!(readable.as_str().is_some_and(|kept| !kept.contains("dq_")), "{readable}");
    let cookies = browser.call("Network.getCookies", serde_json::json!({})).await;
    let cookie = &cookies["cookies"][0];
    assert_eq!((&cookie["httpOnly"], &cookie["sameSite"]), (&true.into(), &"Lax".into()), "{cookies}");
    assert!(!cookies.to_string().contains(&key), "{cookies}");

    browser.sign_out().await;
    browser.open(&api.url("/console/refunds")).await;
    browser.until_path("/console/login").await;

    // A link with the key after '#', as the demo prints it. The address bar does not keep the key.
    browser.open("about:blank").await;
    browser.open(&api.url(&format!("/console/login#key={key}"))).await;
    browser.until_path("/console").await;
    browser.until_text("test-support").await;
    assert!(!browser.eval("location.href").await.to_string().contains("dq_"));
}

#[tokio::test]
async fn a_person_signs_in_at_a_provider_of_another_site() {
    let t = TestApp::start().await;
    let mut provider = OidcServer::start().await;
    let app = t.reconfigured(|config| config.console.oidc = Some(provider.config()));
    let api = Api::start(&app).await;
    // Browsers treat localhost and 127.0.0.1 as two sites.
    let origin = api.url("").replace("127.0.0.1", "localhost");
    provider.register_clients(&format!("{origin}/console/oidc/callback")).await;
    let mut browser = Chromium::start().await;
    browser.open(&format!("{origin}/console/alerts?show=all")).await;
    browser.until_path("/console/login").await;
    browser.assert_no_faults("the page that names a provider").await;
    browser.assert_accessible("the page that names a provider").await;
    browser.click("a.button", "Sign in with 127.0.0.1").await;
    browser.fill("input[name=login]", "anna").await;
    browser.fill("input[name=password]", "x").await;
    browser.click("button", "Sign-in").await;
    browser.click("button", "Continue").await;
    browser.until_path("/console/alerts").await;
    assert_eq!(browser.eval("location.search").await, "?show=all");
    browser.until_text("anna@example.com").await;
    let cookies = browser.call("Network.getCookies", serde_json::json!({})).await;
    let names: Vec<_> = cookies["cookies"].as_array().unwrap().iter().map(|cookie| &cookie["name"]).collect();
    assert_eq!(names, ["dispatchq-console"], "that of the sign-in is gone");
}

/// Opens every page by its menu link and uses it.
#[tokio::test]
async fn all_of_it_works_under_another_path() {
    let t = TestApp::with(|config| config.console.path = "/ops/console".to_owned()).await;
    import_areas(&t).await;
    let_wait(&t, "WAITS").await;
    let mut console = Console::open(&t, AccountRole::Admin).await;
    let origin = console.api.url("");
    let browser = &mut console.browser;
    let links = browser.eval("[...document.querySelectorAll('.menu a')].map((a) => a.textContent.trim())").await;
    let links = links.as_array().unwrap();
    assert!(links.len() >= 17, "{links:?}");
    for link in links {
        let label = link.as_str().unwrap();
        // The next page does not have this variable.
        browser.eval("window.left = true").await;
        browser.click(".menu a", label).await;
        let there = format!(
            "!window.left && document.readyState === 'complete'
             && document.querySelector('.menu a[aria-current]').textContent.trim() === '{label}'"
        );
        browser.until(&format!("the page {label} is shown"), &there).await;
        let elsewhere = "[...document.querySelectorAll('[href], [src], [action], [hx-get]')]
            .flatMap((e) => ['href', 'src', 'action', 'hx-get'].map((name) => e.getAttribute(name)))
            .filter((to) => to?.startsWith('/') && !to.startsWith('/ops/console'))";
        assert_eq!(browser.eval(elsewhere).await, serde_json::json!([]), "{label} leads elsewhere");
        browser.assert_no_faults(label).await;
    }

    browser.open(&format!("{origin}/ops/console/areas")).await;
    browser.click("tr:has(td.lead) summary", "Override area").await;
    browser.fill("tr details[open] input[name=reason]", "a concert").await;
    browser.click("tr details[open] button", "Override area").await;
    browser.until_text("The override was set.").await;
    reload_rules(&t).await;
    assert_eq!(t.texts("SELECT concat_ws(' ', status, reason) FROM area_overrides").await, ["FORCE_BUSY a concert"]);

    browser.open(&format!("{origin}/ops/console/orders")).await;
    browser.click("a.id", "WAITS").await;
    browser.until_path("/ops/console/orders/WAITS").await;
    browser.sign_out().await;
    assert_eq!(browser.eval("location.pathname").await, "/ops/console/login");
}
