//! Language of a request: English or Indonesian. It is the one that the person chose, else the preferred language of
//! the browser, else English. Functions read it from the task ([`Language::current`]) and do not pass it on.
//!
//! The [catalogue](crate::catalogue) has the texts.

use axum::http::{HeaderMap, HeaderValue, header::ACCEPT_LANGUAGE};

use crate::cookie::{Transport, find_cookie};

/// Cookie with the chosen language.
const COOKIE: &str = "dispatchq_language";
/// Lifetime of the cookie in seconds: a year.
const REMEMBERED_S: u32 = 365 * 24 * 3600;

tokio::task_local! {
    /// Language of the current request.
    pub(crate) static LANGUAGE: Language;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Language {
    #[default]
    English,
    Indonesian,
}

impl Language {
    const ALL: [Self; 2] = [Self::English, Self::Indonesian];

    /// Returns the language of the current request; English outside a request.
    pub(crate) fn current() -> Self {
        LANGUAGE.try_with(|language| *language).unwrap_or_default()
    }

    /// Returns the language tag of BCP 47.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Indonesian => "id",
        }
    }

    /// Returns the name of the language in the language itself.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Indonesian => "Bahasa Indonesia",
        }
    }

    /// Returns the other language.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::English => Self::Indonesian,
            Self::Indonesian => Self::English,
        }
    }

    pub(crate) fn parse(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.tag().eq_ignore_ascii_case(tag))
    }

    /// Returns the chosen language, the preferred language of the browser, or English.
    pub(crate) fn of_request(headers: &HeaderMap) -> Self {
        let chosen = find_cookie(headers, COOKIE).and_then(|tag| Self::parse(&tag));
        chosen.or_else(|| liked_best(headers)).unwrap_or_default()
    }

    /// Returns the cookie that stores the choice.
    pub(crate) fn write_cookie(self, base: &str, transport: Transport) -> Option<HeaderValue> {
        let secure = if transport == Transport::Https { "; Secure" } else { "" };
        let tag = self.tag();
        let cookie = format!("{COOKIE}={tag}; Path={base}{secure}; HttpOnly; SameSite=Lax; Max-Age={REMEMBERED_S}");
        HeaderValue::from_str(&cookie).ok()
    }
}

/// Returns the language with the greatest weight in `Accept-Language`. Of several with the same weight, returns the
/// first.
fn liked_best(headers: &HeaderMap) -> Option<Language> {
    let values = headers.get_all(ACCEPT_LANGUAGE).iter().filter_map(|value| value.to_str().ok());
    let ranges = values.flat_map(|value| value.split(',')).filter_map(parse_range);
    let wanted = ranges.filter(|(_, weight)| *weight > 0.0);
    wanted.min_by(|(_, one), (_, other)| other.total_cmp(one)).map(|(language, _)| language)
}

/// Parses a range such as `id-ID;q=0.9`. Returns `None` for languages without pages.
fn parse_range(range: &str) -> Option<(Language, f32)> {
    let (tag, weight) = match range.split_once(';') {
        Some((tag, weight)) => (tag, weight.trim().strip_prefix("q=")?.parse().ok()?),
        None => (range, 1.0),
    };
    let primary = tag.trim().split('-').next()?;
    Some((Language::parse(primary)?, weight))
}

#[cfg(test)]
mod tests;
