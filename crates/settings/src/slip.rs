//! Errors in a configuration, described by their place. They never show a value or a line, because it may contain a
//! secret.

/// Describes a TOML syntax error: line, column and what was expected.
pub(super) fn describe_syntax_error(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {}", error.message())
}

/// Describes which setting has a value of the wrong kind, without the value.
pub(super) fn describe_value_error(error: &config::ConfigError) -> String {
    let text = error.to_string();
    for kind in ["invalid type: ", "invalid value: "] {
        let Some(at) = text.find(kind).map(|at| at + kind.len()) else { continue };
        let Some(end) = text.rfind(", expected") else { continue };
        if at < end {
            // For example `string "..."` or "integer `...`".
            let what = text[at..end].split(['"', '`']).next().unwrap_or_default().trim_end();
            return format!("{}{what}{}", &text[..at], &text[end..]);
        }
    }
    text
}
