//! A webhook receiver that can be told to fail.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use dispatchq::config::{ChannelConfig, Config};
use serde_json::Value;
use tokio::net::TcpListener;

/// A message as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Received {
    /// Of the header `webhook-id`.
    pub(crate) id: String,
    pub(crate) body: Value,
    /// What the receiver answered.
    pub(crate) answer: u16,
}

#[derive(Default)]
struct Inner {
    failures: VecDeque<StatusCode>,
    received: Vec<Received>,
}

pub(crate) struct Receiver {
    url: String,
    inner: Arc<Mutex<Inner>>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let inner = Arc::new(Mutex::new(Inner::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let router = Router::new().route("/hook", post(receive)).with_state(inner.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner, server }
    }

    /// Makes it the channel `hook` of drivers and support.
    pub(crate) fn configure(&self, config: &mut Config) {
        config.channels.insert("hook".to_owned(), ChannelConfig::Webhook { url: self.url.clone() });
        config.notifications.driver = vec!["hook".to_owned()];
        config.notifications.support = vec!["hook".to_owned()];
    }

    /// Answers this to the next `times` messages.
    pub(crate) fn fail(&self, status: StatusCode, times: usize) {
        self.inner.lock().unwrap().failures.extend(std::iter::repeat_n(status, times));
    }

    /// Takes every message again.
    pub(crate) fn recover(&self) {
        self.inner.lock().unwrap().failures.clear();
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.inner.lock().unwrap().received.clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(State(inner): State<Arc<Mutex<Inner>>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let mut inner = inner.lock().unwrap();
    let status = inner.failures.pop_front().unwrap_or(StatusCode::NO_CONTENT);
    let id = headers.get("webhook-id").map(|id| id.to_str().unwrap().to_owned()).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap();
    inner.received.push(Received { id, body, answer: status.as_u16() });
    status
}
