//! What commands print: a table for people, JSON for programs. Stdout is for results, stderr for everything else.

use std::{fmt::Display, io::Write};

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use serde::Serialize;

/// Prints one JSON value.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Prints rows under headings; says so when there are none.
pub(super) fn table<R>(headings: &[&str], rows: impl IntoIterator<Item = R>, if_empty: &str)
where
    R: IntoIterator,
    R::Item: Display,
{
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(headings);
    for row in rows {
        table.add_row(row.into_iter().map(|cell| cell.to_string()));
    }
    if table.row_count() == 0 {
        print(if_empty);
    } else {
        print(&table.to_string());
    }
}

/// A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// A time as people read it, to the second.
pub(super) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// A time given in milliseconds since the epoch.
pub(super) fn time_ms(ms: u64) -> String {
    DateTime::from_timestamp_millis(ms.cast_signed())
        .map_or_else(|| ms.to_string(), |at| at.to_rfc3339_opts(SecondsFormat::Millis, true))
}

/// A value or a dash.
pub(super) fn or_dash<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}
