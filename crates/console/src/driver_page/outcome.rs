//! The text about the last action. The answer to a form redirects to the page with a code, and the page shows the text
//! of the code.

use api::error::ApiError;
use axum::response::Redirect;

use super::BASE;
use crate::{catalogue::find_text, language::Language, page_error::PageError, shown::sentence};

/// Code of the notice that an offer ended before the driver answered it.
pub(super) const OFFER_ENDED: &str = "offer_ended";

/// A text about an action.
pub(super) struct Notice {
    pub(super) text: &'static str,
    /// Whether the action was refused.
    pub(super) is_refusal: bool,
}

impl Notice {
    /// Returns the notice of a code; `None` if the catalogue has no text for it.
    pub(super) fn of_code(code: &str) -> Option<Self> {
        let text = find_text(Language::current(), &format!("driver_notice.{code}"))?;
        // Codes of the API are upper-case, those of actions that were done lower-case.
        Some(Self { text, is_refusal: code == OFFER_ENDED || code.bytes().any(|byte| byte.is_ascii_uppercase()) })
    }
}

/// Redirects to the page after an action. `done` is the code for a success.
pub(super) fn report<T>(result: Result<T, ApiError>, done: &str) -> Result<Redirect, PageError> {
    match result {
        Ok(_) => Ok(Redirect::to(&format!("{BASE}?notice={done}"))),
        Err(error) if Notice::of_code(error.error_code()).is_some() => {
            Ok(Redirect::to(&format!("{BASE}?notice={}", error.error_code())))
        }
        Err(error) => Err(page_error(error)),
    }
}

/// Returns the error page for an error that has no text for drivers.
pub(super) fn page_error(error: ApiError) -> PageError {
    match error {
        ApiError::Database(error) => error.into(),
        ApiError::NoSuchDriver => PageError::SignIn(None),
        error if error.error_code() == "INVALID" => PageError::Invalid(sentence(&error.to_string())),
        error => PageError::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use model::decide::OrderRefusal;
    use strum::VariantNames;

    use super::*;

    /// Refusals that no action of a driver gets: those of refunds, payments, partners and staff, and internal errors.
    const OF_OTHERS: [&str; 8] = [
        "DRIVER_NOT_FOUND",
        "PAYMENT_EVENT_REUSED",
        "ILLEGAL_TRANSITION",
        "LIFETIME_OVER",
        "SERVED_BY_PARTNER",
        "NOTHING_PAID",
        "REFUND_NOT_ASKED",
        "REFUND_UNANSWERED",
    ];

    #[test]
    fn every_refusal_of_drivers_has_a_text() {
        for code in OrderRefusal::VARIANTS.iter().filter(|code| !OF_OTHERS.contains(code)) {
            assert!(Notice::of_code(code).is_some_and(|notice| notice.is_refusal), "{code}");
        }
        assert!(Notice::of_code("accepted").is_some_and(|notice| !notice.is_refusal));
        assert!(Notice::of_code("nonsense").is_none());
    }
}
