//! Times, amounts and states as people read them. Each state has a sign and a word, so colour is never the only
//! difference.

use std::fmt;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use model::{ids::LatLng, messages::money, order::OrderStatus};

use crate::{
    catalogue::{fill, find_text},
    language::Language,
};
use accounts::api_keys::AccountRole;
use desk::reports::glance::BoundedCount;

/// A time. A script shows it as UTC, as local time, or as an age; without the script it is UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) DateTime<Utc>);

impl Moment {
    /// Returns the time of a number of milliseconds since 1970.
    pub(crate) fn of_ms(ms: u64) -> Self {
        Self(DateTime::<Utc>::from_timestamp_millis(ms.cast_signed()).unwrap_or_default())
    }

    /// Returns the time in a machine-readable form.
    pub(crate) fn machine(&self) -> String {
        self.0.to_rfc3339_opts(SecondsFormat::Millis, true)
    }
}

/// Writes HTML.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine();
        write!(f, "<time datetime=\"{machine}\" title=\"{machine}\">{}</time>", describe_time(self.0))
    }
}

/// A time that a script counts down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Countdown {
    pub(crate) to: DateTime<Utc>,
    pub(crate) now: DateTime<Utc>,
}

/// Writes HTML.
impl fmt::Display for Countdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = Moment(self.to).machine();
        let left = self.to - self.now;
        let class = if left < TimeDelta::zero() { "countdown late" } else { "countdown" };
        write!(f, "<time class=\"{class}\" datetime=\"{machine}\" title=\"{machine}\">{}</time>", describe_left(left))
    }
}

/// Returns a time such as `2026-01-08 09:30:00 UTC`, for texts without HTML.
pub(crate) fn describe_time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Returns coordinates such as `-6.20880, 106.84560`.
pub(crate) fn describe_place(place: LatLng) -> String {
    format!("{:.5}, {:.5}", place.lat, place.lng)
}

/// Returns a text such as `in 42 s`, or `late by 3 h 20 min`.
pub(crate) fn describe_left(left: TimeDelta) -> String {
    let span = describe_span(left.abs());
    if left < TimeDelta::zero() { fill!("time.late", span) } else { fill!("time.in", span) }
}

/// Returns a duration such as `42 s`, `12 min 5 s`, `3 h 20 min`, `4 d 2 h`.
pub(crate) fn describe_span(span: TimeDelta) -> String {
    let s = span.num_seconds().max(0);
    match s {
        0..60 => format!("{s} s"),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3_600),
    }
}

/// Returns a duration in milliseconds such as `350 ms`, or `42 s`.
pub(crate) fn describe_ms(ms: u64) -> String {
    if ms < 1_000 { format!("{ms} ms") } else { describe_span(TimeDelta::milliseconds(ms.cast_signed())) }
}

/// Returns an amount of memory such as `1,536 MiB`.
pub(crate) fn describe_bytes(bytes: u64) -> String {
    format!("{} MiB", group_digits(bytes / 1_048_576))
}

/// Returns a share such as `85%`.
pub(crate) fn describe_share(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Returns the time since `since`, or a dash.
pub(crate) fn describe_age(since: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    since.map_or_else(|| "–".to_owned(), |since| describe_span((now - since).max(TimeDelta::zero())))
}

/// Returns a distance such as `350 m`, or `1.2 km`.
pub(crate) fn describe_distance(metres: f64) -> String {
    if metres < 999.5 { format!("{metres:.0} m") } else { format!("{:.1} km", metres / 1_000.0) }
}

/// Returns a count such as `1,234`, or `10,000+`.
pub(crate) fn describe_count(count: BoundedCount) -> String {
    let digits = group_digits(count.rows);
    if count.is_cut { format!("{digits}+") } else { digits }
}

pub(crate) fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns an amount with its currency, or a dash.
pub(crate) fn describe_amount(minor: Option<impl Into<i128>>, currency: Option<&str>) -> String {
    match (minor.map(Into::<i128>::into), currency) {
        (Some(minor), Some(currency)) => money::format_amount(minor, currency),
        (Some(minor), None) => minor.to_string(),
        (None, _) => "–".to_owned(),
    }
}

/// A code of a service with its text in the catalogue. A page shows the text, and the code as a tooltip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Code {
    group: &'static str,
    code: String,
}

impl Code {
    /// `group` is the group of the catalogue that has the texts of these codes.
    pub(crate) fn new(group: &'static str, code: impl Into<String>) -> Self {
        Self { group, code: code.into() }
    }

    pub(crate) fn of_status(status: OrderStatus) -> Self {
        Self::new("order_state", status.as_str())
    }

    /// Returns the text of the catalogue. A code that the catalogue does not have, such as one of a newer version,
    /// becomes plain words.
    pub(crate) fn text(&self) -> String {
        let text = find_text(Language::current(), &format!("{}.{}", self.group, self.code));
        text.map_or_else(|| capitalize(&self.code.replace(['_', '.'], " ").to_lowercase()), str::to_owned)
    }
}

/// Writes HTML.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<abbr title=\"{}\">{}</abbr>", escape(&self.code), escape(&self.text()))
    }
}

/// State on a page: a sign, a word and a color class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chip {
    sign: &'static str,
    word: String,
    tone: &'static str,
    /// Code of the state, shown as a tooltip; empty if the state has no code.
    code: String,
}

impl Chip {
    pub(crate) fn new(tone: &'static str, word: impl Into<String>) -> Self {
        let sign = match tone {
            "good" => "✓",
            "busy" => "→",
            "wait" => "◷",
            "warn" => "!",
            "bad" => "✕",
            _ => "·",
        };
        Self { sign, word: word.into(), tone, code: String::new() }
    }

    /// Returns the chip for a code.
    pub(crate) fn of_code(tone: &'static str, code: Code) -> Self {
        let word = code.text();
        Self { code: code.code, ..Self::new(tone, word) }
    }

    /// Returns the chip for the status of an order.
    pub(crate) fn of_status(status: OrderStatus) -> Self {
        let tone = match status {
            OrderStatus::Scheduled => "wait",
            OrderStatus::PendingJobId | OrderStatus::Assigned | OrderStatus::Dispatching => "busy",
            OrderStatus::Pending | OrderStatus::CancelledBySystemAfterPayment => "warn",
            OrderStatus::DriverAssigned | OrderStatus::PickedUp => "busy",
            OrderStatus::Completed | OrderStatus::Refunded => "good",
            OrderStatus::Compensating | OrderStatus::RefundPending => "wait",
            OrderStatus::CancelledBySystem | OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver => "bad",
        };
        Self::of_code(tone, Code::of_status(status))
    }
}

/// Writes HTML.
impl fmt::Display for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sign, word, tone, code } = self;
        let title = if code.is_empty() { String::new() } else { format!(" title=\"{}\"", escape(code)) };
        write!(f, "<span class=\"chip {tone}\"{title}><b aria-hidden=\"true\">{sign}</b>{}</span>", escape(word))
    }
}

/// Returns HTML of a JSON value, with indentation.
pub(crate) fn draw_json(value: &serde_json::Value) -> String {
    format!("<pre class=\"json\" tabindex=\"0\">{}</pre>", escape(&format!("{value:#}")))
}

/// Escapes text for HTML content and attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    format!("{first}{}", chars.as_str())
}

/// Returns a message of a service as a sentence.
pub(crate) fn sentence(text: &str) -> String {
    let end = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{}{end}", capitalize(text))
}

/// Returns the name of a role. Names of roles are the same in all languages, because commands contain them.
pub(crate) fn role_word(role: AccountRole) -> &'static str {
    match role {
        AccountRole::Producer => "producer",
        AccountRole::Driver => "driver",
        AccountRole::Viewer => "viewer",
        AccountRole::Dispatcher => "dispatcher",
        AccountRole::Support => "support",
        AccountRole::Operator => "operator",
        AccountRole::Admin => "admin",
    }
}
