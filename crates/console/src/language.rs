//! English and Indonesian. Each text is given in both languages at the place of its use, so none can be missing.
//!
//! The language of a request is the one that the person chose. Without a choice it is the preferred language of the
//! browser, or else English. Functions read it from the task ([`Language::current`]) and do not pass it on.
//!
//! Names are not translated: states, reasons, kinds, roles. Texts of services about orders and bindings are translated
//! by their code ([`service_words`](crate::service_words)). Advice with commands stays English, and templates mark it
//! as English.

use std::fmt;

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

/// A text in both languages. It is shown in the language of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words {
    english: &'static str,
    indonesian: &'static str,
}

/// Returns a text in English and Indonesian.
pub(crate) const fn both(english: &'static str, indonesian: &'static str) -> Words {
    Words { english, indonesian }
}

impl Words {
    /// Returns the text in the language of the request.
    pub(crate) fn get(self) -> &'static str {
        match Language::current() {
            Language::English => self.english,
            Language::Indonesian => self.indonesian,
        }
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl From<Words> for String {
    fn from(words: Words) -> Self {
        words.get().to_owned()
    }
}

/// Formats a text with values, in English and Indonesian: `say!("{n} wait", "{n} menunggu")`.
macro_rules! say {
    ($english:literal, $indonesian:literal $(,)?) => {
        match $crate::language::Language::current() {
            $crate::language::Language::English => format!($english),
            $crate::language::Language::Indonesian => format!($indonesian),
        }
    };
}
pub(crate) use say;

#[cfg(test)]
mod tests;
