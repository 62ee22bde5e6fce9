//! Every error as `{error_code, message}` with its status, and the members of RFC 9457. What went wrong inside stays in the log.
//! Design: docs/design/http-api.md.

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
    #[error("no order of this id")]
    NoSuchOrder,
    #[error("no alert of this id")]
    NoSuchAlert,
    #[error("no driver of this id; add it with: dispatchq driver import")]
    NoSuchDriver,
    #[error("no area of this id; see: dispatchq area list")]
    NoSuchArea,
    #[error("no binding of this id; see: dispatchq binding list")]
    NoSuchBinding,
    #[error("no transaction of this id, or retention has removed it")]
    NoSuchTransaction,
    #[error("no server of this id; see: dispatchq server list")]
    NoSuchServer,
    #[error("no plan of this id, or retention has removed it; see: dispatchq plan list")]
    NoSuchPlan,
    #[error("no error has this code")]
    NoSuchErrorCode,
    /// A body names it.
    #[error("{0}")]
    UnknownServer(String),
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
    /// One part of the request breaks a rule.
    #[error("{message}")]
    InvalidField { field: Box<FieldProblem>, message: String },
    /// Lines of an import break rules: a problem for each of them.
    #[error("nothing was imported; correct these: {}", join_details(.0))]
    BadLines(Vec<FieldProblem>),
    /// Bytes that are taken.
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
    #[error("the first request with this Idempotency-Key is still running; ask again in a moment")]
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
    /// Its area takes no more orders, or there is no area.
    #[error("{}", .0.message_in(*.1))]
    NoRoom(Box<AdmissionAnswer>, ReplyLanguage),
    /// Another driver has the order, or is taking it: the refusal for the driver's program, and the driver's own words for it.
    #[error("{1}")]
    TripTaken(OrderRefusal, String),
    #[error(transparent)]
    Refused(#[from] OrderRefusal),
    #[error("it is changing too quickly; ask again")]
    Busy,
    #[error("the body did not arrive within 30 s, and nothing was done; send it again, in one go")]
    TooSlow,
    #[error("the request failed by a fault of ours; the log has the details")]
    Panicked,
    /// The handler was given up: see [`finish`](super::finish).
    #[error("the request did not end in time, and may have been carried out; what is done stays done, so ask again")]
    NoAnswer,
    #[error("more requests wait than can be served soon, and nothing was done; wait as long as Retry-After says")]
    Overloaded,
    #[error("the database cannot be asked right now; ask again")]
    Database(#[from] sqlx::Error),
    #[error("the database cannot be asked right now; ask again")]
    Batch(BatchError),
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

/// What a caller is told of a value that Postgres refused.
const REFUSED_VALUE: &str = "a value cannot be stored or compared: a number, a time or a text is out of its range";

impl ApiError {
    pub(super) fn status_code(&self) -> StatusCode {
        match self {
            Self::UnknownServer(_) => StatusCode::BAD_REQUEST,
            _ => self.code().status(),
        }
    }

    /// Is it certain that the request had no effect, and would have none if repeated?
    pub(super) fn is_final(&self) -> bool {
        // Busy is no failure: it had no effect, and the next try may have one.
        matches!(self, Self::NoRoom(..)) || !self.status_code().is_server_error()
    }

    /// Returns whether Postgres could not be asked, so that the same request may succeed later.
    pub(super) fn is_unavailable(&self) -> bool {
        !self.is_refused_value()
            && matches!(self, Self::Database(_) | Self::Batch(_) | Self::NoLookup(LookupError::Unanswered(_)))
    }

    /// Returns whether Postgres refused a value of the request. The extractors check each value before; this covers what they miss.
    fn is_refused_value(&self) -> bool {
        match self {
            Self::Database(error) => db::is_refused_value(error),
            Self::Batch(BatchError::Database(error)) => db::is_refused_value(error),
            _ => false,
        }
    }

    /// Returns the error for people. It names the request, not the database.
    fn message(&self) -> String {
        if self.is_refused_value() { REFUSED_VALUE.to_owned() } else { self.to_string() }
    }

    /// Returns the entry of the code, which says its status and title.
    fn code(&self) -> &'static ErrorCode {
        match self {
            _ if self.is_refused_value() => &codes::INVALID,
            Self::Unauthenticated(_) => &codes::UNAUTHENTICATED,
            Self::Forbidden(_) => &codes::FORBIDDEN,
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

    /// What the log says of it: more than the caller is told.
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

    /// The part of the request that breaks a rule, if it is known.
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

    /// What a 401 asks for. No scheme is registered for signed callbacks.
    fn challenge(&self) -> Option<HeaderValue> {
        match self {
            Self::Unauthenticated(_) => Some(HeaderValue::from_static("Bearer realm=\"dispatchq\"")),
            Self::BadSignature(_) => Some(HeaderValue::from_static("Signature realm=\"dispatchq\"")),
            _ => None,
        }
    }

    /// Whole seconds after which another try makes sense. [`limits`](super::limits) says it for the other 503s.
    fn retry_after_sec(&self) -> Option<u64> {
        match self {
            Self::TooManyRequests(wait) | Self::TooManyFailures(wait) => Some(wait.as_secs() + 1),
            Self::NoLookup(LookupError::Overrun) | Self::Busy => Some(1),
            // Longer than an app takes to come back: so two apps of one driver do not push out each other for ever.
            Self::SentAway => Some(10),
            // Made outside of the router, where `limits` does not say it.
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
        if let Self::Staff(StaffError::StaysDead(why)) = &self {
            problem = problem.beside(json!({ "why": why }));
        }
        let mut answer = problem.into_response();
        answer.extensions_mut().insert(refusal);
        if let Some(challenge) = self.challenge() {
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        if matches!(self, Self::Encoded) {
            // RFC 9110, section 12.5.3: which encodings the body may have.
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
