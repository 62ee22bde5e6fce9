//! A relay in front of a server that keeps the headers of the requests it forwards.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{
        HeaderMap, Method, Uri,
        header::{CONTENT_LENGTH, HOST},
    },
    response::{IntoResponse, Response},
};
use foundation::outbound;
use tokio::net::TcpListener;

use crate::secs;

/// A forwarded request.
#[derive(Debug, Clone)]
pub struct RelayedRequest {
    pub path: String,
    pub headers: HeaderMap,
}

#[derive(Debug)]
pub struct Relay {
    base: String,
    seen: Arc<Mutex<Vec<RelayedRequest>>>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

#[derive(Debug, Clone)]
struct Passage {
    client: reqwest::Client,
    to: String,
    seen: Arc<Mutex<Vec<RelayedRequest>>>,
}

impl Relay {
    /// Starts a relay that forwards all requests to the server at this base URL.
    pub async fn to_server(base: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let seen = Arc::default();
        let passage =
            Passage { client: outbound::build_client(secs(30)).unwrap(), to: base.to_owned(), seen: Arc::clone(&seen) };
        let base = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(pass_on).with_state(passage);
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base, seen, server }
    }

    /// Returns the address of the relay.
    pub fn url(&self) -> &str {
        &self.base
    }

    pub fn seen(&self) -> Vec<RelayedRequest> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn pass_on(
    State(passage): State<Passage>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request = RelayedRequest { path: uri.path().to_owned(), headers: headers.clone() };
    passage.seen.lock().unwrap().push(request);
    for name in [HOST, CONTENT_LENGTH] {
        headers.remove(name);
    }
    let request = passage.client.request(method, format!("{}{uri}", passage.to)).headers(headers).body(body);
    let answer = request.send().await.unwrap();
    (answer.status(), answer.bytes().await.unwrap()).into_response()
}
