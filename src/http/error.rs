//! Every error as `{error_code, message}` with its status. What went wrong inside stays in the log.

use axum::{
    Json,
    extract::rejection::JsonRejection,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use jobs::InvalidOrderId;
use serde_json::json;

use super::dispatcher;
use crate::{
    admission::{
        answer::{Answer, Language},
        table::TableError,
    },
    orders::{Refusal, create::CreateError, store::ChangeError},
};

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("the request needs a key: Authorization: Bearer dq_...")]
    Unauthenticated,
    #[error("{0}")]
    Forbidden(String),
    #[error("no order of this id")]
    NoSuchOrder,
    #[error("no alert of this id")]
    NoSuchAlert,
    #[error("no driver of this id; add it with: dispatchq driver import")]
    NoSuchDriver,
    #[error("no partner of this name; add it under [partners] in config.toml")]
    NoSuchPartner,
    #[error("no area of this id; see: dispatchq area list")]
    NoSuchArea,
    /// It has another version by now.
    #[error("{0}")]
    Changed(String),
    #[error("no voice channel of this name; add it under [channels] in config.toml")]
    NoSuchChannel,
    #[error(
        "the callback is not signed as it should be, or too long ago; see partners.*.callback_secret and channels.*.token"
    )]
    BadSignature,
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Invalid(String),
    #[error("the body is larger than 64 KiB")]
    TooLarge,
    #[error("the body must be JSON: Content-Type: application/json")]
    NotJson,
    #[error("this Idempotency-Key was used with another request; use a new key for a new request")]
    IdempotencyMismatch,
    #[error("the first request with this Idempotency-Key is still running; ask again in a moment")]
    IdempotencyRunning,
    #[error("{0}")]
    OrderExists(String),
    /// Its area takes no more orders, or there is no area.
    #[error("{}", .0.message(*.1))]
    NoRoom(Box<Answer>, Language),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the order is changing too quickly; ask again")]
    Busy,
    #[error("the body did not arrive within 30 s, and nothing was done; send it again, in one go")]
    TooSlow,
    #[error("the request failed by a fault of ours; the log has the details")]
    Panicked,
    /// The handler was given up: see [`finish`](super::finish).
    #[error("the request did not end in time, and may have been carried out; ask again")]
    NoAnswer,
    #[error("the database cannot be asked right now; ask again")]
    Database(#[from] sqlx::Error),
}

impl ApiError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated | Self::BadSignature => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NoSuchOrder
            | Self::NoSuchAlert
            | Self::NoSuchDriver
            | Self::NoSuchPartner
            | Self::NoSuchChannel
            | Self::NoSuchArea => StatusCode::NOT_FOUND,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Invalid(_) | Self::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Changed(_) => StatusCode::PRECONDITION_FAILED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::IdempotencyRunning | Self::OrderExists(_) => StatusCode::CONFLICT,
            Self::NoRoom(answer, _) => StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            Self::Refused(refusal) => refusal_status(refusal),
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Busy | Self::NoAnswer | Self::Database(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Is it certain that the request had no effect, and would have none if repeated?
    pub(super) fn is_final(&self) -> bool {
        // Busy is no failure: it had no effect, and the next try may have one.
        matches!(self, Self::NoRoom(..)) || !self.status().is_server_error()
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::Forbidden(_) => "FORBIDDEN",
            Self::NoSuchOrder => "ORDER_NOT_FOUND",
            Self::NoSuchAlert => "ALERT_NOT_FOUND",
            Self::NoSuchDriver => "DRIVER_NOT_FOUND",
            Self::NoSuchPartner => "PARTNER_NOT_FOUND",
            Self::NoSuchChannel => "CHANNEL_NOT_FOUND",
            Self::NoSuchArea => "AREA_NOT_FOUND",
            Self::Changed(_) => "VERSION_CHANGED",
            Self::BadSignature => "BAD_SIGNATURE",
            Self::Malformed(_) => "MALFORMED",
            Self::Invalid(_) => "INVALID",
            Self::TooLarge => "TOO_LARGE",
            Self::NotJson => "NOT_JSON",
            Self::IdempotencyMismatch => "IDEMPOTENCY_KEY_REUSED",
            Self::IdempotencyRunning => "IDEMPOTENCY_KEY_IN_USE",
            Self::OrderExists(_) => "ORDER_EXISTS",
            Self::NoRoom(answer, _) => answer.code().unwrap_or("SERVER_BUSY"),
            Self::Refused(refusal) => refusal.code(),
            Self::Busy => "BUSY",
            Self::TooSlow => "TOO_SLOW",
            Self::Panicked => "INTERNAL",
            Self::NoAnswer | Self::Database(_) => "UNAVAILABLE",
        }
    }
}

/// 404: no such thing for you. 410: it was, and is over. 409: it is, and does not allow this.
fn refusal_status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::NoSuchOrder | Refusal::NoSuchOffer | Refusal::NoSuchDriver => StatusCode::NOT_FOUND,
        Refusal::NotYourOrder => StatusCode::FORBIDDEN,
        Refusal::OfferExpired | Refusal::OfferDeclined | Refusal::OfferGone(_) => StatusCode::GONE,
        Refusal::PaymentEventReused => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::Illegal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        Refusal::NothingPaid
        | Refusal::OrderFinished(_)
        | Refusal::WrongState { .. }
        | Refusal::AlreadyAssigned
        | Refusal::ReservationInProgress
        | Refusal::NotYourOffer
        | Refusal::ServedByPartner
        | Refusal::DriverBusy
        | Refusal::LifetimeOver => StatusCode::CONFLICT,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if let Self::Database(error) = &self {
            tracing::error!(%error, "A request failed at the database.");
        }
        if let Self::NoRoom(answer, language) = &self {
            return dispatcher::respond(answer, *language);
        }
        let body = json!({ "error_code": self.code(), "message": self.to_string() });
        (self.status(), Json(body)).into_response()
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
            CreateError::Refused(answer) => Self::NoRoom(answer, Language::default()),
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
            other if other.status() == StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            other => Self::Malformed(other.body_text()),
        }
    }
}

pub(super) async fn no_such_path(uri: Uri) -> Response {
    let body = json!({ "error_code": "NOT_FOUND", "message": format!("nothing is served at {}", uri.path()) });
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("{method} is not allowed at {}", uri.path());
    (StatusCode::METHOD_NOT_ALLOWED, Json(json!({ "error_code": "METHOD_NOT_ALLOWED", "message": message })))
        .into_response()
}
