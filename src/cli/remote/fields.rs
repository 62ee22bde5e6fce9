//! Formatting of answer members for tables.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::cli::output::{format_time, format_time_ms};

/// Returns a member as text, or a dash if it is null or absent.
pub(in crate::cli) fn show_field(value: &Value, name: &str) -> String {
    show_value(&value[name])
}

fn show_value(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(show_value).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Formats an RFC 3339 time to the second. Returns a dash if it is null or absent.
pub(in crate::cli) fn show_time(value: &Value, name: &str) -> String {
    read_time(value, name).map_or_else(|| show_field(value, name), format_time)
}

/// Formats a time in milliseconds since the epoch.
pub(in crate::cli) fn show_time_ms(value: &Value, name: &str) -> String {
    value[name].as_u64().map_or_else(|| show_field(value, name), format_time_ms)
}

/// Parses an RFC 3339 time. Returns `None` if there is none.
pub(in crate::cli) fn read_time(value: &Value, name: &str) -> Option<DateTime<Utc>> {
    value[name].as_str()?.parse().ok()
}

/// Returns the items of a list. Empty if the member is absent.
pub(in crate::cli) fn list_items<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the sum of a count over several answers.
pub(in crate::cli) fn sum_fields(answers: &[Value], name: &str) -> u64 {
    answers.iter().filter_map(|answer| answer[name].as_u64()).sum()
}
