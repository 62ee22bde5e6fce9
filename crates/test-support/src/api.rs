//! The HTTP API in this process, and clients with API keys.

use axum::Router;
use reqwest::{Method, header::AUTHORIZATION};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{TestApp, balancer, secs};
use accounts::{
    api_keys::AccountRole,
    key_admin::{self, KeyError, NewKey},
};
use app::App;
use foundation::outbound;
use model::ids::DriverId;
use settings::HttpConfig;

/// The API. Dropping it stops the server.
#[derive(Debug)]
pub struct Api {
    base: String,
    pub client: reqwest::Client,
    stop: CancellationToken,
}

/// A response of the API.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: u16,
    /// Null when the body is not JSON.
    pub body: Value,
    /// Whether the response was replayed for a repeated Idempotency-Key.
    pub replayed: bool,
}

impl Answer {
    /// Returns the body without the fields in which an error identifies its request.
    pub fn without_request(&self) -> Value {
        let mut body = self.body.clone();
        if let Some(members) = body.as_object_mut() {
            members.retain(|name, _| name != "instance" && name != "request_id");
        }
        body
    }

    /// Returns status and error code.
    pub fn error(&self) -> (u16, &str) {
        (self.status, self.body["error_code"].as_str().unwrap_or("none"))
    }

    pub fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_else(|| panic!("no {field} in {self:?}"))
    }
}

/// Returns a client with the defaults of reqwest: it follows redirects and has no timeout.
pub fn http_client() -> reqwest::Client {
    outbound::client_builder().build().unwrap()
}

impl Api {
    /// Starts the API together with the console, the pages for drivers and customers, and the reference.
    pub async fn start(app: &App) -> Self {
        let pages = staff_console::console_pages(app)
            .merge(staff_console::driver_page(app))
            .merge(staff_console::tracking_page(app))
            .merge(staff_console::docs_page(app));
        Self::serve(api::router_with_pages(app.clone(), pages), app.config.http.clone()).await
    }

    /// Starts the API with the test clock, as `dispatchq dev` does.
    pub async fn with_test_clock(app: &App) -> Self {
        let router = api::router_with_pages(app.clone(), api::orders::test_clock::test_clock_routes());
        Self::serve(router, app.config.http.clone()).await
    }

    /// Starts a load balancer in front of this API that checks /readyz.
    pub async fn behind_balancer(&self, app: &App) -> Self {
        Self::serve(balancer::balance_to(&self.base), app.config.http.clone()).await
    }

    async fn serve(router: Router, config: HttpConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        tokio::spawn(api::server::serve_router(listener, router, config, stop.clone()));
        Self { base, client: outbound::build_client(secs(30)).unwrap(), stop }
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sends a request. `key` and `idempotency_key` may be empty.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        key: &str,
        idempotency_key: &str,
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        let mut request = self.client.request(method, self.url(path));
        if !key.is_empty() {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        if !idempotency_key.is_empty() {
            request = request.header("idempotency-key", idempotency_key);
        }
        let answer = request.header("content-type", "application/json").body(body).send().await.unwrap();
        let status = answer.status().as_u16();
        let replayed = answer.headers().contains_key("idempotency-replayed");
        let body = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default();
        Answer { status, body, replayed }
    }

    /// Sends a GET request and returns the response with its headers.
    pub async fn send_raw(&self, path: &str, key: &str) -> reqwest::Response {
        let request = self.client.get(self.url(path)).header(AUTHORIZATION, format!("Bearer {key}"));
        request.send().await.unwrap()
    }

    pub async fn get(&self, path: &str, key: &str) -> Answer {
        self.send(Method::GET, path, key, "", "").await
    }

    pub async fn post(&self, path: &str, key: &str, body: Value) -> Answer {
        self.send(Method::POST, path, key, "", body.to_string()).await
    }

    pub async fn post_once(&self, path: &str, key: &str, idempotency_key: &str, body: Value) -> Answer {
        self.send(Method::POST, path, key, idempotency_key, body.to_string()).await
    }
}

/// Returns the body of a RIDE request.
pub fn ride() -> Value {
    json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2088, "longitude": 106.8456 } })
}

/// Returns the body of a RIDE request with this order id and a customer.
pub fn ride_with_id(order: &str) -> Value {
    json!({
        "order_id": order, "service_type": "RIDE", "customer_id": "C-1",
        "pickup": { "latitude": -6.2088, "longitude": 106.8456 },
    })
}

/// Creates a key that does not expire, and returns its id and text.
pub async fn create_key(t: &TestApp, name: &str, role: AccountRole, driver: Option<&str>) -> (Uuid, String) {
    let driver = driver.map(DriverId::from);
    let (row, key) = key_admin::create_permanent_key(&t.app.core.db, name, role, driver.as_ref()).await.unwrap();
    (row.id, key)
}

impl Drop for Api {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl TestApp {
    /// Creates a key for this role. All producer keys share one name, so they own the same orders.
    pub async fn key(&self, role: AccountRole) -> String {
        let name =
            if role == AccountRole::Producer { "test".to_owned() } else { format!("test-{role:?}").to_lowercase() };
        self.key_named(&name, role, None).await
    }

    /// Creates a key for this driver.
    pub async fn driver_key(&self, driver: &str) -> String {
        self.key_named(driver, AccountRole::Driver, Some(driver)).await
    }

    /// Creates a key of this name. When the name exists, it adds a second valid key.
    pub async fn key_named(&self, name: &str, role: AccountRole, driver: Option<&str>) -> String {
        let driver = driver.map(DriverId::from);
        // Orders of this name may exist before its first key.
        let new = NewKey { name, role, driver_id: driver.as_ref(), expires_in: None, takes_over: true, scope: None };
        match key_admin::create_key(&self.app.core.db, &new).await {
            Err(KeyError::NameTaken(_)) => {
                let years = secs(10 * 365 * 86_400);
                key_admin::rotate_key(&self.app.core.db, name, years, None).await.unwrap().1
            }
            made => made.unwrap().1,
        }
    }
}
