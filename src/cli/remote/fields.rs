//! Members of an answer, as tables print them.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::cli::output::{format_time, format_time_ms};

/// A member, or a dash where it is null or absent.
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

/// A time in RFC 3339, to the second; a dash where it is null or absent.
pub(in crate::cli) fn show_time(value: &Value, name: &str) -> String {
    read_time(value, name).map_or_else(|| show_field(value, name), format_time)
}

/// A time in milliseconds since the epoch.
pub(in crate::cli) fn show_time_ms(value: &Value, name: &str) -> String {
    value[name].as_u64().map_or_else(|| show_field(value, name), format_time_ms)
}

/// A time in RFC 3339; `None` where there is none.
pub(in crate::cli) fn read_time(value: &Value, name: &str) -> Option<DateTime<Utc>> {
    value[name].as_str()?.parse().ok()
}

/// The items of a list; none where it is absent.
pub(in crate::cli) fn list_items<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}
