//! The role `cli` belongs to the command line in its own process: no key, session or header grants it.

use accounts::api_keys::AccountRole;
use api::local::{LocalApi, LocalBody};
use foundation::outbound;
use model::actor::{Actor, ActorRole};
use reqwest::{
    Method, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue, SET_COOKIE},
};
use serde_json::json;

use test_support::{Api, TestApp, http_client, secs};

const ROLES: [AccountRole; 7] = [
    AccountRole::Producer,
    AccountRole::Driver,
    AccountRole::Viewer,
    AccountRole::Dispatcher,
    AccountRole::Support,
    AccountRole::Operator,
    AccountRole::Admin,
];
/// A request that only the command line may send: a change without a reason.
const PAUSE: &str = "/api/v1/admin/queues/notify-queue/pause";
const BODY: &str = r#"{"reason":null}"#;
/// Headers with which a request might claim the role.
const CLAIMS: [(&str, &str); 8] = [
    ("x-role", "cli"),
    ("x-actor", "cli:root"),
    ("x-local-caller", "cli:root"),
    ("x-dispatchq-actor", "cli:root"),
    ("x-forwarded-for", "127.0.0.1"),
    ("x-forwarded-user", "cli:root"),
    ("forwarded", "for=127.0.0.1;by=cli"),
    ("user-agent", "dispatchq/0.1.0"),
];

/// Sends the change with these headers and every claim. Returns the status.
async fn send_with_claims(api: &Api, more: &[(&str, &str)]) -> u16 {
    let mut request = http_client().post(api.url(PAUSE)).header(CONTENT_TYPE, "application/json").body(BODY);
    for (name, value) in CLAIMS.iter().chain(more) {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn no_key_session_or_header_grants_role_cli() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    for role in ROLES {
        let key = if role == AccountRole::Driver { t.driver_key("D1").await } else { t.key(role).await };
        let may_pause = matches!(role, AccountRole::Operator | AccountRole::Admin);
        let refused = if may_pause { 422 } else { 403 };
        let bearer = format!("Bearer {key}");
        assert_eq!(send_with_claims(&api, &[("authorization", &bearer)]).await, refused, "{role:?}");
        // A console session is not valid for the API.
        let browser = outbound::build_client(secs(30)).unwrap();
        let login = browser.post(api.url("/console/login")).header("sec-fetch-site", "same-origin");
        let login = login.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(format!("key={key}"));
        let answer = login.send().await.unwrap();
        let cookie = answer.headers().get(SET_COOKIE).and_then(|cookie| cookie.to_str().ok()).unwrap_or_default();
        assert_eq!(!cookie.is_empty(), role.is_staff(), "{role:?} signs in");
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        assert_eq!(send_with_claims(&api, &[(COOKIE.as_str(), &cookie)]).await, 401, "{role:?}");
    }
    for claim in ["Cli root", "cli", "Bearer cli", "Bearer cli:root", "Local cli:root", ""] {
        assert_eq!(send_with_claims(&api, &[(AUTHORIZATION.as_str(), claim)]).await, 401, "{claim}");
    }
    assert_eq!(t.count("SELECT count(*) FROM staff_actions").await, 0, "nothing was paused");
    assert_eq!(t.count("SELECT count(*) FROM staff_requests WHERE request LIKE '%cli%'").await, 0);
}

#[tokio::test]
async fn no_key_or_user_has_role_cli() {
    let t = TestApp::start().await;
    assert!(serde_json::from_value::<AccountRole>(json!("cli")).is_err());
    let api = Api::start(&t.app).await;
    let admin = t.key(AccountRole::Admin).await;
    for (method, path, body) in [
        (Method::POST, "/api/v1/admin/keys", json!({ "name": "root", "role": "cli", "reason": "a test" })),
        (Method::PUT, "/api/v1/admin/users/root", json!({ "name": "Root", "role": "cli", "reason": "a test" })),
    ] {
        assert_eq!(api.send(method, path, &admin, "", body.to_string()).await.status, 422, "{path}");
    }
    for statement in
        ["UPDATE api_keys SET role = 'cli'", "INSERT INTO users (id, name, role) VALUES ('root', 'Root', 'cli')"]
    {
        let refused = sqlx::query(statement).execute(&t.app.core.db).await.unwrap_err();
        assert!(refused.to_string().contains("check constraint"), "{refused}");
    }
}

#[tokio::test]
async fn command_line_acts_without_reason_or_limit() {
    let t = TestApp::start().await;
    let local = LocalApi::new(t.app.clone(), Actor::new(ActorRole::Cli, "anna", None));
    let url = |path: &str| Url::parse(&format!("http://localhost{path}")).unwrap();
    let kind = |kind: &'static str| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
    let paused = local.send(Method::POST, &url(PAUSE), kind("application/json"), BODY.as_bytes().to_vec().into()).await;
    assert_eq!(paused.unwrap().status, 200);
    assert_eq!(t.count("SELECT count(*) FROM staff_actions WHERE actor = 'cli:anna' AND reason IS NULL").await, 1);
    // The body exceeds the HTTP limit by one line.
    let line = "{\"id\": \"D-1\", \"service_types\": [\"RIDE\"], \"latitude\": -6.2, \"longitude\": 106.8}\n";
    let text = " ".repeat(17 * 1024 * 1024) + "\n" + line;
    let body = LocalBody::read(Box::new(std::io::Cursor::new(text.clone().into_bytes())));
    let imported = local.send(Method::POST, &url("/api/v1/drivers/import"), kind("application/jsonl"), body).await;
    assert_eq!(imported.unwrap().status, 200);
    let api = Api::start(&t.app).await;
    let operator = t.key(AccountRole::Operator).await;
    let too_large = api.send(Method::POST, "/api/v1/drivers/import", &operator, "", text).await;
    assert_eq!(too_large.error(), (413, "TOO_LARGE"));
    local.close().await;
}
