//! API errors: `{error_code, message}` with a status and the members of RFC 9457. Internal details appear only in the
//! log. Design: docs/design/http-api.md.

mod binding_errors;
pub(crate) mod codes;
mod conversions;
mod fields;
pub(crate) mod pages;
mod plan_errors;
mod problem;
mod staff_errors;

use std::time::Duration;

use axum::{
    http::{
        HeaderValue, Method, StatusCode, Uri,
        header::{ACCEPT_ENCODING, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use model::{
    binding::{BindingConflict, InvalidBindingConfig},
    plan::PlanConflict,
};
use serde_json::json;

pub use self::staff_errors::StaffError;
pub(crate) use self::{
    fields::FieldProblem,
    problem::{ErrorReply, MEDIA_TYPE, Problem, adopt_refusal, name_request, status_schema},
};

use self::codes::ErrorCode;
use super::{busy, observe::LoggedRefusal};
use accounts::known_keys::LookupError;
use bindings::store::BatchError;
use foundation::db;
use model::{
    admission::answer::{AdmissionAnswer, ReplyLanguage},
    decide::OrderRefusal,
};

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("{0}")]
    Unauthenticated(&'static str),
    #[error("{0}")]
    Forbidden(String),
    #[error("this key has a scope, and this operation is not limited to a scope")]
    OutOfScope,
    #[error("no order with this id")]
    NoSuchOrder,
    #[error("no alert with this id")]
    NoSuchAlert,
    #[error("no driver with this id; add it with: dispatchq driver import")]
    NoSuchDriver,
    #[error("no area with this id; see: dispatchq area list")]
    NoSuchArea,
    #[error("no binding with this id; see: dispatchq binding list")]
    NoSuchBinding,
    #[error("no transaction with this id, or retention has removed it")]
    NoSuchTransaction,
    #[error("no server with this id; see: dispatchq server list")]
    NoSuchServer,
    #[error("no plan with this id, or retention has removed it; see: dispatchq plan list")]
    NoSuchPlan,
    #[error("no error has this code")]
    NoSuchErrorCode,
    /// The body names a server that does not exist.
    #[error("{0}")]
    UnknownServer(String),
    /// The resource no longer has the version in `If-Match`.
    #[error("{0}")]
    Changed(String),
    /// Contains the reason, which appears only in the log.
    #[error(
        "the callback's signature is missing, wrong or too old; see partners.*.callback_secret and channels.*.token"
    )]
    BadSignature(String),
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Invalid(String),
    /// One part of the request breaks a rule.
    #[error("{message}")]
    InvalidField { field: Box<FieldProblem>, message: String },
    /// Lines of an import break rules. Contains one problem per line.
    #[error("nothing was imported; correct these: {}", join_details(.0))]
    BadLines(Vec<FieldProblem>),
    /// Contains the maximum size in bytes.
    #[error("the body is larger than {} KiB", .0 / 1024)]
    TooLarge(usize),
    #[error("the body must be JSON in UTF-8: Content-Type: application/json")]
    NotJson,
    #[error("the body must be a form in UTF-8: Content-Type: application/x-www-form-urlencoded")]
    NotForm,
    #[error("the body must not be compressed: send it without Content-Encoding")]
    Encoded,
    #[error("this Idempotency-Key was used with another request; use a new key for a new request")]
    IdempotencyMismatch,
    #[error("the first request with this Idempotency-Key is still running; try again in a moment")]
    IdempotencyRunning,
    #[error("{0}")]
    OrderExists(String),
    #[error("{0}")]
    BindingExists(String),
    #[error("{0}")]
    ServerExists(String),
    #[error("{0}")]
    ServerDisabled(String),
    #[error(transparent)]
    BindingRefused(BindingConflict),
    #[error(transparent)]
    PlanRefused(PlanConflict),
    #[error(transparent)]
    Staff(StaffError),
    /// The area takes no more orders, or no area contains the pickup.
    #[error("{}", .0.message_in(*.1))]
    NoRoom(Box<AdmissionAnswer>, ReplyLanguage),
    /// Another driver has the order or is accepting it. Contains the refusal for programs and the text in the driver's
    /// language.
    #[error("{1}")]
    TripTaken(OrderRefusal, String),
    #[error(transparent)]
    Refused(#[from] OrderRefusal),
    #[error("the resource is changing too quickly; try again")]
    Busy,
    #[error("the body did not arrive within 30 s, and nothing was done; send the complete request again")]
    TooSlow,
    #[error("internal error; the log has the details")]
    Panicked,
    /// The handler exceeded its time limit: see [`finish`](super::finish).
    #[error("the request timed out, but may have been carried out; check, or send it again")]
    NoAnswer,
    #[error("too many requests are waiting, and nothing was done; wait for the time in Retry-After")]
    Overloaded,
    /// See [`orders::late_work`].
    #[error("the jobs of orders are late, and the order was not created; wait for the time in Retry-After")]
    LateWork,
    #[error("the database does not answer right now; try again")]
    Database(#[from] sqlx::Error),
    #[error("the database does not answer right now; try again")]
    Batch(BatchError),
    #[error("the key cannot be looked up right now; try again")]
    NoLookup(#[from] LookupError),
    /// One key makes too many requests.
    #[error("this key makes too many requests; wait for the time in Retry-After")]
    TooManyRequests(Duration),
    /// One address sent too many wrong keys or signatures.
    #[error("too many requests from this address had a wrong key or signature; wait for the time in Retry-After")]
    TooManyFailures(Duration),
    #[error("two newer requests of this driver wait for offers; use one app at a time")]
    SentAway,
}

/// Message for a value that Postgres refused.
const REFUSED_VALUE: &str = "a value cannot be stored or compared: a number, a time or a text is out of its range";

impl ApiError {
    pub(super) fn status_code(&self) -> StatusCode {
        match self {
            Self::UnknownServer(_) => StatusCode::BAD_REQUEST,
            _ => self.code().status(),
        }
    }

    /// Returns whether the request certainly had no effect, and would have none if it were repeated.
    pub(super) fn is_final(&self) -> bool {
        // `Busy` is not final: the request had no effect, but the next one may have one.
        matches!(self, Self::NoRoom(..)) || !self.status_code().is_server_error()
    }

    /// Returns whether Postgres could not be queried, so that the same request may succeed later.
    pub(super) fn is_unavailable(&self) -> bool {
        !self.is_refused_value()
            && matches!(self, Self::Database(_) | Self::Batch(_) | Self::NoLookup(LookupError::Unanswered(_)))
    }

    /// Returns whether Postgres refused a value of the request. The extractors check values first; this covers the
    /// values that they miss.
    fn is_refused_value(&self) -> bool {
        match self {
            Self::Database(error) => db::is_refused_value(error),
            Self::Batch(BatchError::Database(error)) => db::is_refused_value(error),
            _ => false,
        }
    }

    /// Returns the message for people. It mentions the request, not the database.
    fn message(&self) -> String {
        if self.is_refused_value() { REFUSED_VALUE.to_owned() } else { self.to_string() }
    }

    /// Returns the stable code of the error.
    pub fn error_code(&self) -> &'static str {
        self.code().code
    }

    /// Returns the entry of the error's code, with its status and title.
    fn code(&self) -> &'static ErrorCode {
        match self {
            _ if self.is_refused_value() => &codes::INVALID,
            Self::Unauthenticated(_) => &codes::UNAUTHENTICATED,
            Self::Forbidden(_) => &codes::FORBIDDEN,
            Self::OutOfScope => &codes::OUT_OF_SCOPE,
            Self::NoSuchOrder => &codes::ORDER_NOT_FOUND,
            Self::NoSuchAlert => &codes::ALERT_NOT_FOUND,
            Self::NoSuchDriver => &codes::DRIVER_NOT_FOUND,
            Self::NoSuchArea => &codes::AREA_NOT_FOUND,
            Self::NoSuchBinding => &codes::BINDING_NOT_FOUND,
            Self::NoSuchTransaction => &codes::TRANSACTION_NOT_FOUND,
            Self::NoSuchServer | Self::UnknownServer(_) => &codes::SERVER_NOT_FOUND,
            Self::NoSuchPlan => &codes::PLAN_NOT_FOUND,
            Self::NoSuchErrorCode => &codes::ERROR_CODE_NOT_FOUND,
            Self::Changed(_) => &codes::VERSION_CHANGED,
            Self::BadSignature(_) => &codes::BAD_SIGNATURE,
            Self::Malformed(_) => &codes::MALFORMED,
            Self::Invalid(_) | Self::InvalidField { .. } | Self::BadLines(_) => &codes::INVALID,
            Self::TooLarge(_) => &codes::TOO_LARGE,
            Self::NotJson | Self::NotForm | Self::Encoded => &codes::NOT_JSON,
            Self::IdempotencyMismatch => &codes::IDEMPOTENCY_KEY_REUSED,
            Self::IdempotencyRunning => &codes::IDEMPOTENCY_KEY_IN_USE,
            Self::OrderExists(_) => &codes::ORDER_EXISTS,
            Self::BindingExists(_) => &codes::BINDING_EXISTS,
            Self::ServerExists(_) => &codes::SERVER_EXISTS,
            Self::ServerDisabled(_) => &codes::SERVER_DISABLED,
            Self::BindingRefused(conflict) => codes::of(conflict.error_code()),
            Self::PlanRefused(conflict) => codes::of(conflict.error_code()),
            Self::Staff(error) => error.code(),
            Self::NoRoom(answer, _) => answer.error_code().map_or(&codes::INTERNAL, codes::of),
            Self::TripTaken(refusal, _) | Self::Refused(refusal) => codes::of(refusal.error_code()),
            Self::Busy => &codes::BUSY,
            Self::LateWork => &codes::OVERLOADED,
            Self::TooSlow => &codes::TOO_SLOW,
            Self::Panicked => &codes::INTERNAL,
            Self::TooManyRequests(_)
            | Self::TooManyFailures(_)
            | Self::SentAway
            | Self::NoLookup(LookupError::Overrun) => &codes::RATE_LIMITED,
            Self::NoAnswer
            | Self::Overloaded
            | Self::Database(_)
            | Self::Batch(_)
            | Self::NoLookup(LookupError::Unanswered(_)) => &codes::UNAVAILABLE,
        }
    }

    /// Returns the reason for the log, which has more details than the caller's message.
    pub(super) fn log_reason(&self) -> String {
        match self {
            Self::Database(error) => error.to_string(),
            Self::Batch(error) => error.to_string(),
            Self::NoLookup(LookupError::Unanswered(error)) => error.to_string(),
            Self::Unauthenticated(why) => (*why).to_owned(),
            Self::BadSignature(whose) => whose.clone(),
            other => other.to_string(),
        }
    }

    /// Returns the part of the request that breaks a rule, if it is known.
    fn broken_field(&self) -> Option<FieldProblem> {
        match self {
            Self::InvalidField { field, .. } => Some((**field).clone()),
            Self::Invalid(text) => Some(FieldProblem::named_by(text)),
            _ if self.is_refused_value() => Some(FieldProblem::in_body("", REFUSED_VALUE)),
            Self::BindingRefused(BindingConflict::BadConfig(
                InvalidBindingConfig::OutOfBounds { field, .. } | InvalidBindingConfig::Reversed { field, .. },
            )) => Some(FieldProblem::in_body(&format!("config/{field}"), &self.to_string())),
            _ => self.code().fields.first().map(|part| FieldProblem::in_part(*part, &self.to_string())),
        }
    }

    /// Returns the value of `WWW-Authenticate` for a 401. No registered scheme exists for signed callbacks.
    fn challenge(&self) -> Option<HeaderValue> {
        match self {
            Self::Unauthenticated(_) => Some(HeaderValue::from_static("Bearer realm=\"dispatchq\"")),
            Self::BadSignature(_) => Some(HeaderValue::from_static("Signature realm=\"dispatchq\"")),
            _ => None,
        }
    }

    /// Returns the value of `Retry-After` in seconds. [`limits`](super::limits) sets it for the other 503 answers.
    fn retry_after_sec(&self) -> Option<u64> {
        match self {
            Self::TooManyRequests(wait) | Self::TooManyFailures(wait) => Some(wait.as_secs() + 1),
            Self::NoLookup(LookupError::Overrun) | Self::Busy => Some(1),
            // Longer than an app needs to reconnect, so that two apps of one driver do not displace each other forever.
            Self::SentAway => Some(10),
            // This error is created outside the router, where `limits` does not apply.
            Self::NoAnswer => Some(5),
            _ => None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match &self {
            _ if self.is_refused_value() => {
                tracing::warn!(error = self.log_reason(), "Postgres refused a value of a request.");
            }
            Self::Database(error) => tracing::error!(%error, "A request failed at the database."),
            Self::Batch(error) => tracing::error!(%error, "A request failed at the database."),
            _ => {}
        }
        if let Self::Staff(StaffError::Service(error)) = &self {
            tracing::error!(%error, "A request failed at a server.");
        }
        if let Self::NoRoom(answer, language) = &self {
            return busy::admission_response(answer, *language);
        }
        if let Self::NoLookup(LookupError::Unanswered(error)) = &self {
            tracing::error!(%error, "A key could not be looked up.");
        }
        let refusal = LoggedRefusal { code: self.code().code, reason: self.log_reason() };
        let mut problem = Problem::with_status(self.status_code(), self.code(), &self.message());
        if let Some(field) = self.broken_field() {
            problem = problem.with_fields(&[field]);
        }
        if let Self::BadLines(problems) = &self {
            problem = problem.with_fields(problems);
        }
        match &self {
            Self::Staff(StaffError::StaysDead(why)) => problem = problem.beside(json!({ "why": why })),
            Self::Staff(StaffError::StillInUse(orders)) => problem = problem.beside(json!({ "in_use": orders })),
            _ => {}
        }
        let mut answer = problem.into_response();
        answer.extensions_mut().insert(refusal);
        if let Some(challenge) = self.challenge() {
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        if matches!(self, Self::Encoded) {
            // RFC 9110, section 12.5.3: names the accepted encodings of a request body.
            answer.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if let Some(secs) = self.retry_after_sec() {
            answer.headers_mut().insert(RETRY_AFTER, secs.into());
        }
        answer
    }
}

fn join_details(problems: &[FieldProblem]) -> String {
    problems.iter().map(FieldProblem::detail).collect::<Vec<_>>().join("; ")
}

pub(super) async fn no_such_path(uri: Uri) -> Problem {
    Problem::new(&codes::NOT_FOUND, &format!("nothing is served at {}", uri.path()))
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let message = format!("{method} is not allowed at {}", uri.path());
    Problem::new(&codes::METHOD_NOT_ALLOWED, &message)
}
