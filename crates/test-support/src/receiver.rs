//! A receiver of posted messages that can fail. It stands in for a webhook, Slack or a ticket system.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{
        HeaderMap, StatusCode, Uri,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use serde_json::Value;
use settings::{ChannelConfig, Config};
use tokio::{net::TcpListener, sync::watch};

/// A message as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// Value of the header `webhook-id`.
    pub id: String,
    pub body: Value,
    /// Unparsed body, for signature checks.
    pub bytes: Bytes,
    pub headers: HeaderMap,
    pub path: String,
    /// Status that the receiver answered.
    pub answer: u16,
}

#[derive(Debug, Default)]
struct Inner {
    failures: VecDeque<(StatusCode, Option<String>)>,
    received: Vec<Received>,
    /// Body of successful answers.
    answer: Option<String>,
}

#[derive(Debug)]
pub struct Receiver {
    base: String,
    inner: Arc<Mutex<Inner>>,
    /// Whether answers are held back.
    held: watch::Sender<bool>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Receiver {
    pub async fn start() -> Self {
        let inner = Arc::new(Mutex::new(Inner::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (held, holding) = watch::channel(false);
        let router = Router::new().fallback(receive).with_state((inner.clone(), holding));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base, inner, held, server }
    }

    /// Configures it as the channel `hook` of drivers and support.
    pub fn configure(&self, config: &mut Config) {
        config.channels.insert("hook".to_owned(), ChannelConfig::unsigned_webhook(self.url("/hook")));
        config.notifications.driver = vec!["hook".to_owned()];
        config.notifications.support = vec!["hook".to_owned()];
    }

    /// Answers the next `times` messages with this status.
    pub fn fail(&self, status: StatusCode, times: usize) {
        self.inner.lock().unwrap().failures.extend(std::iter::repeat_n((status, None), times));
    }

    /// Answers the next message with this status and this Retry-After.
    pub fn fail_until(&self, status: StatusCode, retry_after: &str) {
        self.inner.lock().unwrap().failures.push_back((status, Some(retry_after.to_owned())));
    }

    /// Answers each accepted message with this body.
    pub fn answer_json(&self, body: &Value) {
        self.inner.lock().unwrap().answer = Some(body.to_string());
    }

    /// Returns the URL of a path. Tests use different paths to distinguish messages.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Keeps messages without an answer until [`release`](Self::release).
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Answers all held messages, and later ones at once.
    pub fn release(&self) {
        self.held.send_replace(false);
    }

    /// Removes the failures that were set, so that every message is accepted again.
    pub fn recover(&self) {
        self.inner.lock().unwrap().failures.clear();
    }

    pub fn received(&self) -> Vec<Received> {
        self.inner.lock().unwrap().received.clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Shared = (Arc<Mutex<Inner>>, watch::Receiver<bool>);

async fn receive(State((inner, mut holding)): State<Shared>, uri: Uri, headers: HeaderMap, bytes: Bytes) -> Response {
    let (status, retry_after) = record(&inner, &uri, headers, bytes);
    let answer = inner.lock().unwrap().answer.clone();
    let _ = holding.wait_for(|held| !held).await;
    match (retry_after, answer) {
        (Some(pause), _) => (status, [(RETRY_AFTER, pause)]).into_response(),
        (None, Some(answer)) if status.is_success() => {
            (StatusCode::CREATED, [(CONTENT_TYPE, "application/json")], answer).into_response()
        }
        (None, _) => status.into_response(),
    }
}

/// Stores a message and returns the status and Retry-After to answer.
fn record(inner: &Mutex<Inner>, uri: &Uri, headers: HeaderMap, bytes: Bytes) -> (StatusCode, Option<String>) {
    let mut inner = inner.lock().unwrap();
    let (status, retry_after) = inner.failures.pop_front().unwrap_or((StatusCode::NO_CONTENT, None));
    let id = headers.get("webhook-id").map(|id| id.to_str().unwrap().to_owned()).unwrap_or_default();
    // A form is not JSON; its body is null.
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    let path = uri.path().to_owned();
    inner.received.push(Received { id, body, bytes, headers, path, answer: status.as_u16() });
    (status, retry_after)
}
