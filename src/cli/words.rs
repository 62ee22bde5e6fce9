//! Parser for words from a fixed list.

use std::fmt::Display;

/// Parses a word of `known`, ignoring case.
pub(super) fn parse_word<T: Copy + Display>(text: &str, known: &[T]) -> Result<T, String> {
    let found = known.iter().find(|word| word.to_string().eq_ignore_ascii_case(text));
    let words = || known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    found.copied().ok_or_else(|| format!("expected one of {}", words()))
}
