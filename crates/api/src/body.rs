//! Bodies and paths, checked at the edge; what is wrong with them is answered in our own form.

use std::{
    collections::BTreeMap,
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
    http::{StatusCode, header::CONTENT_TYPE, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::body::{Frame, SizeHint};
use jobs::OrderId;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Sleep, sleep};
use utoipa::IntoParams;

use super::{error::ApiError, ignored_fields::IgnoredFields};
use dispatch::ids::{AreaId, DriverId};

/// Middleware: a body that is not all here by then ends the request with 408. Handlers begin when they have it, so nothing
/// was done.
pub(super) async fn limit_body_time(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let too_slow = Arc::new(AtomicBool::new(false));
    let request = request.map(|body| {
        if body.is_end_stream() {
            return body;
        }
        axum::body::Body::new(TimedBody { body, end: Box::pin(sleep(limit)), too_slow: too_slow.clone() })
    });
    let answer = next.run(request).await;
    if too_slow.load(Ordering::Relaxed) { ApiError::TooSlow.into_response() } else { answer }
}

/// A body that fails when its time is over.
struct TimedBody {
    body: axum::body::Body,
    end: Pin<Box<Sleep>>,
    too_slow: Arc<AtomicBool>,
}

impl HttpBody for TimedBody {
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

/// Middleware: a path or query with the character U+0000 ends the request with 422. Nothing that is kept may hold it:
/// Postgres takes no such text. (HTTP itself knows no such header.)
pub(super) async fn printable_url(request: Request, next: Next) -> Response {
    let uri = request.uri();
    let has_nul = |text: &str| text.contains("%00");
    if has_nul(uri.path()) || uri.query().is_some_and(has_nul) {
        return nul_refused().into_response();
    }
    next.run(request).await
}

/// Refuses JSON that says U+0000, as `\u0000`. The bare byte is no JSON.
pub(super) fn without_nul(json: &[u8]) -> Result<(), ApiError> {
    const NUL: &[u8] = br"u0000";
    let mut rest = json;
    while let Some(at) = rest.iter().position(|b| *b == b'\\') {
        if rest[at + 1..].starts_with(NUL) {
            return Err(nul_refused());
        }
        // A backslash and what it escapes: of two backslashes the second escapes nothing.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    Ok(())
}

fn nul_refused() -> ApiError {
    ApiError::Invalid("the request must not contain the character U+0000".to_owned())
}

/// A body as it came.
#[derive(Debug)]
pub struct WholeBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for WholeBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await;
        bytes.map(Self).map_err(|e: BytesRejection| match e.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge(super::MAX_BODY_BYTES),
            _ => ApiError::Malformed(e.body_text()),
        })
    }
}

/// A JSON body of type `T`.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Ok(Self(read_json(request, state).await?.0))
    }
}

/// Reads a JSON body, and returns its bytes with it.
async fn read_json<T: DeserializeOwned, S: Send + Sync>(request: Request, state: &S) -> Result<(T, Bytes), ApiError> {
    let is_json = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(is_json);
    if !is_json {
        return Err(ApiError::NotJson);
    }
    let ignored = request.extensions().get::<IgnoredFields>().cloned();
    let WholeBody(bytes) = WholeBody::from_request(request, state).await?;
    without_nul(&bytes)?;
    let Json(value) = Json::from_bytes(&bytes)?;
    compare_fields::<T>(ignored.as_ref(), &bytes);
    Ok((value, bytes))
}

fn compare_fields<T: DeserializeOwned>(ignored: Option<&IgnoredFields>, body: &[u8]) {
    if let Some(ignored) = ignored {
        ignored.compare::<T>(body);
    }
}

/// A JSON body of type `T`, in which null means something else than a field that is left out.
#[derive(Debug)]
pub struct PatchBody<T> {
    pub value: T,
    /// Names of the fields that are null.
    pub nulls: Vec<String>,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for PatchBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (value, bytes) = read_json(request, state).await?;
        let fields: BTreeMap<String, Value> = Json::from_bytes(&bytes)?.0;
        let nulls = fields.into_iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name).collect();
        Ok(Self { value, nulls })
    }
}

/// `application/json`, or another type that ends in `+json`.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.strip_prefix("application/").is_some_and(|kind| kind == "json" || kind.ends_with("+json"))
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
        let ignored = request.extensions().get::<IgnoredFields>().cloned();
        let WholeBody(bytes) = WholeBody::from_request(request, state).await?;
        without_nul(&bytes)?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let Json(value) = Json::from_bytes(text)?;
        compare_fields::<T>(ignored.as_ref(), text);
        Ok(Self { bytes, value })
    }
}

/// The order a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub struct OrderPath(
    /// the order's id
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$", example = "ORD-1")]
    pub OrderId,
);

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
#[derive(Debug, IntoParams)]
#[into_params(names("area_id"), parameter_in = Path)]
pub struct AreaPath(
    /// the area's id
    #[param(pattern = "^[A-Za-z0-9_-]{1,64}$", value_type = String, example = "JKT-PUSAT")]
    pub AreaId,
);

impl<S: Send + Sync> FromRequestParts<S> for AreaPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(id) = name_in_path(parts, state).await?;
        Ok(Self(id.into()))
    }
}

/// The driver a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub struct DriverPath(
    /// the driver's id
    #[param(pattern = "^[A-Za-z0-9_-]{1,64}$", value_type = String, example = "DRV-1")]
    pub DriverId,
);

impl<S: Send + Sync> FromRequestParts<S> for DriverPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(id) = name_in_path(parts, state).await?;
        Ok(Self(id.into()))
    }
}

/// Ids of drivers and areas are of the same form.
async fn name_in_path<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Path<String>, ApiError> {
    let Path(id) = Path::<String>::from_request_parts(parts, state)
        .await
        .map_err(|rejection| ApiError::Malformed(rejection.body_text()))?;
    let fits = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !fits {
        return Err(ApiError::invalid_parameter(
            "id",
            "the id in the path must be 1 to 64 letters, digits, '_' or '-'",
        ));
    }
    Ok(Path(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_nul_is_found_and_an_escaped_backslash_is_none() {
        for bad in [r#""\u0000""#, r#"{"a":"x\\\u0000"}"#, r#"["\n\u0000"]"#] {
            assert!(without_nul(bad.as_bytes()).is_err(), "{bad}");
        }
        for good in ["", "\\", r#""\\u0000""#, r#""u0000""#, r#""\u0001""#] {
            assert!(without_nul(good.as_bytes()).is_ok(), "{good}");
        }
    }

    #[test]
    fn json_is_known_by_its_type() {
        for good in ["application/json", "application/json; charset=utf-8", "application/geo+json", "Application/JSON"]
        {
            assert!(is_json(good), "{good}");
        }
        for bad in ["text/plain", "application/jsonp", "text/json", ""] {
            assert!(!is_json(bad), "{bad}");
        }
    }
}
