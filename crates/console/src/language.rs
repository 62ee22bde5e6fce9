//! English and Indonesian. A text stands in both where it is used, so none can be given in one alone.
//!
//! The language is that of the request: the one its person chose, or else the one its browser likes best, or else English. It is
//! known wherever a page is made ([`Language::current`]), so it is handed to no function.
//!
//! Names stay as they are: states, reasons, kinds, roles. What services say of orders and bindings is said by its code
//! ([`service_words`](crate::service_words)); advice with commands stays English, and templates mark it so.

use std::fmt;

use axum::http::{HeaderMap, HeaderValue, header::ACCEPT_LANGUAGE};

use crate::cookie::{Transport, find_cookie};

/// Remembers what a person chose.
const COOKIE: &str = "dispatchq_language";
/// A year.
const REMEMBERED_S: u32 = 365 * 24 * 3600;

tokio::task_local! {
    /// That of the request in hand.
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

    /// That of the request in hand; English outside of one.
    pub(crate) fn current() -> Self {
        LANGUAGE.try_with(|language| *language).unwrap_or_default()
    }

    /// As BCP 47 has it.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Indonesian => "id",
        }
    }

    /// As its speakers call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Indonesian => "Bahasa Indonesia",
        }
    }

    /// What the switch leads to.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::English => Self::Indonesian,
            Self::Indonesian => Self::English,
        }
    }

    pub(crate) fn parse(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.tag().eq_ignore_ascii_case(tag))
    }

    /// What its person chose, or what the browser likes best, or English.
    pub(crate) fn of_request(headers: &HeaderMap) -> Self {
        let chosen = find_cookie(headers, COOKIE).and_then(|tag| Self::parse(&tag));
        chosen.or_else(|| liked_best(headers)).unwrap_or_default()
    }

    /// The cookie that remembers a choice.
    pub(crate) fn write_cookie(self, base: &str, transport: Transport) -> Option<HeaderValue> {
        let secure = if transport == Transport::Https { "; Secure" } else { "" };
        let tag = self.tag();
        let cookie = format!("{COOKIE}={tag}; Path={base}{secure}; HttpOnly; SameSite=Lax; Max-Age={REMEMBERED_S}");
        HeaderValue::from_str(&cookie).ok()
    }
}

/// The language that a browser gives the most weight; of equals the first.
fn liked_best(headers: &HeaderMap) -> Option<Language> {
    let values = headers.get_all(ACCEPT_LANGUAGE).iter().filter_map(|value| value.to_str().ok());
    let ranges = values.flat_map(|value| value.split(',')).filter_map(parse_range);
    let wanted = ranges.filter(|(_, weight)| *weight > 0.0);
    wanted.min_by(|(_, one), (_, other)| other.total_cmp(one)).map(|(language, _)| language)
}

/// `id-ID;q=0.9`, if it is a language that pages are in.
fn parse_range(range: &str) -> Option<(Language, f32)> {
    let (tag, weight) = match range.split_once(';') {
        Some((tag, weight)) => (tag, weight.trim().strip_prefix("q=")?.parse().ok()?),
        None => (range, 1.0),
    };
    let primary = tag.trim().split('-').next()?;
    Some((Language::parse(primary)?, weight))
}

/// A text in both languages. It is shown in that of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words {
    english: &'static str,
    indonesian: &'static str,
}

/// A text in English and in Indonesian.
pub(crate) const fn both(english: &'static str, indonesian: &'static str) -> Words {
    Words { english, indonesian }
}

impl Words {
    /// In the language of the request.
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

/// A text with values, in English and in Indonesian: `say!("{n} wait", "{n} menunggu")`.
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
