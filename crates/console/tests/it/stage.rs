//! A browser, an example order, and the lists of pages and actions.

use std::fmt::Write as _;

use reqwest::{
    Client, Response,
    header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE},
};

use accounts::api_keys::AccountRole;
use foundation::outbound;
use test_support::{Api, LogLines, TestApp, route, secs};

/// Pages for reading, tested empty and with an order ORD-1.
pub(crate) const PAGES: [&str; 31] = [
    "/console",
    "/console/orders",
    "/console/orders?q=CUS-1",
    "/console/orders?status=COMPLETED&held=false",
    "/console/desk",
    "/console/refunds",
    "/console/refunds.csv",
    "/console/alerts?show=all",
    "/console/scheduled",
    "/console/areas",
    "/console/charts?span=7d",
    "/console/charts?of=dispatch-queue&span=24h",
    "/console/map",
    "/console/map?at=-6.2,106.8&km=50",
    "/console/search?q=crm_id=4711",
    "/console/drivers",
    "/console/partners",
    "/console/bindings",
    "/console/plans",
    "/console/queues",
    "/console/jobs",
    "/console/workers",
    "/console/dead",
    "/console/outbox",
    "/console/audit",
    "/console/proof",
    "/console/sessions",
    "/console/keys?show=all",
    "/console/users",
    "/console/webhooks",
    "/console/new-order",
];
/// Number of pages about orders, and number of pages for all staff. The remaining pages are for operators and admins.
pub(crate) const ABOUT_ORDERS: usize = 8;
pub(crate) const FOR_STAFF: usize = 19;

/// A browser with a cookie. It follows no redirects.
pub(crate) struct Browser {
    pub(crate) client: Client,
    pub(crate) base: String,
    pub(crate) cookie: String,
}

impl Browser {
    pub(crate) fn new(api: &Api) -> Self {
        let client = outbound::build_client(secs(30)).unwrap();
        Self { client, base: api.url(""), cookie: String::new() }
    }

    /// Returns a browser that is signed in with a key of this role.
    pub(crate) async fn signed_in(t: &TestApp, api: &Api, role: AccountRole) -> Self {
        let mut browser = Self::new(api);
        let answer = browser.post("/console/login", &[("key", &t.key(role).await)]).await;
        assert_eq!(answer.status(), 303, "{role:?}");
        browser.take_cookie(&answer);
        browser
    }

    pub(crate) fn take_cookie(&mut self, answer: &Response) {
        let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
        self.cookie = cookie.split(';').next().unwrap().to_owned();
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.client.get(format!("{}{path}", self.base)).header(COOKIE, &self.cookie).send().await.unwrap()
    }

    pub(crate) async fn text(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        answer.text().await.unwrap()
    }

    /// Posts a form as a console page does.
    pub(crate) async fn post(&self, path: &str, form: &[(&str, &str)]) -> Response {
        self.post_with(path, form, &[("sec-fetch-site", "same-origin")]).await
    }

    pub(crate) async fn post_with(&self, path: &str, form: &[(&str, &str)], headers: &[(&str, &str)]) -> Response {
        let mut body = String::new();
        for (name, value) in form {
            write!(body, "{name}={}&", value.replace(' ', "+")).unwrap();
        }
        let mut request = self.client.post(format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body).send().await.unwrap()
    }
}

pub(crate) fn place(answer: &Response) -> &str {
    answer.headers()[LOCATION].to_str().unwrap()
}

/// Creates a PENDING order, an order with a refund owed, and their alerts.
pub(crate) async fn lay_out(t: &TestApp) {
    t.drivers(&[("D1", 100.0)]).await;
    t.order_of("ORD-1", "RENT", "PAID").await;
    t.order_of("OWED", "RIDE", "PAID").await;
    t.cancel("OWED").await.unwrap();
    t.sql("UPDATE orders SET customer_id = 'CUS-1' WHERE id = 'ORD-1'").await;
}

/// Path and form of every button action.
pub(crate) const ACTIONS: [(&str, &[(&str, &str)]); 43] = [
    ("/console/orders/ORD-1/hold", &[("reason", "a test")]),
    ("/console/orders/ORD-1/resume", &[("reason", "a test")]),
    ("/console/orders/ORD-1/assign", &[("driver_id", "D1"), ("reason", "a test")]),
    ("/console/orders/ORD-1/release", &[("reason", "a test")]),
    ("/console/orders/ORD-1/redispatch", &[("reason", "a test")]),
    ("/console/orders/ORD-1/cancel", &[("reason", "a test")]),
    ("/console/orders/ORD-1/take", &[]),
    ("/console/orders/ORD-1/leave", &[]),
    ("/console/orders/OWED/refund-start", &[("note", "a test")]),
    ("/console/orders/OWED/refund-done", &[("note", "a test")]),
    ("/console/orders/ORD-1/contents/change", &[("version", "0"), ("pickup", "-6.2, 106.8"), ("notes", "a test")]),
    ("/console/new-order/create", &[("service_type", "RIDE"), ("pickup", "-6.2, 106.8"), ("reason", "a test")]),
    ("/console/orders/filters/save", &[("name", "a test"), ("status", "PENDING")]),
    ("/console/orders/filters/delete", &[("filter", "a test")]),
    ("/console/alerts/1/ack", &[("note", "a test")]),
    ("/console/alerts/ack", &[("id", "1"), ("note", "a test")]),
    ("/console/areas/A1/override", &[("status", "FORCE_BUSY"), ("reason", "a test")]),
    ("/console/areas/A1/threshold", &[("service_type", "RIDE"), ("max_waiting_orders", "5"), ("reason", "a test")]),
    ("/console/admission/flag", &[("enabled", "true"), ("percentage", "5"), ("reason", "a test")]),
    ("/console/partners/bbd/share", &[("percent", "5"), ("reason", "a test")]),
    ("/console/fleet/create", &[("id", "D9"), ("service_types", "RIDE"), ("reason", "a test")]),
    ("/console/drivers/D1/change", &[("service_types", "DELIVERY"), ("reason", "a test")]),
    ("/console/drivers/D1/disable", &[("reason", "a test")]),
    ("/console/drivers/D1/phone", &[]),
    ("/console/queues/dispatch-queue/pause", &[("reason", "a test")]),
    ("/console/workers/5f1c0e7a9b3d2468/drain", &[("reason", "a test")]),
    ("/console/jobs/dispatch:ORD-1:1/cancel", &[("reason", "a test")]),
    ("/console/dead/plan", &[("verb", "requeue"), ("reason", "a test")]),
    ("/console/dead/dispatch:ORD-1:1/requeue", &[("reason", "a test")]),
    ("/console/dead/dispatch:ORD-1:1/discard", &[("reason", "a test")]),
    ("/console/outbox/1/replay", &[("reason", "a test")]),
    ("/console/bindings/B-1/stop", &[("reason", "a test")]),
    ("/console/bindings/B-1/otp", &[("trx_id", "B-1.1"), ("otp", "123456")]),
    ("/console/plans/01937c3e-8f00-7000-8000-000000000001/run", &[]),
    ("/console/sessions/01937c3e-8f00-7000-8000-000000000001/end", &[("reason", "a test")]),
    ("/console/users/save", &[("id", "x"), ("name", "x"), ("role", "admin"), ("channel", "log"), ("reason", "a test")]),
    ("/console/users/x/remove", &[("reason", "a test")]),
    ("/console/keys/create", &[("name", "x"), ("role", "admin"), ("reason", "a test")]),
    ("/console/keys/01937c3e-8f00-7000-8000-000000000001/revoke", &[("reason", "a test")]),
    ("/console/keys/01937c3e-8f00-7000-8000-000000000001/scope", &[("reason", "a test")]),
    ("/console/webhooks/create", &[("url", "https://shop.example.com/"), ("producer", "x"), ("reason", "a test")]),
    ("/console/webhooks/01937c3e-8f00-7000-8000-000000000001/rotate", &[("reason", "a test")]),
    ("/console/webhooks/01937c3e-8f00-7000-8000-000000000001/delete", &[("reason", "a test")]),
];

/// Returns a page and its statements, without those that set up and reset a pooler's session.
pub(crate) async fn statements_of(browser: &Browser, path: &str) -> (String, Vec<String>) {
    let lines = LogLines::default();
    let seen = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(lines.clone()).finish();
    let guard = tracing::subscriber::set_default(seen);
    let page = browser.text(path).await;
    drop(guard);
    let mut statements = lines.with("sqlx::query");
    if route::is_pooled() {
        statements
            .retain(|line| !["SET LOCAL", "\"COMMIT\"", "pg_catalog.pg_type"].iter().any(|own| line.contains(own)));
    }
    (page, statements)
}
