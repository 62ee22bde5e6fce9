//! Every error as `{error_code, message}` with its status. What went wrong inside stays in the log.

use std::time::Duration;

use axum::{
    Json,
    extract::rejection::JsonRejection,
    http::{Method, StatusCode, Uri, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use jobs::InvalidOrderId;
use serde::Serialize;

use super::{busy, observe::LoggedRefusal, openapi::error_code_schema};
use dispatch::{
    accounts::known_keys::LookupError,
    admission::answer::{AdmissionAnswer, ReplyLanguage},
    areas::table::TableError,
    orders::{OrderRefusal, commit::ChangeError, create::CreateError},
};

/// An error as callers read it. A refusal for want of room has the fields of the requirement beside these.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ErrorBody)]
pub(super) struct ErrorReply {
    #[schema(schema_with = error_code_schema)]
    error_code: &'static str,
    /// What is wrong, for people.
    message: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Why, for the log alone.
    #[error("the request needs a key: Authorization: Bearer dq_...")]
    Unauthenticated(&'static str),
    #[error("{0}")]
    Forbidden(String),
    #[error("no order of this id")]
    NoSuchOrder,
    #[error("no alert of this id")]
    NoSuchAlert,
    #[error("no driver of this id; add it with: dispatchq driver import")]
    NoSuchDriver,
    #[error("no area of this id; see: dispatchq area list")]
    NoSuchArea,
    /// It has another version by now.
    #[error("{0}")]
    Changed(String),
    /// By whom, for the log alone.
    #[error(
        "the callback is not signed as it should be, or too long ago; see partners.*.callback_secret and channels.*.token"
    )]
    BadSignature(String),
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Invalid(String),
    /// Bytes that are taken.
    #[error("the body is larger than {} KiB", .0 / 1024)]
    TooLarge(usize),
    #[error("the body must be JSON: Content-Type: application/json")]
    NotJson,
    #[error("this Idempotency-Key was used with another request; use a new key for a new request")]
    IdempotencyMismatch,
    #[error("the first request with this Idempotency-Key is still running; ask again in a moment")]
    IdempotencyRunning,
    #[error("{0}")]
    OrderExists(String),
    /// Its area takes no more orders, or there is no area.
    #[error("{}", .0.message_in(*.1))]
    NoRoom(Box<AdmissionAnswer>, ReplyLanguage),
    #[error(transparent)]
    Refused(#[from] OrderRefusal),
    #[error("the order is changing too quickly; ask again")]
    Busy,
    #[error("the body did not arrive within 30 s, and nothing was done; send it again, in one go")]
    TooSlow,
    #[error("the request failed by a fault of ours; the log has the details")]
    Panicked,
    /// The handler was given up: see [`finish`](super::finish).
    #[error("the request did not end in time, and may have been carried out; ask again")]
    NoAnswer,
    #[error("more requests wait than can be served soon, and nothing was done; wait as long as Retry-After says")]
    Overloaded,
    #[error("the database cannot be asked right now; ask again")]
    Database(#[from] sqlx::Error),
    #[error("whose key this is cannot be found out right now; ask again")]
    NoLookup(#[from] LookupError),
    /// Of one key.
    #[error("this key makes too many requests; wait as long as Retry-After says")]
    TooManyRequests(Duration),
    /// Of one address.
    #[error("too many requests from this address had a wrong key or signature; wait as long as Retry-After says")]
    TooManyFailures(Duration),
    #[error("two younger requests of this driver wait for offers; one app at a time should")]
    SentAway,
}

impl ApiError {
    pub(super) fn status_code(&self) -> StatusCode {
        match self {
            Self::Unauthenticated(_) | Self::BadSignature(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NoSuchOrder | Self::NoSuchAlert | Self::NoSuchDriver | Self::NoSuchArea => StatusCode::NOT_FOUND,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Invalid(_) | Self::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Changed(_) => StatusCode::PRECONDITION_FAILED,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::IdempotencyRunning | Self::OrderExists(_) => StatusCode::CONFLICT,
            Self::NoRoom(answer, _) => {
                StatusCode::from_u16(answer.http_status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::Refused(refusal) => refusal_status(refusal),
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Self::TooManyRequests(_)
            | Self::TooManyFailures(_)
            | Self::SentAway
            | Self::NoLookup(LookupError::Overrun) => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy
            | Self::NoAnswer
            | Self::Overloaded
            | Self::Database(_)
            | Self::NoLookup(LookupError::Unanswered(_)) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Is it certain that the request had no effect, and would have none if repeated?
    pub(super) fn is_final(&self) -> bool {
        // Busy is no failure: it had no effect, and the next try may have one.
        matches!(self, Self::NoRoom(..)) || !self.status_code().is_server_error()
    }

    pub(super) fn error_code(&self) -> &'static str {
        match self {
            Self::Unauthenticated(_) => "UNAUTHENTICATED",
            Self::Forbidden(_) => "FORBIDDEN",
            Self::NoSuchOrder => "ORDER_NOT_FOUND",
            Self::NoSuchAlert => "ALERT_NOT_FOUND",
            Self::NoSuchDriver => "DRIVER_NOT_FOUND",
            Self::NoSuchArea => "AREA_NOT_FOUND",
            Self::Changed(_) => "VERSION_CHANGED",
            Self::BadSignature(_) => "BAD_SIGNATURE",
            Self::Malformed(_) => "MALFORMED",
            Self::Invalid(_) => "INVALID",
            Self::TooLarge(_) => "TOO_LARGE",
            Self::NotJson => "NOT_JSON",
            Self::IdempotencyMismatch => "IDEMPOTENCY_KEY_REUSED",
            Self::IdempotencyRunning => "IDEMPOTENCY_KEY_IN_USE",
            Self::OrderExists(_) => "ORDER_EXISTS",
            Self::NoRoom(answer, _) => answer.error_code().unwrap_or("SERVER_BUSY"),
            Self::Refused(refusal) => refusal.error_code(),
            Self::Busy => "BUSY",
            Self::TooSlow => "TOO_SLOW",
            Self::Panicked => "INTERNAL",
            Self::TooManyRequests(_)
            | Self::TooManyFailures(_)
            | Self::SentAway
            | Self::NoLookup(LookupError::Overrun) => "RATE_LIMITED",
            Self::NoAnswer | Self::Overloaded | Self::Database(_) | Self::NoLookup(LookupError::Unanswered(_)) => {
                "UNAVAILABLE"
            }
        }
    }

    /// What the log says of it: more than the caller is told.
    fn log_reason(&self) -> String {
        match self {
            Self::Unauthenticated(why) => (*why).to_owned(),
            Self::BadSignature(whose) => whose.clone(),
            other => other.to_string(),
        }
    }

    /// Whole seconds after which another try makes sense.
    fn retry_after_sec(&self) -> Option<u64> {
        match self {
            Self::TooManyRequests(wait) | Self::TooManyFailures(wait) => Some(wait.as_secs() + 1),
            Self::NoLookup(LookupError::Overrun) | Self::Overloaded => Some(1),
            // Longer than an app takes to come back: so two apps of one driver do not push out each other for ever.
            Self::SentAway => Some(10),
            _ => None,
        }
    }
}

/// 404: no such thing for you. 410: it was, and is over. 409: it is, and does not allow this.
fn refusal_status(refusal: &OrderRefusal) -> StatusCode {
    match refusal {
        OrderRefusal::NoSuchOrder | OrderRefusal::NoSuchOffer | OrderRefusal::NoSuchDriver => StatusCode::NOT_FOUND,
        OrderRefusal::NotYourOrder => StatusCode::FORBIDDEN,
        OrderRefusal::OfferExpired | OrderRefusal::OfferDeclined | OrderRefusal::OfferGone(_) => StatusCode::GONE,
        OrderRefusal::PaymentEventReused => StatusCode::UNPROCESSABLE_ENTITY,
        OrderRefusal::Illegal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        OrderRefusal::NothingPaid
        | OrderRefusal::OrderFinished(_)
        | OrderRefusal::WrongState { .. }
        | OrderRefusal::AlreadyAssigned
        | OrderRefusal::ReservationInProgress
        | OrderRefusal::NotYourOffer
        | OrderRefusal::ServedByPartner
        | OrderRefusal::DriverBusy
        | OrderRefusal::LifetimeOver => StatusCode::CONFLICT,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if let Self::Database(error) = &self {
            tracing::error!(%error, "A request failed at the database.");
        }
        if let Self::NoRoom(answer, language) = &self {
            return busy::admission_response(answer, *language);
        }
        if let Self::NoLookup(LookupError::Unanswered(error)) = &self {
            tracing::error!(%error, "A key could not be looked up.");
        }
        let refusal = LoggedRefusal { code: self.error_code(), reason: self.log_reason() };
        let body = ErrorReply { error_code: self.error_code(), message: self.to_string() };
        let mut answer = (self.status_code(), Json(body)).into_response();
        answer.extensions_mut().insert(refusal);
        if let Some(secs) = self.retry_after_sec() {
            answer.headers_mut().insert(RETRY_AFTER, secs.into());
        }
        answer
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NotFound => Self::NoSuchOrder,
            ChangeError::Refused(refusal) => Self::Refused(refusal),
            ChangeError::Busy => Self::Busy,
            ChangeError::Database(e) => Self::Database(e),
        }
    }
}

impl From<CreateError> for ApiError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Invalid(text) => Self::Invalid(text),
            CreateError::Exists(_) => Self::OrderExists(error.to_string()),
            CreateError::Refused(answer) => Self::NoRoom(answer, ReplyLanguage::default()),
            CreateError::Database(e) => Self::Database(e),
        }
    }
}

impl From<TableError> for ApiError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::NoSuchArea => Self::NoSuchArea,
            TableError::Changed(_) => Self::Changed(error.to_string()),
            TableError::Invalid(text) => Self::Invalid(text),
            TableError::Database(e) => Self::Database(e),
        }
    }
}

impl From<InvalidOrderId> for ApiError {
    fn from(error: InvalidOrderId) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        match rejection {
            JsonRejection::JsonDataError(e) => Self::Invalid(e.body_text()),
            JsonRejection::MissingJsonContentType(_) => Self::NotJson,
            other if other.status() == StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge(super::MAX_BODY_BYTES),
            other => Self::Malformed(other.body_text()),
        }
    }
}

pub(super) async fn no_such_path(uri: Uri) -> Response {
    let body = ErrorReply { error_code: "NOT_FOUND", message: format!("nothing is served at {}", uri.path()) };
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("{method} is not allowed at {}", uri.path());
    (StatusCode::METHOD_NOT_ALLOWED, Json(ErrorReply { error_code: "METHOD_NOT_ALLOWED", message })).into_response()
}
