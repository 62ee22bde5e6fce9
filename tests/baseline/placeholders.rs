//! Placeholders for values that differ between runs (times, ids, addresses, keys), so that recordings can be compared
//! as text.

use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::{Map, Value};

/// Patterns and their placeholders, in the order of application.
static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        (r"/track/[A-Za-z0-9_-]{40,}", "/track/TOKEN"),
        (r"\b[a-zA-Z0-9._-]+-[0-9]+-[0-9a-f]{16}\b", "REPLICA"),
        (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+]00:00| UTC)?", "TIME"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
        (r"\bdq_[0-9a-f]+", "KEY"),
        (r"\b[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){2}\b", "CODE"),
        (r"(127\.0\.0\.1|\[::1\]|localhost):[0-9]+", "HOST"),
        (r"\b([a-z][a-z-]*)-[0-9]{3}\b", "$1-N"),
        (r"/tmp/[A-Za-z0-9._/-]+", "PATH"),
        (r"\b[0-9a-f]{16,}\b", "HEX"),
        (r"/alerts/[0-9]+/", "/alerts/N/"),
        (r"\bAlert [0-9]+", "Alert N"),
        (r"\b[0-9]{13}\b", "MS"),
        (r"\bnotify:([a-z-]*-N):[0-9]+", "notify:$1:N"),
    ];
    patterns.into_iter().map(|(pattern, word)| (Regex::new(pattern).expect("a valid pattern"), word)).collect()
});

/// Fields whose values differ between runs and match no pattern: row numbers, places, and values that depend on the
/// machine's speed.
const FIELDS: [&str; 29] = [
    "id",
    "alert_id",
    "seq",
    "fence",
    "latitude",
    "longitude",
    "pickup_latitude",
    "pickup_longitude",
    "lat",
    "lng",
    "next",
    "next_cursor",
    "latency_us",
    "asks",
    "call_no",
    "pid",
    "host",
    "boot",
    "due",
    "scheduled",
    "leased",
    "next_minute",
    "falling_due",
    "looked_at",
    "lag_events",
    "records",
    "in_hand",
    "resident_bytes",
    "cpu_percent",
];

/// Returns the text with placeholders.
pub fn in_text(text: &str) -> String {
    PATTERNS.iter().fold(text.to_owned(), |text, (pattern, word)| pattern.replace_all(&text, *word).into_owned())
}

/// Further patterns for tables: ages, durations, numeric ids, and column widths.
static TABLE_PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        (r"\b[0-9]+(\.[0-9]+)? ?(ms|s|min|m|h|d|days?|hours?|minutes?|seconds?)\b( [0-9]+(ms|s|m|h)\b)*", "SPAN"),
        (r"(?m)^ *[0-9]+ ", "N "),
        (r" {2,}", "  "),
        (r"REPLICA  running  [^ ]+  [0-9]+", "REPLICA  running  HOST  PID"),
        (r"(HOST  PID  [0-9.]+  )[0-9]+  [0-9]+ MiB  [0-9]+%", "${1}N  N MiB  N%"),
        (r"(?m)^(message  )[0-9]+$", "${1}N"),
        (r"(?m)^( [a-z-]+-queue  ).*$", "${1}N"),
        (r"-{3,}", "---"),
        (r" +\n", "\n"),
    ];
    patterns.into_iter().map(|(pattern, word)| (Regex::new(pattern).expect("a valid pattern"), word)).collect()
});

/// Removes the names of lives from a text, for answers that are the same for each life.
pub fn of_any_life(text: &str) -> String {
    static LIFE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b[a-z][a-z-]*-N\b").expect("a valid pattern"));
    LIFE.replace_all(text, "X-N").into_owned()
}

/// Returns a command's table with placeholders.
pub fn in_table(text: &str) -> String {
    let text = in_text(text);
    TABLE_PATTERNS.iter().fold(text, |text, (pattern, word)| pattern.replace_all(&text, *word).into_owned())
}

/// Returns the value with placeholders and sorted fields.
pub fn in_json(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(in_text(text)),
        Value::Array(items) => Value::Array(items.iter().map(in_json).collect()),
        Value::Object(fields) => {
            let mut sorted: Vec<_> =
                fields.iter().map(|(name, value)| (in_text(name), in_field(name, value))).collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(Map::from_iter(sorted))
        }
        other => other.clone(),
    }
}

/// Returns the value of this field with placeholders.
pub fn in_field(name: &str, value: &Value) -> Value {
    let varies = FIELDS.contains(&name)
        || name.contains("_ms_")
        || name.ends_with("_seconds")
        || name.ends_with("_ms")
        || name.ends_with("_sec");
    match value {
        Value::Object(_) if name == "runs" || name == "lateness" => Value::String("N".to_owned()),
        Value::String(_) if name == "host" => Value::String("HOST".to_owned()),
        // This time is written some seconds after the use.
        _ if name == "last_used_at" => Value::String("TIME or null".to_owned()),
        // The version of a row counts its changes. The version of the event format is 1.
        Value::Number(number) if name == "version" && number.as_i64() != Some(1) => Value::String("N".to_owned()),
        Value::Number(_) if varies => Value::String("N".to_owned()),
        Value::String(_) if name == "duration" => Value::String("SPAN".to_owned()),
        Value::String(_) if varies && name.starts_with("next") => Value::String("CURSOR".to_owned()),
        other => in_json(other),
    }
}

/// Returns a body as one line: JSON with placeholders and sorted fields, or text with placeholders.
pub fn in_body(body: &str) -> String {
    match serde_json::from_str::<Value>(body) {
        Ok(value) => in_json(&value).to_string(),
        Err(_) => in_text(body.trim()),
    }
}
