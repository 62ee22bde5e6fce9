//! Names of API keys. Audit records and the ownership of orders use the name, so lookalike names count as the same
//! name.

use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use crate::plain_text;

/// Maximum length of a name, in characters.
pub const MAX_NAME: usize = 64;

/// Name of a key as it is stored and shown: NFKC, trimmed, with single blanks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyName(String);

impl KeyName {
    /// Parses a name. The error is worded to follow the name of the value.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(problem) = plain_text::find_problem(text, MAX_NAME) {
            return Err(problem);
        }
        let name = normalize(text);
        if name.is_empty() {
            return Err("must not be empty".to_owned());
        }
        if let Some(c) = name.chars().find(|c| is_invisible(*c)) {
            return Err(format!("must have visible characters only, without {}", c.escape_unicode()));
        }
        // NFKC can lengthen the text: U+FDFA becomes 18 characters.
        if let Some(problem) = plain_text::find_problem(&name, MAX_NAME) {
            return Err(problem);
        }
        Ok(Self(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }

    /// Returns the form used to compare names.
    pub fn to_key(&self) -> String {
        fold(&self.0)
    }
}

/// Returns the case-insensitive form used to compare names. Accepts any text.
pub fn fold(text: &str) -> String {
    // Maps to uppercase first because several lowercase forms share one uppercase form: both sigmas, or "ß" and "ss".
    normalize(&normalize(text).to_uppercase().to_lowercase())
}

fn normalize(text: &str) -> String {
    let compatible: String = text.nfkc().collect();
    compatible.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether a character is invisible, at least on some systems.
fn is_invisible(c: char) -> bool {
    let category = matches!(
        c.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
    );
    // Letters and marks that a font may leave invisible, and the empty Braille cell.
    let filler = matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{e0100}'..='\u{e01ef}'
    );
    category || filler
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule F22: Key names are trimmed, normalised to NFKC and compared without case.
    #[test]
    fn names_that_look_alike_have_one_key() {
        let alike = ["anna", "anna ", " anna", "ANNA", "Anna\u{a0}", "\u{3000}anna", "ａｎｎａ", "𝐚𝐧𝐧𝐚", "ⓐnna"];
        for name in alike {
            assert_eq!(KeyName::parse(name).unwrap().to_key(), "anna", "{name:?}");
        }
        for (one, other) in [
            ("straße", "STRASSE"),
            ("ΟΔΟΣ", "οδος"),
            ("José", "JOSE\u{301}"),
            ("shop  2", "shop\u{2003}2"),
            ("ﬁx", "FIX"),
            ("№ 1", "no 1"),
        ] {
            let key = |name| KeyName::parse(name).unwrap().to_key();
            assert_eq!(key(one), key(other), "{one:?} and {other:?}");
        }
        assert_eq!(KeyName::parse(" Anna  Ｍ ").unwrap().as_str(), "Anna M", "case and inner blanks stay readable");
        assert_eq!(fold("an\u{200b}na"), "an\u{200b}na", "any text is accepted");
    }

    // Rule F22: A key name must not contain format characters or invisible characters.
    #[test]
    fn invisible_characters_in_names_are_refused() {
        for c in [
            '\u{200b}',
            '\u{200d}',
            '\u{ad}',
            '\u{feff}',
            '\u{2060}',
            '\u{202e}',
            '\u{1b}',
            '\n',
            '\u{3164}',
            '\u{115f}',
            '\u{34f}',
            '\u{fe0f}',
            '\u{e0041}',
            '\u{2800}',
            '\u{e000}',
            '\u{378}',
        ] {
            let name = format!("an{c}na");
            assert!(KeyName::parse(&name).is_err(), "{name:?}");
        }
        for name in ["", " ", "\u{a0}\u{3000}"] {
            assert!(KeyName::parse(name).unwrap_err().contains("empty"), "{name:?}");
        }
        let long = "n".repeat(MAX_NAME);
        assert!(KeyName::parse(&long).is_ok() && KeyName::parse(&format!("{long}n")).is_err());
        assert!(KeyName::parse(&"\u{fdfa}".repeat(MAX_NAME)).is_err(), "longer in the form that is stored");
    }
}
