//! A payment service whose answers the test sets.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::net::TcpListener;

/// Secret that signs the callbacks.
pub const PAYMENT_SECRET: &str = "whsec_ZGlzcGF0Y2hxIHBheW1lbnQgc2ltdWxhdG9y";

type Shared = Arc<Mutex<Inner>>;

#[derive(Debug)]
struct Inner {
    answer: (StatusCode, Value),
    /// Idempotency-Key and body of each request.
    asked: Vec<(String, Value)>,
}

#[derive(Debug)]
pub struct PaymentSim {
    pub url: String,
    inner: Shared,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl PaymentSim {
    /// Starts a service that accepts every refund and leaves it pending.
    pub async fn start() -> Self {
        let answer = (StatusCode::ACCEPTED, json!({ "refund_id": "RF-1", "status": "pending" }));
        let inner: Shared = Arc::new(Mutex::new(Inner { answer, asked: Vec::new() }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api", listener.local_addr().unwrap());
        let router = Router::new().route("/api/refunds", post(take_question)).with_state(inner.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner, server }
    }

    pub fn answer_with(&self, status: StatusCode, body: Value) {
        self.inner.lock().answer = (status, body);
    }

    pub fn asked(&self) -> Vec<(String, Value)> {
        self.inner.lock().asked.clone()
    }

    /// Sends a callback to this address, signed with `secret` at the current time. Returns status and body.
    pub async fn call_back(&self, url: &str, body: &Value, secret: &str) -> (u16, Value) {
        let (at, text) = (chrono::Utc::now().timestamp(), body.to_string());
        let signature = Webhook::new(secret).unwrap().sign("E-1", at, text.as_bytes()).unwrap();
        let request = crate::http_client()
            .post(url)
            .header("webhook-id", "E-1")
            .header("webhook-timestamp", at.to_string())
            .header("webhook-signature", signature)
            .header("content-type", "application/json")
            .body(text);
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
    }
}

impl Drop for PaymentSim {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take_question(
    State(inner): State<Shared>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let key = headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned()).unwrap_or_default();
    let mut inner = inner.lock();
    inner.asked.push((key, body));
    let (status, body) = inner.answer.clone();
    (status, Json(body))
}
