//! Errors of pages, and the text that a page shows for each.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};

use crate::{
    language::{Words, both, say},
    service_words::describe_refusal,
    shown::sentence,
};
use accounts::known_keys::LookupError;
use foundation::{db, error::ServiceError};
use model::decide::OrderRefusal;
use orders::{commit::ChangeError, search::SearchError};

/// Error text for an unknown order id.
pub(crate) const NO_ORDER: Words = both("There is no order of this id.", "Tidak ada pesanan dengan id ini.");
/// Error text for a form that is sent to an unknown action.
pub(crate) const NO_ACTION: Words = both("There is no such action.", "Tidak ada tindakan seperti itu.");

/// Reason why a request gets no page, or changes nothing.
#[derive(Debug)]
pub(crate) enum PageError {
    /// The person must sign in first, and is then redirected to this address.
    SignIn(Option<String>),
    Forbidden(Words),
    NotFound(Words),
    /// The values in the request are invalid.
    Invalid(String),
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
    /// The person must sign in first, and is then redirected to this address.
    pub(crate) sign_in: Option<Option<String>>,
}

impl PageError {
    fn describe(self) -> (StatusCode, PageProblem) {
        let problem = |title, text: String| PageProblem { title, text, sign_in: None };
        let wait = |wait: Duration| {
            let s = wait.as_secs().max(1);
            say!("Try again in {s} s.", "Coba lagi dalam {s} s.")
        };
        match self {
            Self::SignIn(target) => {
                let text =
                    both("Your session has ended, or you have none yet.", "Sesi Anda sudah berakhir, atau belum ada.");
                let title = both("Sign in", "Masuk");
                (StatusCode::UNAUTHORIZED, PageProblem { title, text: text.into(), sign_in: Some(target) })
            }
            Self::Forbidden(text) => {
                (StatusCode::FORBIDDEN, problem(both("Not allowed", "Tidak diizinkan"), text.into()))
            }
            Self::NotFound(text) => (StatusCode::NOT_FOUND, problem(both("Not found", "Tidak ditemukan"), text.into())),
            Self::Invalid(text) => {
                (StatusCode::UNPROCESSABLE_ENTITY, problem(both("That cannot be read", "Tidak dapat dibaca"), text))
            }
            Self::Conflict(text) => {
                (StatusCode::CONFLICT, problem(both("That was not done", "Itu tidak dilakukan"), text))
            }
            Self::TooMany(after) => {
                let title = both("Too many requests", "Terlalu banyak permintaan");
                (StatusCode::TOO_MANY_REQUESTS, problem(title, wait(after)))
            }
            Self::TooManyFailures(after) => {
                let wait = wait(after);
                let text = say!(
                    "Too many wrong keys or sign-ins came from this address. {wait}",
                    "Terlalu banyak kunci yang salah atau upaya masuk datang dari alamat ini. {wait}"
                );
                let title = both("Too many wrong keys", "Terlalu banyak kunci yang salah");
                (StatusCode::TOO_MANY_REQUESTS, problem(title, text))
            }
            Self::Overloaded(after) => {
                let wait = wait(after);
                let text = say!(
                    "The database has more to do than it can. {wait}",
                    "Pekerjaan basis data melebihi kemampuannya. {wait}"
                );
                (StatusCode::SERVICE_UNAVAILABLE, problem(both("Busy", "Sibuk"), text))
            }
            Self::TooSlow => {
                let text = both(
                    "The database needed more than two seconds for this page, and orders come first. Ask for less, or try again.",
                    "Basis data memerlukan lebih dari dua detik untuk halaman ini, dan pesanan didahulukan. Minta lebih sedikit, atau coba lagi.",
                );
                (StatusCode::SERVICE_UNAVAILABLE, problem(both("Too slow", "Terlalu lambat"), text.into()))
            }
            Self::SlowBody => {
                let text = both(
                    "The form did not arrive completely in time. Try again.",
                    "Formulir tidak tiba lengkap pada waktunya. Coba lagi.",
                );
                (StatusCode::REQUEST_TIMEOUT, problem(both("Too slow", "Terlalu lambat"), text.into()))
            }
            Self::Unavailable(cause) => {
                tracing::warn!(error = cause, "A page of the console could not be made.");
                let text = both(
                    "Postgres or Redis does not answer right now. Nothing that was accepted is lost. Try again in a moment.",
                    "Postgres atau Redis sedang tidak menjawab. Yang sudah diterima tidak hilang. Coba lagi sebentar lagi.",
                );
                (StatusCode::SERVICE_UNAVAILABLE, problem(both("Not available", "Tidak tersedia"), text.into()))
            }
            Self::Broken(cause) => {
                tracing::error!(error = cause, "A page of the console failed.");
                let text = both(
                    "This page failed by a fault of ours; the log has the details.",
                    "Halaman ini gagal karena kesalahan kami; rinciannya ada di log.",
                );
                (StatusCode::INTERNAL_SERVER_ERROR, problem(both("Something broke", "Ada yang rusak"), text.into()))
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
            let text = both(
                "A value cannot be stored or compared: a number, a time or a text is out of its range.",
                "Sebuah nilai tidak dapat disimpan atau dibandingkan: angka, waktu, atau teksnya di luar batas.",
            );
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
            ChangeError::NotFound | ChangeError::Refused(OrderRefusal::NoSuchOrder) => Self::NotFound(NO_ORDER),
            ChangeError::Refused(refusal) => Self::Conflict(describe_refusal(&refusal)),
            ChangeError::Busy => {
                let text =
                    both("The order is changing too quickly. Try again.", "Pesanan berubah terlalu cepat. Coba lagi.");
                Self::Conflict(text.into())
            }
            ChangeError::Database(error) => error.into(),
        }
    }
}
