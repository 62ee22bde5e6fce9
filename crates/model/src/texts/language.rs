//! Supported languages, and the tags that request one.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Language {
    #[default]
    #[serde(rename = "id")]
    Indonesian,
    #[serde(rename = "en")]
    English,
    #[serde(rename = "vi")]
    Vietnamese,
}

impl Language {
    pub const ALL: [Self; 3] = [Self::Indonesian, Self::English, Self::Vietnamese];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Indonesian => "id",
            Self::English => "en",
            Self::Vietnamese => "vi",
        }
    }

    /// Returns the language of a BCP 47 tag. Regions and scripts use the texts of their language. `None`: the language
    /// has no texts.
    pub fn from_tag(tag: &str) -> Option<Self> {
        match tag.split('-').next().unwrap_or_default().to_ascii_lowercase().as_str() {
            // "in" was the code of Indonesian until 1989. Old clients still send it.
            "id" | "in" => Some(Self::Indonesian),
            "en" => Some(Self::English),
            "vi" => Some(Self::Vietnamese),
            _ => None,
        }
    }

    /// Returns the supported language with the greatest weight in an Accept-Language header; on equal weights, the
    /// first. `otherwise` is used for `*`, and if the header names no supported language. An entry with a malformed
    /// weight is ignored.
    pub fn from_accept_language(header: Option<&str>, otherwise: Self) -> Self {
        let mut best = (0.0, otherwise);
        for item in header.unwrap_or_default().split(',') {
            let mut parts = item.split(';');
            let tag = parts.next().unwrap_or_default().trim();
            let Some(weight) = parts.next().map_or(Some(1.0), parse_weight) else { continue };
            let Some(language) = (if tag == "*" { Some(otherwise) } else { Self::from_tag(tag) }) else { continue };
            if weight > best.0 {
                best = (weight, language);
            }
        }
        best.1
    }

    /// Formats a distance in kilometres with one decimal, in the notation of this language.
    pub fn format_km(self, metres: f64) -> String {
        let km = format!("{:.1}", metres / 1000.0);
        match self {
            Self::English => km,
            Self::Indonesian | Self::Vietnamese => km.replace('.', ","),
        }
    }
}

/// Returns the weight of an entry, such as `q=0.8` (RFC 9110, section 12.4.2); `None` if it is malformed.
fn parse_weight(text: &str) -> Option<f64> {
    let (name, value) = text.trim().split_once('=')?;
    let (whole, digits) = value.split_once('.').unwrap_or((value, ""));
    let fits = digits.len() <= 3
        && match whole {
            "0" => digits.bytes().all(|b| b.is_ascii_digit()),
            "1" => digits.bytes().all(|b| b == b'0'),
            _ => false,
        };
    if name.eq_ignore_ascii_case("q") && fits { value.trim_end_matches('.').parse().ok() } else { None }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// BCP 47 language tag, such as `id`, `en-GB` or `zh-Hant-TW`, as received. Its language may be unsupported.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type)]
#[serde(try_from = "String", into = "String")]
#[sqlx(transparent)]
pub struct LanguageTag(String);

/// Error for a text that is not a language tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("language '{0}' is not a BCP 47 tag, such as id, en or vi")]
pub struct InvalidLanguageTag(String);

impl LanguageTag {
    /// Maximum length. RFC 5646, section 4.4.1: enough for every tag in use.
    pub const MAX_BYTES: usize = 35;

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the language of the tag, if it is supported.
    pub fn known_language(&self) -> Option<Language> {
        Language::from_tag(&self.0)
    }
}

/// Returns whether the text is a well-formed tag. Languages have two or three letters; longer names are reserved and
/// none is registered.
fn is_well_formed(text: &str) -> bool {
    let mut subtags = text.split('-');
    let language = subtags.next().unwrap_or_default();
    let is_language = (2..=3).contains(&language.len()) && language.bytes().all(|b| b.is_ascii_alphabetic());
    let fits = |subtag: &str| (1..=8).contains(&subtag.len()) && subtag.bytes().all(|b| b.is_ascii_alphanumeric());
    // A single letter starts an extension, which must not be empty.
    let ends_whole = text.rsplit('-').next().is_some_and(|last| last.len() > 1);
    text.len() <= LanguageTag::MAX_BYTES && is_language && subtags.all(fits) && ends_whole
}

impl TryFrom<String> for LanguageTag {
    type Error = InvalidLanguageTag;

    fn try_from(text: String) -> Result<Self, InvalidLanguageTag> {
        if is_well_formed(&text) {
            return Ok(Self(text));
        }
        let shown: String = text.chars().filter(|c| !crate::plain_text::is_unsafe(*c)).take(40).collect();
        Err(InvalidLanguageTag(shown))
    }
}

impl std::str::FromStr for LanguageTag {
    type Err = InvalidLanguageTag;

    fn from_str(text: &str) -> Result<Self, InvalidLanguageTag> {
        text.to_owned().try_into()
    }
}

impl From<LanguageTag> for String {
    fn from(tag: LanguageTag) -> Self {
        tag.0
    }
}

impl fmt::Display for LanguageTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
