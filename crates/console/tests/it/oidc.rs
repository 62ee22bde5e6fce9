//! Sign-in at a real OpenID Connect provider.

use std::time::Duration;

use reqwest::header::{HOST, RETRY_AFTER, SET_COOKIE};
use tokio::net::TcpListener;

use super::{Browser, lay_out, place};
use accounts::{
    api_keys::AccountRole,
    key_admin::{self, KeyError, KeySelection},
};
use settings::Config;
use test_support::{Api, LogLines, OidcServer, TestApp, secs};

const START: &str = "/console/oidc/start?next=%2Fconsole%2Fdesk";
const CALLBACK: &str = "/console/oidc/callback";

/// A console with an OpenID Connect provider.
struct Stage {
    t: TestApp,
    provider: OidcServer,
    api: Api,
}

impl Stage {
    async fn start() -> Self {
        Self::with(|_, _| {}).await
    }

    async fn with(configure: impl FnOnce(&mut Config, &OidcServer)) -> Self {
        let t = TestApp::start().await;
        let mut provider = OidcServer::start().await;
        let app = t.reconfigured(|config| {
            config.console.oidc = Some(provider.config());
            configure(config, &provider);
        });
        let api = Api::start(&app).await;
        provider.register_clients(&api.url(CALLBACK)).await;
        Self { t, provider, api }
    }

    /// Starts a sign-in. Returns the browser with its cookie, and the address at the provider.
    async fn begin(&self) -> (Browser, String) {
        let mut browser = Browser::new(&self.api);
        let begun = browser.get(START).await;
        assert_eq!(begun.status(), 303);
        browser.take_cookie(&begun);
        let address = place(&begun).to_owned();
        (browser, address)
    }

    /// Visits the provider as this person. Returns the browser and the path to which the provider redirects it.
    async fn sent_back(&self, login: Option<&str>) -> (Browser, String) {
        let (browser, address) = self.begin().await;
        let back = self.provider.visit(&address, login).await;
        (browser, back.strip_prefix(&self.api.url("")).unwrap().to_owned())
    }

    async fn signed_in(&self, login: &str) -> Browser {
        let (mut browser, back) = self.sent_back(Some(login)).await;
        let answer = browser.get(&back).await;
        assert_eq!((answer.status().as_u16(), place(&answer)), (303, "/console/desk"));
        browser.take_cookie(&answer);
        browser
    }

    async fn sessions(&self) -> i64 {
        self.t.count("SELECT count(*) FROM console_sessions").await
    }
}

/// Asserts that a page refuses the sign-in with this status and text.
async fn assert_refused(browser: &Browser, path: &str, status: u16, said: &str) {
    let answer = browser.get(path).await;
    let cookies: Vec<_> = answer.headers().get_all(SET_COOKIE).iter().map(|cookie| cookie.to_str().unwrap()).collect();
    assert!(cookies.iter().all(|cookie| cookie.starts_with("dispatchq-console-oidc=;")), "{cookies:?}");
    let found = answer.status();
    let page = answer.text().await.unwrap();
    assert!(found == status && page.contains(said), "{path}: {found} {page}");
}

#[tokio::test]
async fn oidc_user_acts_by_name() {
    let stage = Stage::start().await;
    let t = &stage.t;
    lay_out(t).await;
    let page = Browser::new(&stage.api).text("/console/login?next=%2Fconsole%2Fdesk").await;
    assert!(page.contains("Sign in with 127.0.0.1") && page.contains(START), "{page}");

    let (mut anna, back) = stage.sent_back(Some("anna")).await;
    assert!(anna.cookie.starts_with("dispatchq-console-oidc="), "{}", anna.cookie);
    let answer = anna.get(&back).await;
    assert_eq!((answer.status().as_u16(), place(&answer)), (303, "/console/desk"));
    let cookies: Vec<_> = answer.headers().get_all(SET_COOKIE).iter().map(|cookie| cookie.to_str().unwrap()).collect();
    assert!(cookies[0].starts_with("dispatchq-console=") && cookies[0].contains("HttpOnly; SameSite=Lax"));
    assert!(cookies[1].starts_with("dispatchq-console-oidc=;") && cookies[1].contains("Max-Age=0"), "{cookies:?}");
    anna.take_cookie(&answer);
    assert!(anna.text("/console/desk").await.contains("anna@example.com"));
    anna.post("/console/orders/ORD-1/hold", &[("reason", "they call back")]).await;
    assert_eq!(
        t.texts("SELECT actor FROM order_events WHERE reason = 'HELD_FOR_REVIEW'").await,
        ["dispatcher:anna@example.com"]
    );
    assert_eq!(anna.post("/console/orders/OWED/refund-start", &[("note", "a test")]).await.status(), 403);

    // The strongest of several roles applies, and the same person may sign in twice.
    stage.signed_in("boss").await.text("/console/queues").await;
    let again = stage.signed_in("anna").await;
    let keys =
        "SELECT concat_ws(' ', name, role, oidc_subject) FROM api_keys WHERE oidc_subject IS NOT NULL ORDER BY id";
    assert_eq!(
        t.texts(keys).await,
        ["anna@example.com dispatcher anna", "boss@example.com operator boss", "anna@example.com dispatcher anna"]
    );
    let rotated = key_admin::rotate_key(&t.app.core.db, "anna@example.com", Duration::ZERO, None).await;
    assert!(matches!(rotated, Err(KeyError::NoSuchName(_))), "there is no key to hand out");
    let anna_alone = KeySelection::Name("anna@example.com".to_owned());
    key_admin::revoke_keys(&mut t.app.core.db.acquire().await.unwrap(), &anna_alone).await.unwrap();
    for browser in [anna, again] {
        assert_eq!(browser.get("/console/desk").await.status(), 303, "revoked");
    }
    let boss = stage.signed_in("boss").await;
    t.advance(secs(24 * 3600)).await;
    assert_eq!(boss.get("/console/queues").await.status(), 303, "a day later");
    let live = "SELECT count(*) FROM valid_api_keys v JOIN api_keys k USING (id) WHERE k.oidc_subject IS NOT NULL";
    assert_eq!(t.count(live).await, 0, "keys end with their sessions");
}

#[tokio::test]
async fn what_does_not_fit_opens_no_session() {
    let stage = Stage::start().await;
    let lines = LogLines::default();
    let seen = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(lines.clone()).finish();
    let _logging = tracing::subscriber::set_default(seen);
    let not_begun = "was not started in this browser";

    let (anna, back) = stage.sent_back(Some("anna")).await;
    assert_refused(&anna, &back.replace("state=", "state=x"), 400, not_begun).await;
    assert_refused(&anna, &back.replace("iss=http", "iss=https"), 400, not_begun).await;
    assert_refused(&Browser::new(&stage.api), &back, 400, not_begun).await;
    let (another, _) = stage.begin().await;
    assert_refused(&another, &back, 400, not_begun).await;
    assert_refused(&anna, CALLBACK, 400, not_begun).await;

    // A code that the provider issued to its other client, with the state, nonce and challenge of this sign-in.
    let (browser, address) = stage.begin().await;
    assert!(address.contains("client_id=dispatchq&") && address.contains("code_challenge_method=S256"), "{address}");
    let of_other = stage.provider.visit(&address.replace("client_id=dispatchq", "client_id=other"), Some("anna")).await;
    let of_other = of_other.strip_prefix(&stage.api.url("")).unwrap();
    assert_refused(&browser, of_other, 401, "did not confirm this sign-in").await;

    for (login, status, said) in [
        (None, 403, "refused the sign-in: access_denied"),
        (
            Some("guest"),
            403,
            "you have no role in this console. Ask for one of the values of groups that console.oidc.roles lists",
        ),
        (Some("nameless"), 403, "did not send your name: email is missing or not verified"),
    ] {
        let (browser, back) = stage.sent_back(login).await;
        assert_refused(&browser, &back, status, said).await;
    }
    assert_eq!(stage.sessions().await, 0);

    assert_eq!(anna.get(&back).await.status(), 303, "none of that has spoilt this one");
    assert_refused(&anna, &back, 401, "did not confirm this sign-in").await;
    assert_eq!(stage.sessions().await, 1, "a code is good once");
    assert_eq!(lines.with("A sign-in by OpenID Connect failed").len(), 10);
    let code = back.split_once("code=").unwrap().1.split('&').next().unwrap();
    for secret in [code, "a secret", "a+secret", "eyJ"] {
        assert_eq!(lines.with(secret), [""; 0], "{secret}");
    }
}

#[tokio::test]
async fn another_client_signs_in_by_another_method() {
    let stage = Stage::with(|config, provider| config.console.oidc = Some(provider.config_of_other())).await;
    stage.signed_in("anna").await.text("/console/desk").await;
}

#[tokio::test]
async fn unavailable_oidc_provider_does_not_block_keys() {
    let mut stage = Stage::start().await;
    stage.signed_in("anna").await;
    let (boss, back) = stage.sent_back(Some("boss")).await;
    stage.provider.stop().await;
    assert_refused(&boss, &back, 503, "cannot be reached").await;
    Browser::signed_in(&stage.t, &stage.api, AccountRole::Operator).await.text("/console/queues").await;
    // After the restart the provider signs tokens with a new key.
    stage.provider.restart().await;
    stage.signed_in("anna").await.text("/console/desk").await;

    // This listener accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", silent.local_addr().unwrap());
    let app = stage.t.reconfigured(|config| {
        let mut oidc = stage.provider.config();
        oidc.issuer = issuer;
        config.console.oidc = Some(oidc);
    });
    let api = Api::start(&app).await;
    let browser = Browser::new(&api);
    let (refused, page) = tokio::join!(browser.get(START), browser.text("/console/login"));
    assert!(page.contains("Sign in with 127.0.0.1"));
    assert!(refused.status() == 503 && refused.headers().contains_key(RETRY_AFTER));
    assert!(refused.text().await.unwrap().contains("or sign in with a key"));
    Browser::signed_in(&stage.t, &api, AccountRole::Support).await.text("/console/desk").await;
}

#[tokio::test]
async fn returns_from_the_provider_are_counted_with_wrong_keys() {
    let stage = Stage::with(|config, _| config.http.failures_per_min_per_address = 2).await;
    let stranger = Browser::new(&stage.api);
    assert_eq!(stranger.get(CALLBACK).await.status(), 400);
    assert_eq!(stranger.get(CALLBACK).await.status(), 400);
    let (anna, back) = stage.sent_back(Some("anna")).await;
    assert_refused(&anna, &back, 429, "Try again in").await;
    Browser::signed_in(&stage.t, &stage.api, AccountRole::Viewer).await.text("/console/desk").await;
}

#[tokio::test]
async fn oidc_sign_in_needs_provider_and_secure_origin() {
    let stage = Stage::start().await;
    let elsewhere = Browser::new(&stage.api);
    for path in [START, CALLBACK] {
        let refused = elsewhere.client.get(stage.api.url(path)).header(HOST, "ops.example.com").send().await.unwrap();
        assert_eq!((refused.status().as_u16(), refused.headers().get(SET_COOKIE)), (403, None), "{path}");
    }
    let without = Api::start(&stage.t.app).await;
    let browser = Browser::new(&without);
    for path in [START, CALLBACK] {
        assert_eq!(browser.get(path).await.status(), 404, "{path}");
    }
    assert!(!browser.text("/console/login").await.contains("Sign in with"));
}
