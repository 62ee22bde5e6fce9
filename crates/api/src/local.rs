//! Requests of the command line in its own process: the routes and handlers of the API, without a socket and without a
//! key.
//!
//! [`LocalApi`] puts a [`LocalCaller`] into the extensions of each request. Only this module creates a `LocalCaller`,
//! and hyper reads no extensions from a connection. A header, key or session therefore cannot get the role of the
//! command line. Limits that protect the API from other machines do not apply here: rate limits, the maximum body size,
//! the time limit of a body and the deadline of a request.

use std::{
    fmt,
    io::{self, Read},
};

use anyhow::Context;
use app::App;
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    http::{HeaderMap, Method, Request, StatusCode},
    middleware::{from_fn_with_state, map_response},
};
use futures_util::stream;
use model::actor::Actor;
use reqwest::Url;
use tokio::task::spawn_blocking;
use tower_service::Service;

use super::{
    error,
    observe::{self, RequestObserver},
};

/// Number of bytes read from a streamed body at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// The person at the command line of this process, in the extensions of a request.
#[derive(Debug, Clone)]
pub(crate) struct LocalCaller {
    pub(crate) actor: Actor,
    // Private, so that other modules cannot create a `LocalCaller`.
    _made_here: (),
}

/// The API in this process. Cheap to clone.
#[derive(Clone)]
pub struct LocalApi {
    app: App,
    router: Router,
    caller: LocalCaller,
}

impl fmt::Debug for LocalApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalApi").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl LocalApi {
    /// Returns an API whose requests are recorded in histories as those of `actor`.
    pub fn new(app: App, actor: Actor) -> Self {
        let router = local_router(app.clone());
        Self { app, router, caller: LocalCaller { actor, _made_here: () } }
    }

    /// Runs one request. Only the path and query of `url` are used.
    pub async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: LocalBody,
    ) -> anyhow::Result<LocalAnswer> {
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("{}{query}", url.path());
        let mut request = Request::builder().method(method).uri(target).body(body.0)?;
        request.headers_mut().extend(headers);
        request.extensions_mut().insert(self.caller.clone());
        let (parts, body) = self.router.clone().call(request).await?.into_parts();
        let body = to_bytes(body, usize::MAX).await.context("the answer cannot be read")?;
        Ok(LocalAnswer { status: parts.status, headers: parts.headers, body: body.to_vec() })
    }

    /// Waits for work that continues after answers, and writes the counts that a loop of `serve` would write, because
    /// this process has no loops.
    pub async fn close(self) {
        self.app.core.behind_answers.close();
        self.app.core.behind_answers.wait().await;
        if let Err(error) = self.app.areas.tally.write_counts(&self.app.core.db).await {
            tracing::debug!(%error, "The outcomes of admission requests were not counted.");
        }
    }
}

/// The body of a request.
#[derive(Debug)]
pub struct LocalBody(Body);

impl LocalBody {
    pub fn empty() -> Self {
        Self(Body::empty())
    }

    /// Streams the content of a reader.
    pub fn read(reader: Box<dyn Read + Send>) -> Self {
        Self(Body::from_stream(stream::try_unfold(reader, async |mut reader| {
            let read = spawn_blocking(move || {
                let mut chunk = Vec::with_capacity(CHUNK_BYTES);
                reader.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
                Ok::<_, io::Error>((chunk, reader))
            });
            let (chunk, reader) = read.await.map_err(io::Error::other)??;
            Ok::<_, io::Error>((!chunk.is_empty()).then(|| (Bytes::from(chunk), reader)))
        })))
    }
}

impl From<Vec<u8>> for LocalBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Body::from(bytes))
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct LocalAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Returns the routes of the API with the layers for observation and error bodies.
fn local_router(app: App) -> Router {
    Router::from(super::sheddable_routes().merge(super::steady_routes()))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(map_response(error::adopt_refusal))
        .layer(from_fn_with_state(RequestObserver::new(Vec::new()), observe::observe_request))
        .with_state(app)
}
