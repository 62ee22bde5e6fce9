//! Free text of people and programs, such as reasons, notes and names.
//! Design: docs/design/privacy.md.
//!
//! A terminal obeys control characters, and bidi characters show a line in another order than it has. So text with either
//! is refused where it comes in, and escaped where it is printed: partners' words and orders
//! created in SQL have passed no such check.

use std::fmt::Write;

/// Returns whether a character does something to the line it stands in.
pub fn is_unsafe(c: char) -> bool {
    let is_bidi = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_line_end = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || is_bidi || is_line_end
}

/// Returns whether the text has neither control nor bidi characters.
pub fn is_plain(text: &str) -> bool {
    !text.chars().any(is_unsafe)
}

/// Returns whether nothing of the text can be seen: it has blanks and characters without width alone.
pub fn is_blank(text: &str) -> bool {
    let has_no_width = |c: char| {
        matches!(c, '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{2800}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
    };
    text.chars().all(|c| c.is_whitespace() || has_no_width(c))
}

/// What is wrong with a text of at most so many characters, to be put behind its name.
pub fn find_problem(text: &str, most: usize) -> Option<String> {
    if text.chars().count() > most {
        Some(format!("must have at most {most} characters"))
    } else {
        let c = text.chars().find(|c| is_unsafe(*c))?;
        Some(format!("must be plain text on one line, without the control character {}", c.escape_unicode()))
    }
}

/// A text of the command line. For clap.
pub fn parse(text: &str) -> Result<String, String> {
    find_problem(text, 500).map_or_else(|| Ok(text.to_owned()), Err)
}

/// Returns the start of a text from outside, for an error that names it.
pub fn excerpt(text: &str) -> String {
    const MOST: usize = 80;
    let start: String = text.chars().take(MOST).collect();
    if start.len() == text.len() { start } else { format!("{start}...") }
}

/// The text with every control and bidi character written as `\u{..}`.
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

/// JSON in which no character is unsafe: they occur in strings alone, where `\uXXXX` means the same. Line ends between the
/// values stay.
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
    fn what_a_terminal_obeys_is_refused_and_escaped() {
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
