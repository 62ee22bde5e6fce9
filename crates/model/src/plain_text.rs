//! Free text from people and programs, such as reasons, notes and names. Design: docs/design/contents-and-privacy.md.
//!
//! Terminals obey control characters, and bidirectional characters change the order in which a line is shown. Inputs
//! refuse text with either. Output escapes them, because partner texts and orders created in SQL bypass the input
//! check.

use std::fmt::Write;

/// Returns whether a character is a control character, a bidirectional character or a line separator.
pub fn is_unsafe(c: char) -> bool {
    let is_bidi = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_line_end = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || is_bidi || is_line_end
}

/// Returns whether the text has no control and no bidirectional characters.
pub fn is_plain(text: &str) -> bool {
    !text.chars().any(is_unsafe)
}

/// Returns whether the text has only blanks and zero-width characters.
pub fn is_blank(text: &str) -> bool {
    let has_no_width = |c: char| {
        matches!(c, '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{2800}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
    };
    text.chars().all(|c| c.is_whitespace() || has_no_width(c))
}

/// Returns the error for a text of at most `most` characters, worded to follow its name.
pub fn find_problem(text: &str, most: usize) -> Option<String> {
    if text.chars().count() > most {
        Some(format!("must have at most {most} characters"))
    } else {
        let c = text.chars().find(|c| is_unsafe(*c))?;
        Some(format!("must be plain text on one line, without the control character {}", c.escape_unicode()))
    }
}

/// Parses a text of the command line. For clap.
pub fn parse(text: &str) -> Result<String, String> {
    find_problem(text, 500).map_or_else(|| Ok(text.to_owned()), Err)
}

/// Returns the start of an external text, for use in an error.
pub fn excerpt(text: &str) -> String {
    const MOST: usize = 80;
    let start: String = text.chars().take(MOST).collect();
    if start.len() == text.len() { start } else { format!("{start}...") }
}

/// Returns the text with each control and bidirectional character written as `\u{..}`.
pub fn escape_controls(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) {
            let _ = write!(escaped, "{}", c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns the JSON with each unsafe character written as `\uXXXX`. Unsafe characters occur only in strings, so the
/// value stays the same. Line ends between values stay.
pub fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unsafe(c) && c != '\n' {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_refused_and_escaped() {
        for text in ["\u{1b}]52;c;bHM=\u{7}", "a\nb", "a\rb", "\u{9b}31m", "x\u{202e}y", "\u{2066}", "\u{2028}", "\0"] {
            assert!(find_problem(text, 500).is_some(), "{text:?}");
            assert!(is_plain(&escape_controls(text)), "{text:?}");
            let json = serde_json::to_string(text).unwrap();
            assert!(is_plain(&escape_json(&json)), "{text:?}");
            assert_eq!(serde_json::from_str::<String>(&escape_json(&json)).unwrap(), text);
        }
        for text in ["", "too far", "zu weit, Ärger", "太远了", "👩‍🚒", "יוסי"] {
            assert_eq!((find_problem(text, 500), escape_controls(text).as_str()), (None, text));
        }
        assert!(find_problem("abc", 2).is_some());
        assert_eq!([excerpt("abc"), excerpt(&"ä".repeat(80))], ["abc".to_owned(), "ä".repeat(80)]);
        assert_eq!(excerpt(&"x".repeat(81)), format!("{}...", "x".repeat(80)));
    }
}
