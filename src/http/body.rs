//! Bodies and paths, checked at the edge; what is wrong with them is answered in our own form.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    BoxError, Json,
    body::{Bytes, HttpBody},
    extract::{FromRequest, FromRequestParts, Path, Request, State, rejection::BytesRejection},
    http::{StatusCode, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::body::{Frame, SizeHint};
use jobs::OrderId;
use serde::de::DeserializeOwned;
use tokio::time::{Sleep, sleep};

use super::error::ApiError;

/// Middleware: a body that is not all here by then ends the request with 408. Handlers begin when they have it, so nothing
/// was done.
pub(super) async fn in_time(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let too_slow = Arc::new(AtomicBool::new(false));
    let request = request.map(|body| {
        if body.is_end_stream() {
            return body;
        }
        axum::body::Body::new(Timed { body, end: Box::pin(sleep(limit)), too_slow: too_slow.clone() })
    });
    let answer = next.run(request).await;
    if too_slow.load(Ordering::Relaxed) { ApiError::TooSlow.into_response() } else { answer }
}

/// A body that fails when its time is over.
struct Timed {
    body: axum::body::Body,
    end: Pin<Box<Sleep>>,
    too_slow: Arc<AtomicBool>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.end.as_mut().poll(context));
        self.too_slow.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(ApiError::TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A JSON body of type `T`.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Ok(Self(Json::from_request(request, state).await?.0))
    }
}

/// A JSON body of type `T` together with its bytes as they came. An empty body reads as `{}`.
#[derive(Debug)]
pub struct RawBody<T> {
    pub bytes: Bytes,
    pub value: T,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for RawBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(|e: BytesRejection| {
            if e.status() == StatusCode::PAYLOAD_TOO_LARGE {
                ApiError::TooLarge
            } else {
                ApiError::Malformed(e.into_response().status().to_string())
            }
        })?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let Json(value) = Json::from_bytes(text)?;
        Ok(Self { bytes, value })
    }
}

/// The order a path names.
#[derive(Debug)]
pub struct OrderPath(pub OrderId);

impl<S: Send + Sync> FromRequestParts<S> for OrderPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|rejection| ApiError::Malformed(rejection.body_text()))?;
        Ok(Self(text.parse()?))
    }
}

/// The area a path names.
#[derive(Debug)]
pub struct AreaPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for AreaPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(id) = name_in_path(parts, state).await?;
        Ok(Self(id))
    }
}

/// The driver a path names.
#[derive(Debug)]
pub struct DriverPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for DriverPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(id) = name_in_path(parts, state).await?;
        Ok(Self(id))
    }
}

/// Ids of drivers and areas are of the same form.
async fn name_in_path<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Path<String>, ApiError> {
    let Path(id) = Path::<String>::from_request_parts(parts, state)
        .await
        .map_err(|rejection| ApiError::Malformed(rejection.body_text()))?;
    let fits = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !fits {
        return Err(ApiError::Invalid("the id in the path must be 1 to 64 letters, digits, '_' or '-'".to_owned()));
    }
    Ok(Path(id))
}
