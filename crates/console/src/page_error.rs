//! Errors of pages, and the text that a page shows for each.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};

use crate::{
    catalogue::{Words, fill, tr},
    reasons::describe_refusal,
    shown::{describe_ms, sentence},
};
use accounts::known_keys::LookupError;
use foundation::{db, error::ServiceError};
use model::decide::OrderRefusal;
use orders::{change::ChangeError, search::SearchError};

/// Reason why a request gets no page, or changes nothing.
#[derive(Debug)]
pub(crate) enum PageError {
    /// The person must sign in first, and is then redirected to this address.
    SignIn(Option<String>),
    Forbidden(Words),
    NotFound(Words),
    /// The values in the request are invalid.
    Invalid(String),
    /// The value of this field of the form is invalid. The form shows the text at the field.
    InvalidField(&'static str, String),
    /// The action is not possible in the current state.
    Conflict(String),
    /// Too many requests with this session.
    TooMany(Duration),
    /// Too many wrong keys, or sign-ins at a provider, from one address.
    TooManyFailures(Duration),
    /// Requests wait too long for a connection to Postgres.
    Overloaded(Duration),
    /// A statement of the page exceeded the time limit for pages.
    TooSlow,
    /// The body of the request was not complete in time.
    SlowBody,
    /// Postgres or Redis does not answer.
    Unavailable(String),
    /// An internal error.
    Broken(String),
}

/// Error text for the page that shows an error.
#[derive(Debug, Clone)]
pub(crate) struct PageProblem {
    pub(crate) title: Words,
    pub(crate) text: String,
    /// Field of the form that has an invalid value.
    pub(crate) field: Option<&'static str>,
    /// The person must sign in first, and is then redirected to this address.
    pub(crate) sign_in: Option<Option<String>>,
}

impl PageError {
    fn describe(self) -> (StatusCode, PageProblem) {
        let problem = |title, text: String| PageProblem { title, text, field: None, sign_in: None };
        let wait = |wait: Duration| {
            let span = describe_ms(wait.as_secs().max(1) * 1_000);
            fill!("problem.try_again_in", span)
        };
        match self {
            Self::SignIn(target) => {
                let text = tr("problem.your_session_ended_you");
                let title = tr("common.sign_in");
                (StatusCode::UNAUTHORIZED, PageProblem { sign_in: Some(target), ..problem(title, text.into()) })
            }
            Self::Forbidden(text) => (StatusCode::FORBIDDEN, problem(tr("problem.not_allowed"), text.into())),
            Self::NotFound(text) => (StatusCode::NOT_FOUND, problem(tr("problem.not_found"), text.into())),
            Self::Invalid(text) => (StatusCode::UNPROCESSABLE_ENTITY, problem(tr("problem.invalid_input"), text)),
            Self::InvalidField(field, text) => {
                let problem = problem(tr("problem.invalid_input"), text);
                (StatusCode::UNPROCESSABLE_ENTITY, PageProblem { field: Some(field), ..problem })
            }
            Self::Conflict(text) => (StatusCode::CONFLICT, problem(tr("problem.action_refused"), text)),
            Self::TooMany(after) => {
                let title = tr("problem.too_many_requests");
                (StatusCode::TOO_MANY_REQUESTS, problem(title, wait(after)))
            }
            Self::TooManyFailures(after) => {
                let wait = wait(after);
                let text = fill!("problem.too_many_wrong_keys", wait);
                let title = tr("problem.too_many_wrong_keys_title");
                (StatusCode::TOO_MANY_REQUESTS, problem(title, text))
            }
            Self::Overloaded(after) => {
                let wait = wait(after);
                let text = fill!("problem.database_overloaded", wait);
                (StatusCode::SERVICE_UNAVAILABLE, problem(tr("problem.overloaded"), text))
            }
            Self::TooSlow => {
                let text = tr("problem.database_stopped_after_two");
                (StatusCode::SERVICE_UNAVAILABLE, problem(tr("problem.too_slow"), text.into()))
            }
            Self::SlowBody => {
                let text = tr("problem.form_did_not_arrive");
                (StatusCode::REQUEST_TIMEOUT, problem(tr("problem.too_slow"), text.into()))
            }
            Self::Unavailable(cause) => {
                tracing::warn!(error = cause, "A page of the console could not be made.");
                let text = tr("problem.postgres_redis_not_respond");
                (StatusCode::SERVICE_UNAVAILABLE, problem(tr("problem.not_available"), text.into()))
            }
            Self::Broken(cause) => {
                tracing::error!(error = cause, "A page of the console failed.");
                let text = tr("problem.page_failed_because_internal");
                (StatusCode::INTERNAL_SERVER_ERROR, problem(tr("problem.internal_error"), text.into()))
            }
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooMany(wait) | Self::TooManyFailures(wait) | Self::Overloaded(wait) => Some(*wait),
            _ => None,
        }
    }
}

/// Leaves the body empty; the guard renders the page.
impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let retry_after = self.retry_after();
        let (status, problem) = self.describe();
        let mut answer = status.into_response();
        if let Some(wait) = retry_after {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        answer.extensions_mut().insert(problem);
        answer
    }
}

impl From<sqlx::Error> for PageError {
    fn from(error: sqlx::Error) -> Self {
        if db::is_refused_value(&error) {
            tracing::warn!(%error, "Postgres refused a value of a page's request.");
            let text = tr("problem.number_time_text_outside");
            return Self::Invalid(text.into());
        }
        if db::is_out_of_time(&error) { Self::TooSlow } else { Self::Unavailable(error.to_string()) }
    }
}

impl From<queue::StoreError> for PageError {
    fn from(error: queue::StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<ServiceError> for PageError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Unusable(text) => Self::Conflict(text),
            ServiceError::Database(error) => error.into(),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<LookupError> for PageError {
    fn from(error: LookupError) -> Self {
        match error {
            // Too many lookups of unknown keys.
            LookupError::Overrun => Self::TooMany(Duration::from_secs(1)),
            error @ LookupError::Unanswered(_) => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<SearchError> for PageError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::TooLong | SearchError::TooSlow => Self::Invalid(sentence(&error.to_string())),
            SearchError::Database(error) => error.into(),
        }
    }
}

impl From<ChangeError> for PageError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NotFound | ChangeError::Refused(OrderRefusal::NoSuchOrder) => {
                Self::NotFound(tr("problem.no_order_id"))
            }
            ChangeError::Refused(refusal) => Self::Conflict(describe_refusal(&refusal)),
            ChangeError::Busy | ChangeError::NoRoom => {
                let text = tr("problem.other_requests_changed_order");
                Self::Conflict(text.into())
            }
            ChangeError::Database(error) => error.into(),
        }
    }
}
