//! Answers of a provider, parsed from responses. docs/PROVIDER.md is the contract.

use std::{borrow::Cow, time::Duration};

use serde::Deserialize;

/// Maximum size of an answer that is parsed.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Upper limit for a pause that a provider requests.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);
const LONGEST_TEXT: usize = 200;
pub const HIDDEN_SECRET: &str = "***";
/// Stored reason if the provider gave none, or none that can be stored.
const UNSPECIFIED: &str = "unspecified";

/// Reason of a GAGAL transaction, in the provider's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureReason {
    /// The balance of the account is too low. The provider started nothing.
    InsufficientBalance,
    /// The OTP differs from the one that was sent.
    WrongOtp,
    /// Another word of `[a-z0-9_]{1,64}`.
    Other(String),
}

impl FailureReason {
    pub const INSUFFICIENT_BALANCE: &'static str = "insufficient_balance_before_start";
    pub const WRONG_OTP: &'static str = "wrong_otp";

    pub fn as_str(&self) -> &str {
        match self {
            Self::InsufficientBalance => Self::INSUFFICIENT_BALANCE,
            Self::WrongOtp => Self::WRONG_OTP,
            Self::Other(word) => word,
        }
    }

    /// Returns the reason, or `None` if the contract does not allow the word.
    fn from_word(word: &str) -> Option<Self> {
        let fits = (1..=64).contains(&word.len())
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        match word {
            Self::INSUFFICIENT_BALANCE => Some(Self::InsufficientBalance),
            Self::WRONG_OTP => Some(Self::WrongOtp),
            word => fits.then(|| Self::Other(word.to_owned())),
        }
    }
}

/// Result of a call under the contract. Texts are for records and have at most 200 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderAnswer {
    /// SUKSES: the transaction is done.
    Success { provider_ref: Option<String> },
    /// PROCESSING: ask again.
    Processing { provider_ref: Option<String> },
    /// WAITING_OTP: the provider sent an OTP to the account's owner and requests it.
    OtpWanted { provider_ref: Option<String> },
    /// GAGAL: the transaction failed.
    Failed { reason: FailureReason, provider_ref: Option<String> },
    /// 404: the provider does not know the transaction.
    UnknownTransaction,
    /// 409: the call arrived after `Call-Until`, or with an older fence. It had no effect.
    LateRefused(String),
    /// Another 4xx: the provider will never accept this request. It had no effect.
    Rejected(String),
    /// 429: the server asks for a pause. The call had no effect.
    Throttled { retry_in: Option<Duration> },
    /// 5xx, or the server refused our key: the cause is the server, not this account. The call may have had an effect.
    Unavailable(String),
    /// No answer: refused, disconnected or timed out. The call may have had an effect.
    Unreachable(String),
    /// 2xx with a body outside the contract: not JSON, too large, or an unknown word. The call had an effect.
    Unreadable(String),
}

#[derive(Debug, Deserialize)]
struct AnswerBody<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(default, borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(default)]
    provider_ref: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProviderErrorBody {
    error_code: String,
    message: String,
}

impl ProviderAnswer {
    /// All labels of call results in records and metrics.
    pub const LABELS: [&str; 11] = [
        "success",
        "processing",
        "otp_wanted",
        "failed",
        "unknown_transaction",
        "late_refused",
        "rejected",
        "throttled",
        "unavailable",
        "unreachable",
        "unreadable",
    ];

    pub fn label(&self) -> &'static str {
        match self {
            Self::Success { .. } => "success",
            Self::Processing { .. } => "processing",
            Self::OtpWanted { .. } => "otp_wanted",
            Self::Failed { .. } => "failed",
            Self::UnknownTransaction => "unknown_transaction",
            Self::LateRefused(_) => "late_refused",
            Self::Rejected(_) => "rejected",
            Self::Throttled { .. } => "throttled",
            Self::Unavailable(_) => "unavailable",
            Self::Unreachable(_) => "unreachable",
            Self::Unreadable(_) => "unreadable",
        }
    }

    /// Returns whether the server caused the error, not the binding. The breaker counts these errors.
    pub fn blames_server(&self) -> bool {
        matches!(self, Self::Throttled { .. } | Self::Unavailable(_) | Self::Unreachable(_))
    }

    /// Parses a response. `body` may be cut off one byte after [`MAX_ANSWER_BYTES`].
    pub fn from_response(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        match status {
            200..=299 => Self::from_body(body),
            404 => Self::UnknownTransaction,
            409 => Self::LateRefused(error_text(status, body)),
            429 => Self::Throttled { retry_in: retry_after.map(|pause| pause.min(LONGEST_RETRY_AFTER)) },
            401 | 403 | 500.. => Self::Unavailable(error_text(status, body)),
            400..=499 => Self::Rejected(error_text(status, body)),
            _ => Self::Unreadable(format!("status {status}")),
        }
    }

    /// Returns the answer with this secret removed from the stored texts, in which the provider may have repeated it.
    #[must_use]
    pub fn hide_secret(mut self, secret: &str) -> Self {
        let hide = |text: &mut String| {
            let was_cut = text.chars().count() >= LONGEST_TEXT;
            *text = text.replace(secret, HIDDEN_SECRET);
            // The cut at the maximum length may have left the start of the secret.
            let begun = (1..secret.len()).rev().filter(|end| secret.is_char_boundary(*end));
            if let Some(end) = begun.filter(|_| was_cut).find(|end| text.ends_with(&secret[..*end])) {
                text.truncate(text.len() - end);
                text.push_str(HIDDEN_SECRET);
            }
        };
        match &mut self {
            Self::Success { provider_ref }
            | Self::Processing { provider_ref }
            | Self::OtpWanted { provider_ref }
            | Self::Failed { provider_ref, .. } => provider_ref.iter_mut().for_each(hide),
            Self::LateRefused(text)
            | Self::Rejected(text)
            | Self::Unavailable(text)
            | Self::Unreachable(text)
            | Self::Unreadable(text) => hide(text),
            Self::UnknownTransaction | Self::Throttled { .. } => {}
        }
        if let Self::Failed { reason: FailureReason::Other(word), .. } = &mut self
            && word.contains(secret)
        {
            UNSPECIFIED.clone_into(word);
        }
        self
    }

    fn from_body(body: &[u8]) -> Self {
        if body.len() > MAX_ANSWER_BYTES {
            return Self::Unreadable(format!("the answer is longer than {MAX_ANSWER_BYTES} bytes"));
        }
        let read: AnswerBody<'_> = match serde_json::from_slice(body) {
            Ok(read) => read,
            Err(error) => return Self::Unreadable(shorten_text(&format!("the answer is not valid JSON: {error}"))),
        };
        let provider_ref = read.provider_ref.map(|id| shorten_text(&id).trim().to_owned()).filter(|id| !id.is_empty());
        match &*read.status {
            "SUKSES" => Self::Success { provider_ref },
            "PROCESSING" => Self::Processing { provider_ref },
            "WAITING_OTP" => Self::OtpWanted { provider_ref },
            "GAGAL" => match read.reason.as_deref().and_then(FailureReason::from_word) {
                Some(reason) => Self::Failed { reason, provider_ref },
                // The transaction failed, even if the reason is not allowed by the contract.
                None => Self::Failed { reason: FailureReason::Other(UNSPECIFIED.to_owned()), provider_ref },
            },
            other => {
                Self::Unreadable(shorten_text(&format!("the status is '{other}', which the contract does not know")))
            }
        }
    }
}

fn error_text(status: u16, body: &[u8]) -> String {
    let read: ProviderErrorBody = serde_json::from_slice(body).unwrap_or_default();
    let text = match (read.error_code.as_str(), read.message.as_str()) {
        ("", "") => format!("status {status}"),
        (code, message) => format!("status {status}, {code}: {message}"),
    };
    shorten_text(&text)
}

/// Shortens a provider's text and makes it safe: control characters become blanks, and NUL, which Postgres does not
/// store, is removed.
fn shorten_text(text: &str) -> String {
    let kept = text.chars().filter(|c| *c != '\0').take(LONGEST_TEXT);
    kept.map(|c| if crate::plain_text::is_unsafe(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> ProviderAnswer {
        ProviderAnswer::from_response(status, None, body.as_bytes())
    }

    #[test]
    fn contract_answers_are_parsed() {
        let answer = read(200, r#"{"trx_id":"B.1","status":"SUKSES","reason":null,"provider_ref":"P-1","more":[1]}"#);
        assert_eq!(answer, ProviderAnswer::Success { provider_ref: Some("P-1".to_owned()) });
        assert_eq!(read(200, r#"{"status":"PROCESSING"}"#), ProviderAnswer::Processing { provider_ref: None });
        assert_eq!(read(201, r#"{"status":"WAITING_OTP"}"#), ProviderAnswer::OtpWanted { provider_ref: None });
        let failed = |word: &str| match read(200, &format!(r#"{{"status":"GAGAL","reason":{word}}}"#)) {
            ProviderAnswer::Failed { reason, .. } => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(failed(r#""insufficient_balance_before_start""#), FailureReason::InsufficientBalance);
        assert_eq!(failed(r#""wrong_otp""#), FailureReason::WrongOtp);
        assert_eq!(failed(r#""account_locked""#), FailureReason::Other("account_locked".to_owned()));
        for none in ["null", r#""""#, r#""Spaces and \n""#] {
            assert_eq!(failed(none).as_str(), "unspecified", "{none}");
        }
    }

    #[test]
    fn unknown_answer_is_unreadable_and_bounded() {
        for body in ["", "<html>", "null", "[]", r#"{"status":7}"#, r#"{"state":"SUKSES"}"#, r#"{"status":"sukses"}"#] {
            let answer = read(200, body);
            assert_eq!(answer.label(), "unreadable", "{body}: {answer:?}");
        }
        let long = format!(r#"{{"status":"SUKSES","provider_ref":"{}"}}"#, "x".repeat(MAX_ANSWER_BYTES));
        assert_eq!(read(200, &long).label(), "unreadable");
        let ProviderAnswer::Unreadable(text) = read(200, &format!(r#"{{"status":"{}\u001b[2J"}}"#, "y".repeat(300)))
        else {
            panic!("readable")
        };
        assert!(text.chars().count() <= LONGEST_TEXT && !text.contains('\u{1b}'), "{text}");
        assert_eq!(read(302, "").label(), "unreadable");
    }

    #[test]
    fn truncated_secret_is_removed() {
        for before in LONGEST_TEXT - 4..LONGEST_TEXT {
            let text = format!("{}4711 is wrong", "x".repeat(before));
            let ProviderAnswer::Unreachable(kept) =
                ProviderAnswer::Unreachable(shorten_text(&text)).hide_secret("4711")
            else {
                panic!("unexpected answer")
            };
            assert_eq!(kept, format!("{}{HIDDEN_SECRET}", "x".repeat(before)));
        }
        let whole = ProviderAnswer::Unreachable("what begins with 4".to_owned());
        assert_eq!(whole.clone().hide_secret("4711"), whole);
    }

    #[test]
    fn repeated_secret_is_removed() {
        for (status, body) in [
            (200, r#"{"status":"SUKSES","provider_ref":"P-4711"}"#),
            (200, r#"{"status":"PROCESSING","provider_ref":"4711"}"#),
            (200, r#"{"status":"WAITING_OTP","provider_ref":"4711 4711"}"#),
            (200, r#"{"status":"GAGAL","reason":"otp_4711_expired","provider_ref":"4711"}"#),
            (200, r#"{"status":"4711"}"#),
            (409, r#"{"message":"4711 is late"}"#),
            (422, r#"{"error_code":"4711"}"#),
            (500, r#"{"message":"4711"}"#),
        ] {
            let answer = read(status, body);
            assert!(format!("{answer:?}").contains("4711"), "{answer:?}");
            let (label, hidden) = (answer.label(), answer.hide_secret("4711"));
            assert!(hidden.label() == label && !format!("{hidden:?}").contains("4711"), "{hidden:?}");
        }
        let failed = read(200, r#"{"status":"GAGAL","reason":"wrong_otp","provider_ref":"P-1"}"#);
        assert_eq!(failed.clone().hide_secret("4711"), failed);
    }

    #[test]
    fn error_status_tells_server_from_binding() {
        let error = r#"{"error_code":"STALE_FENCE","message":"an older fence"}"#;
        assert_eq!(read(409, error), ProviderAnswer::LateRefused("status 409, STALE_FENCE: an older fence".to_owned()));
        let labels = [400, 401, 403, 404, 409, 422, 429, 500, 503].map(|status| read(status, "").label());
        let wanted = [
            "rejected",
            "unavailable",
            "unavailable",
            "unknown_transaction",
            "late_refused",
            "rejected",
            "throttled",
            "unavailable",
            "unavailable",
        ];
        assert_eq!(labels, wanted);
        let week = Duration::from_secs(7 * 24 * 3600);
        let throttled = ProviderAnswer::from_response(429, Some(week), b"");
        assert_eq!(throttled, ProviderAnswer::Throttled { retry_in: Some(LONGEST_RETRY_AFTER) });
        assert!(throttled.blames_server() && !read(422, "").blames_server());
    }
}
