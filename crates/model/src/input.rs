//! Rules for external values. HTTP, the command line, SQL, imports and callbacks apply the same rule to the same value;
//! docs/INPUTS.md lists the rules.
//!
//! `dispatchq_check_order` (migrations/0006) applies the same rules in SQL, and a test compares the two.

use std::{fmt, ops::RangeInclusive, str::FromStr, time::Duration};

use chrono::{DateTime, NaiveDateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

use crate::{
    ids::{AreaId, DriverId},
    plain_text,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// Letters, digits, `_` and `-`.
    Id,
    /// Printable ASCII, without a leading or trailing blank.
    Ascii,
    /// Any single-line text without control and bidirectional characters. A text that must not be empty needs a visible
    /// character.
    Line,
}

/// Alphabet and length limits of a text, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextRule {
    pub alphabet: Alphabet,
    pub least: usize,
    pub most: usize,
}

const fn rule(alphabet: Alphabet, most: usize) -> TextRule {
    TextRule { alphabet, least: 1, most }
}

/// Rule for ids of orders, areas, drivers, bindings and users.
pub const ID: TextRule = rule(Alphabet::Id, 64);
/// Rule for a producer's own customer id.
pub const CUSTOMER_ID: TextRule = rule(Alphabet::Ascii, 64);
/// Rule for the sales channel of an order.
pub const CHANNEL: TextRule = rule(Alphabet::Ascii, 64);
/// Rule for a customer's loyalty level, which the producer names.
pub const LOYALTY_LEVEL: TextRule = rule(Alphabet::Ascii, 64);
/// Rule for names of service types.
pub const SERVICE_TYPE: TextRule = rule(Alphabet::Ascii, 64);
/// Rule for the name of a driver.
pub const DRIVER_NAME: TextRule = rule(Alphabet::Line, 80);
/// Rule for a producer's own id of a payment event.
pub const EVENT_ID: TextRule = rule(Alphabet::Ascii, 128);
/// Rule for the reason that a person gives for an action.
pub const REASON: TextRule = rule(Alphabet::Line, 500);

/// Range of money amounts, in the smallest unit of the currency. JavaScript represents every whole number in it
/// exactly.
pub const AMOUNT: RangeInclusive<i64> = 0..=9_007_199_254_740_991;
pub const LIFETIME: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3_600);

impl TextRule {
    /// Returns the rule that the text violates, worded to follow the name of the value; `None` if the text is valid.
    pub fn find_problem(self, text: &str) -> Option<String> {
        let is_long = text.chars().count() > self.most;
        let (least, most) = (self.least, self.most);
        let fits = match self.alphabet {
            Alphabet::Id => text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
            Alphabet::Ascii => text.bytes().all(|b| (b' '..=b'~').contains(&b)) && text.trim() == text,
            Alphabet::Line => {
                if let Some(problem) = plain_text::find_problem(text, most) {
                    return Some(problem);
                }
                least == 0 || !plain_text::is_blank(text)
            }
        };
        if fits && !is_long && text.chars().count() >= least {
            return None;
        }
        Some(match self.alphabet {
            Alphabet::Id => format!("must have {least} to {most} characters: letters of a to z, digits, '_' or '-'"),
            Alphabet::Ascii => {
                format!("must have {least} to {most} printable ASCII characters, and no blank at its beginning or end")
            }
            Alphabet::Line => format!("must have {least} to {most} characters, including a visible one"),
        })
    }

    /// Returns the rule as a regular expression for schemas.
    pub fn pattern(self) -> String {
        match self.alphabet {
            Alphabet::Id => format!("^[A-Za-z0-9_-]{{{},{}}}$", self.least, self.most),
            Alphabet::Ascii => format!("^[!-~]([ -~]{{0,{}}}[!-~])?$", self.most.saturating_sub(2)),
            Alphabet::Line => "^[^\\u0000]*$".to_owned(),
        }
    }
}

/// Parses a reason. The error is worded to follow the name of the value.
pub fn parse_reason(text: &str) -> Result<String, String> {
    REASON.find_problem(text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// Returns the error for an invalid amount, worded to follow the name of the value.
pub fn find_amount_problem(amount: i64) -> Option<String> {
    let (least, most) = (AMOUNT.start(), AMOUNT.end());
    (!AMOUNT.contains(&amount))
        .then(|| format!("must be {least} to {most}, in the smallest unit of the currency, not {amount}"))
}

/// Returns the error for an invalid currency, worded to follow the name of the value.
pub fn find_currency_problem(currency: &str) -> Option<&'static str> {
    let fits = currency.len() == 3 && currency.bytes().all(|b| b.is_ascii_uppercase());
    (!fits).then_some("must be a code of ISO 4217 in three capital letters, such as IDR")
}

/// Returns the error for an invalid id from a partner or the payment service, worded to follow the name of the value.
/// The length limit counts bytes, like the database columns.
pub fn find_foreign_id_problem(id: &str) -> Option<&'static str> {
    let fits = (1..=128).contains(&id.len()) && plain_text::is_plain(id) && !plain_text::is_blank(id);
    (!fits).then_some("must have 1 to 128 bytes of UTF-8 on one line, and no control character")
}

/// Rule for phone numbers, worded to follow the name of the value.
pub const PHONE_RULE: &str =
    "must be an E.164 number: '+', a digit of 1 to 9, then 6 to 14 digits, such as +628123456789";

pub trait RuledId: From<String> {
    const RULE: TextRule;
}

impl RuledId for AreaId {
    const RULE: TextRule = ID;
}

/// Rule for own drivers. Ids of partner drivers have another form and are never external input.
impl RuledId for DriverId {
    const RULE: TextRule = ID;
}

/// An external id that satisfies its rule. Parsing (serde, `FromStr`) applies the rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String", bound = "T: RuledId")]
pub struct Given<T>(pub T);

/// Error for an external value that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidInput(String);

impl<T: RuledId> TryFrom<String> for Given<T> {
    type Error = InvalidInput;

    fn try_from(text: String) -> Result<Self, InvalidInput> {
        match T::RULE.find_problem(&text) {
            None => Ok(Self(text.into())),
            Some(problem) => Err(InvalidInput(problem)),
        }
    }
}

impl<T: RuledId> FromStr for Given<T> {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        text.to_owned().try_into()
    }
}

/// An external instant: RFC 3339, in the years 1970 to 9999. Parsing (serde, `FromStr`) applies the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub struct GivenTime(DateTime<Utc>);

/// Last second of the year 9999, in seconds since 1970.
const LAST_SECOND: i64 = 253_402_300_799;

impl GivenTime {
    pub fn time(self) -> DateTime<Utc> {
        self.0
    }
}

impl From<GivenTime> for DateTime<Utc> {
    fn from(given: GivenTime) -> Self {
        given.0
    }
}

impl FromStr for GivenTime {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let rule = "must be an RFC 3339 time in the years 1970 to 9999, such as 2026-01-09T08:00:00Z";
        let Ok(time) = DateTime::parse_from_rfc3339(text) else {
            // In a query string, '+' is decoded as a blank.
            let has_lost_plus = text.contains(' ') && DateTime::parse_from_rfc3339(&text.replacen(' ', "+", 1)).is_ok();
            let hint = if has_lost_plus {
                "; write %2B for the '+' of its offset"
            } else if text.parse::<NaiveDateTime>().is_ok() {
                "; add its offset from UTC, such as +07:00, or Z for UTC"
            } else {
                ""
            };
            return Err(InvalidInput(format!("{rule}{hint}")));
        };
        let time = time.to_utc();
        if (0..=LAST_SECOND).contains(&time.timestamp()) { Ok(Self(time)) } else { Err(InvalidInput(rule.to_owned())) }
    }
}

impl TryFrom<String> for GivenTime {
    type Error = InvalidInput;

    fn try_from(text: String) -> Result<Self, InvalidInput> {
        text.parse()
    }
}

impl fmt::Display for GivenTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

/// Returns the bytes without a leading UTF-8 byte-order mark. Every JSON reader skips the mark (RFC 8259, section 8.1).
pub fn skip_byte_order_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Returns the text without a leading byte-order mark; see [`skip_byte_order_mark`].
pub fn skip_text_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule F7: Each kind of text has one set of allowed characters and one length limit in characters. The rule for
    // reasons is the same in every interface.
    #[test]
    fn each_rule_has_one_alphabet_and_one_unit() {
        let most = |letter: &str| letter.repeat(64);
        for good in ["C-1", "a b", "x;=1", "~", &most("x")] {
            assert_eq!(CUSTOMER_ID.find_problem(good), None, "{good:?}");
        }
        for bad in ["", " ", " a", "a ", "é", "\u{200b}", "a\u{1b}[31mb", "\u{feff}a", &most("ก"), &"x".repeat(65)] {
            assert!(CUSTOMER_ID.find_problem(bad).is_some(), "{bad:?}");
        }
        assert_eq!((ID.find_problem("DRV_1-a"), ID.find_problem(&most("x"))), (None, None));
        for bad in ["", "No Such", "a.b", "ä", "a/b", "\u{202e}"] {
            assert!(ID.find_problem(bad).is_some(), "{bad:?}");
        }
        assert_eq!((REASON.find_problem(&"ก".repeat(500)), REASON.find_problem("太远了")), (None, None));
        for bad in ["", " ", "\u{200b}", "\u{2060}\u{feff} \u{a0}", "a\nb", "x\u{202e}", &"ก".repeat(501)] {
            assert!(REASON.find_problem(bad).is_some() && parse_reason(bad).is_err(), "{bad:?}");
        }
    }

    // Rule F1: An amount is a whole number from 0 to 9007199254740991.
    #[test]
    fn amount_limit_is_exact_in_javascript() {
        for good in [0, 1, 9_007_199_254_740_991] {
            assert_eq!(find_amount_problem(good), None);
        }
        for bad in [-1, i64::MIN, 9_007_199_254_740_992, i64::MAX] {
            assert!(find_amount_problem(bad).unwrap().contains("9007199254740991"), "{bad}");
        }
    }

    // Rule F20: An instant from outside must be in the years 1970 to 9999, and the error states this range.
    // Rule F11: A time whose '+' became a blank is refused, and the error suggests %2B.
    #[test]
    fn instants_have_a_range_that_errors_state() {
        for good in ["1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-11-27T00:00:00+07:00"] {
            assert!(good.parse::<GivenTime>().is_ok(), "{good}");
        }
        for bad in [
            "-9999-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "+10000-01-01T00:00:00Z",
            "9999-12-31T23:59:59-01:00",
            "now",
            "",
        ] {
            let error = bad.parse::<GivenTime>().unwrap_err().to_string();
            assert!(error.contains("1970 to 9999") && !error.contains("%2B"), "{bad}: {error}");
        }
        let error = "2026-11-27T00:00:00 07:00".parse::<GivenTime>().unwrap_err();
        assert!(error.to_string().contains("%2B"), "{error}");
        let error = "2026-11-27T09:30:00".parse::<GivenTime>().unwrap_err();
        assert!(error.to_string().ends_with("add its offset from UTC, such as +07:00, or Z for UTC"), "{error}");
    }

    #[test]
    fn byte_order_mark_is_skipped_once() {
        assert_eq!(skip_byte_order_mark(b"\xef\xbb\xbf{}"), b"{}");
        assert_eq!(skip_byte_order_mark(b"{}"), b"{}");
        assert_eq!(skip_text_mark("\u{feff}\u{feff}{}"), "\u{feff}{}");
    }
}
