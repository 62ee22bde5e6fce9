//! Extractors that validate bodies and paths. Their errors have the form of all API errors.

use std::{
    collections::BTreeMap,
    fmt::Display,
    pin::Pin,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    BoxError,
    body::{Bytes, HttpBody},
    extract::{FromRequest, FromRequestParts, Path, Request, State, rejection::BytesRejection},
    http::{
        HeaderValue, StatusCode, Uri,
        header::{CONTENT_ENCODING, CONTENT_TYPE},
        request::Parts,
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::body::{Frame, SizeHint};
use jobs::OrderId;
use model::input::{self, Given};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::{Sleep, sleep};
use utoipa::IntoParams;

use super::{error::ApiError, ignored_fields::IgnoredFields, json, local::LocalCaller};
use model::ids::{AreaId, DriverId};

/// Middleware that answers 408 if the body is incomplete after the limit. Handlers start only with a complete body, so
/// nothing was done.
pub(super) async fn limit_body_time(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let (request, time) = begin_body_time(request, limit);
    let answer = next.run(request).await;
    if time.is_over() { ApiError::TooSlow.into_response() } else { answer }
}

/// Time limit for the body of a request.
#[derive(Debug, Clone)]
pub struct BodyTime(Arc<AtomicBool>);

impl BodyTime {
    /// Returns whether the body was incomplete at the end of the time limit.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Limits the time for the body of a request. After the limit an incomplete body fails.
pub fn begin_body_time(request: Request, limit: Duration) -> (Request, BodyTime) {
    let too_slow = Arc::new(AtomicBool::new(false));
    let request = request.map(|body| {
        if body.is_end_stream() {
            return body;
        }
        axum::body::Body::new(TimedBody { body, end: Box::pin(sleep(limit)), too_slow: too_slow.clone() })
    });
    (request, BodyTime(too_slow))
}

/// A body that fails after its time limit.
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

/// Refuses a path or query with the character U+0000, because Postgres cannot store it in text. HTTP forbids it in
/// headers.
pub(super) fn without_nul_in_url(uri: &Uri) -> Result<(), ApiError> {
    let has_nul = |text: &str| text.contains("%00");
    let in_query = uri.query().and_then(|query| query.split('&').find(|pair| has_nul(pair)));
    let name = in_query.map(|pair| pair.split('=').next().unwrap_or_default());
    match name.or_else(|| has_nul(uri.path()).then_some("path")) {
        Some(name) => Err(ApiError::invalid_parameter(name, "the address must not contain the character U+0000")),
        None => Ok(()),
    }
}

/// Expected kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    Json,
    Form,
    JsonLines,
}

/// Reads a body after checking its headers. All routes share these checks.
async fn read_bytes<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    let limit = request.extensions().get::<LargestBody>().map_or(super::MAX_BODY_BYTES, |limit| limit.0);
    let is_encoded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if request.headers().get_all(CONTENT_ENCODING).iter().any(is_encoded) {
        return Err(ApiError::Encoded);
    }
    if is_local(&request) {
        let read = axum::body::to_bytes(request.into_body(), usize::MAX).await;
        return read.map_err(|_| ApiError::Malformed("the body cannot be read".to_owned()));
    }
    Bytes::from_request(request, state).await.map_err(|e: BytesRejection| match e.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge(limit),
        _ => ApiError::Malformed("the body cannot be read".to_owned()),
    })
}

/// Returns whether the command line that runs in this process sends the request. Limits for bodies do not apply to it.
pub(super) fn is_local(request: &Request) -> bool {
    request.extensions().get::<LocalCaller>().is_some()
}

/// Returns whether the Content-Type matches the kind. An empty body needs no Content-Type.
pub(super) fn has_kind(request: &Request, kind: BodyKind) -> bool {
    let mut types = request.headers().get_all(CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (Some(one), None) => one.to_str().is_ok_and(|text| is_of_kind(text, kind)),
        (None, _) => request.body().is_end_stream(),
        (Some(_), Some(_)) => false,
    }
}

/// Reads a JSON body. A body that is too large is answered 413, regardless of its type.
async fn read_json_bytes<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    let is_json = has_kind(&request, BodyKind::Json);
    let bytes = read_bytes(request, state).await?;
    if is_json { Ok(bytes) } else { Err(ApiError::NotJson) }
}

/// Maximum body size of this route in bytes, if it differs from [`MAX_BODY_BYTES`](super::MAX_BODY_BYTES).
#[derive(Debug, Clone, Copy)]
pub(super) struct LargestBody(pub(super) usize);

/// Returns whether a Content-Type matches the kind and has no charset other than UTF-8. JSON includes
/// `application/*+json`.
fn is_of_kind(content_type: &str, kind: BodyKind) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    let fits = match kind {
        BodyKind::Json => {
            essence.strip_prefix("application/").is_some_and(|kind| kind == "json" || kind.ends_with("+json"))
        }
        BodyKind::JsonLines => {
            ["application/jsonl", "application/x-ndjson", "application/json"].contains(&essence.as_str())
        }
        BodyKind::Form => essence == "application/x-www-form-urlencoded",
    };
    let is_utf8 = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            ["utf-8", "utf8"].iter().any(|known| value.trim().trim_matches('"').eq_ignore_ascii_case(known))
        }
        _ => true,
    };
    fits && parts.all(is_utf8)
}

/// The unparsed bytes of a JSON body, for routes that check a signature first.
#[derive(Debug)]
pub struct WholeBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for WholeBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        read_json_bytes(request, state).await.map(Self)
    }
}

/// The unparsed bytes of a form, for routes that check a signature before the type.
#[derive(Debug)]
pub struct FormBody {
    pub bytes: Bytes,
    /// Whether the Content-Type is that of a form.
    pub is_form: bool,
}

impl<S: Send + Sync> FromRequest<S> for FormBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let is_form = has_kind(&request, BodyKind::Form);
        Ok(Self { bytes: read_bytes(request, state).await?, is_form })
    }
}

/// A JSON body of type `T`. An empty body reads as `{}`.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let RawBody { value, .. } = RawBody::from_request(request, state).await?;
        Ok(Self(value))
    }
}

/// A JSON body of type `T` that distinguishes null from an omitted field.
#[derive(Debug)]
pub struct PatchBody<T> {
    pub value: T,
    /// Names of the fields that are null.
    pub nulls: Vec<String>,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for PatchBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let RawBody { bytes, value } = RawBody::from_request(request, state).await?;
        let fields: BTreeMap<String, Value> = if bytes.is_empty() { BTreeMap::new() } else { json::read_json(&bytes)? };
        let nulls = fields.into_iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name).collect();
        Ok(Self { value, nulls })
    }
}

/// A JSON body of type `T` together with its bytes. An empty body reads as `{}`.
#[derive(Debug)]
pub struct RawBody<T> {
    pub bytes: Bytes,
    pub value: T,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for RawBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let ignored = request.extensions().get::<IgnoredFields>().cloned();
        let bytes = read_json_bytes(request, state).await?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let value = json::read_json(text)?;
        if let Some(ignored) = ignored {
            ignored.compare::<T>(input::skip_byte_order_mark(text));
        }
        Ok(Self { bytes, value })
    }
}

/// Reason that a caller gives for a request without a body.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReasonQuery {
    /// Reason, kept in the audit record.
    #[param(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    pub(crate) reason: Option<String>,
}

/// The order that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub struct OrderPath(
    /// The order's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$", example = "ORD-1")]
    pub OrderId,
);

impl<S: Send + Sync> FromRequestParts<S> for OrderPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        parse_path(parts, state, "id").await.map(Self)
    }
}

/// The area that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("area_id"), parameter_in = Path)]
pub struct AreaPath(
    /// The area's id.
    #[param(pattern = "^[A-Za-z0-9_-]{1,64}$", value_type = String, example = "JKT-PUSAT")]
    pub AreaId,
);

impl<S: Send + Sync> FromRequestParts<S> for AreaPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Given(id) = parse_path(parts, state, "area_id").await?;
        Ok(Self(id))
    }
}

/// The driver that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub struct DriverPath(
    /// The driver's id.
    #[param(pattern = "^[A-Za-z0-9_-]{1,64}$", value_type = String, example = "DRV-1")]
    pub DriverId,
);

impl<S: Send + Sync> FromRequestParts<S> for DriverPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Given(id) = parse_path(parts, state, "id").await?;
        Ok(Self(id))
    }
}

/// Parses the only variable part of a path. `name` is its name in errors.
pub(crate) async fn parse_path<S: Send + Sync, T: FromStr<Err: Display>>(
    parts: &mut Parts,
    state: &S,
    name: &str,
) -> Result<T, ApiError> {
    let text = text_in_path(parts, state).await?;
    text.parse().map_err(|error: T::Err| ApiError::invalid_parameter(name, error.to_string()))
}

/// Returns the only variable part of a path.
pub(crate) async fn text_in_path<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String, ApiError> {
    let path = Path::<String>::from_request_parts(parts, state).await;
    path.map(|Path(text)| text).map_err(|_| ApiError::Malformed("the path is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule F9: One rule decides which Content-Type a body may have: JSON in UTF-8.
    #[test]
    fn content_types_of_json_are_in_utf8() {
        for good in [
            "application/json",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"; v=1",
            "application/geo+json",
            "Application/JSON",
        ] {
            assert!(is_of_kind(good, BodyKind::Json), "{good}");
        }
        for bad in ["text/plain", "application/jsonp", "text/json", "", "application/json; charset=UTF-16"] {
            assert!(!is_of_kind(bad, BodyKind::Json), "{bad}");
        }
        assert!(is_of_kind("application/x-www-form-urlencoded; charset=utf-8", BodyKind::Form));
        assert!(!is_of_kind("application/json", BodyKind::Form));
        assert!(is_of_kind("application/jsonl", BodyKind::JsonLines));
        assert!(!is_of_kind("text/csv", BodyKind::JsonLines));
    }
}
