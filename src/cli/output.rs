//! Output of commands: tables for people, JSON for programs. Results go to stdout, everything else to stderr.
//!
//! Both streams escape text from outside. A terminal would interpret its control characters, and a line end would forge
//! a line.

use std::{
    fmt::{self, Display},
    io::{self, IsTerminal, Write},
    sync::OnceLock,
};

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use console::{Style, Term};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use foundation::config::error::ConfigError;
use model::plain_text;

/// First error of a line on stdout, other than a closed pipe.
static WRITE_ERROR: OnceLock<io::Error> = OnceLock::new();

/// An error with a heading and one line for each problem.
#[derive(Debug)]
pub(super) struct ErrorList {
    heading: String,
    problems: Vec<String>,
}

impl ErrorList {
    pub(super) fn new(heading: impl Into<String>, problems: Vec<String>) -> Self {
        Self { heading: heading.into(), problems }
    }
}

impl Display for ErrorList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.heading, self.problems.join("; "))
    }
}

impl std::error::Error for ErrorList {}

/// Prints an error and its causes on stderr. The text is one line unless it is a list.
pub fn print_error(error: &anyhow::Error) {
    let _ = writeln!(io::stderr(), "error: {}", describe_error(error));
}

/// Returns an error and its causes as escaped text.
fn describe_error(error: &anyhow::Error) -> String {
    let (mut line, mut listed) = (Vec::new(), String::new());
    for cause in error.chain() {
        let list = match (cause.downcast_ref::<ErrorList>(), cause.downcast_ref::<ConfigError>()) {
            (Some(list), _) => Some((list.heading.clone(), list.problems.clone())),
            (_, Some(config)) => config.as_list(),
            _ => None,
        };
        let Some((heading, problems)) = list else {
            line.push(plain_text::escape_controls(&cause.to_string()));
            continue;
        };
        line.push(plain_text::escape_controls(&heading));
        listed = problems.iter().map(|problem| format!("\n  {}", plain_text::escape_controls(problem))).collect();
    }
    line.join(": ") + &listed
}

/// Prints one escaped line on stderr: information for people that is not part of the result.
pub fn print_note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", plain_text::escape_controls(text));
}

/// Prints a question on stderr, without a line end.
pub(super) fn print_question(text: &str) -> io::Result<()> {
    let mut stderr = io::stderr();
    write!(stderr, "{} [y/N] ", plain_text::escape_controls(text))?;
    stderr.flush()
}

/// Prints one JSON value. Control characters are written as `\uXXXX`.
pub(super) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_text(&plain_text::escape_json(&serde_json::to_string_pretty(value)?));
    Ok(())
}

/// Prints rows under headings, or `if_empty` if there are none. Escapes control characters in every cell.
pub(super) fn print_rows<R>(headings: &[&str], rows: impl IntoIterator<Item = R>, if_empty: &str)
where
    R: IntoIterator,
    R::Item: Display,
{
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(headings);
    if let Some((_, columns)) = Term::stdout().size_checked() {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns.max(LEAST_COLUMNS));
    }
    for row in rows {
        table.add_row(row.into_iter().map(|cell| plain_text::escape_controls(&cell.to_string())));
    }
    if table.row_count() == 0 {
        print_text(if_empty);
    } else {
        print_text(&paint_table(&table.to_string(), console::colors_enabled()));
    }
}

/// Minimum width of a table. In a narrower terminal, words would be split into letters.
const LEAST_COLUMNS: u16 = 60;

/// Colours a table for a terminal: headings are bold, and state names have a colour. Spaces do not move.
fn paint_table(text: &str, has_colours: bool) -> String {
    if !has_colours {
        return text.to_owned();
    }
    let mut lines = text.lines();
    let headings = lines.next().map(|line| Style::new().bold().force_styling(true).apply_to(line).to_string());
    let rows = lines.map(|line| line.split(' ').map(paint_word).collect::<Vec<_>>().join(" "));
    headings.into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

/// Colours a word if it is the name of a state.
pub(super) fn paint_word(word: &str) -> String {
    let style = Style::new().force_styling(true);
    let style = match word {
        "COMPLETED" | "REFUNDED" | "RUNNING" | "DONE" | "SUKSES" | "delivered" | "normal" => style.green(),
        "PENDING" | "PENDING_JOB_ID" | "COMPENSATING" | "REFUND_PENDING" | "WAITING_OTP" | "STOPPING" | "held"
        | "SCHEDULED" | "trying" | "paused" | "scheduled" => style.yellow(),
        "FAILED" | "UNRESOLVED" | "VIOLATION" | "dead" | "stopped" | "disabled" | "fail" | "revoked" => style.red(),
        word if word.starts_with("CANCELLED") => style.red(),
        _ => return word.to_owned(),
    };
    style.apply_to(word).to_string()
}

/// Colours a state like [`paint_word`] if colours are enabled.
pub(super) fn paint_state(word: &str) -> String {
    if console::colors_enabled() { paint_word(word) } else { word.to_owned() }
}

/// Prints one line with its control characters escaped.
pub(super) fn print_escaped(text: &str) {
    print_text(&plain_text::escape_controls(text));
}

/// Joins lines with their control characters escaped. A line that starts with a line end gets an empty line before it.
pub(super) fn join_escaped(lines: &[String]) -> String {
    let escaped = lines.iter().map(|line| match line.strip_prefix('\n') {
        Some(rest) => format!("\n{}", plain_text::escape_controls(rest)),
        None => plain_text::escape_controls(line),
    });
    escaped.collect::<Vec<_>>().join("\n")
}

/// Prints a line.
pub(super) fn print_text(text: &str) {
    print_args(format_args!("{text}"));
}

/// Prints a line. If the reader has closed stdout (`| head`), the rest of the output is dropped. After any other error,
/// [`check_written`] fails. In both cases the command runs to its end: exiting here would cut off the effects of what it
/// has committed.
pub(super) fn print_args(line: fmt::Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout(), "{line}")
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = WRITE_ERROR.set(error);
    }
}

/// Returns an error if the output is incomplete, for example because the disk is full.
pub(super) fn check_written() -> anyhow::Result<()> {
    match WRITE_ERROR.get() {
        Some(error) => anyhow::bail!("the output is incomplete: {error}; what the command changed stays changed"),
        None => Ok(()),
    }
}

/// Returns a progress bar for `total` items. It is drawn on stderr, and only on a terminal.
pub(super) fn progress_bar(total: usize) -> ProgressBar {
    let visible = total > 1 && io::stderr().is_terminal();
    let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(total as u64), target);
    let style = ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} ({eta} left)");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Formats a time to the second.
pub(super) fn format_time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Formats a time in milliseconds since the epoch.
pub(super) fn format_time_ms(ms: u64) -> String {
    DateTime::from_timestamp_millis(ms.cast_signed())
        .map_or_else(|| ms.to_string(), |at| at.to_rfc3339_opts(SecondsFormat::Millis, true))
}

/// Formats a place as latitude and longitude. Returns a dash if it is absent.
pub(super) fn format_place(place: &Value) -> String {
    match (place["latitude"].as_f64(), place["longitude"].as_f64()) {
        (Some(latitude), Some(longitude)) => {
            let address = place["address"].as_str().map(|address| format!(" ({address})"));
            format!("{latitude:.5}, {longitude:.5}{}", address.unwrap_or_default())
        }
        _ => "-".to_owned(),
    }
}

/// Formats a value, or returns a dash for `None`.
pub(super) fn or_dash<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

/// Shortens a text to one line of at most `most` characters.
pub(super) fn shorten_text(text: &str, most: usize) -> String {
    let line: String = text.chars().map(|c| if plain_text::is_unsafe(c) { ' ' } else { c }).take(most + 1).collect();
    if line.chars().count() <= most { line } else { line.chars().take(most - 3).chain("...".chars()).collect() }
}

/// Quotes a word of a shell command if the shell would change it.
pub(super) fn quote_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@%+=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_shortened_to_one_line() {
        assert_eq!(shorten_text("a\nb", 10), "a b");
        assert_eq!(shorten_text("0123456789", 10), "0123456789");
        assert_eq!(shorten_text("0123456789ä", 10), "0123456...");
    }

    // Rule U15: On a terminal headings are bold and states have colours; elsewhere a table is plain text.
    #[test]
    fn table_is_coloured_only_on_a_terminal() {
        let table = " ORDER  STATUS    \n A-1    COMPLETED \n A-2    ASSIGNED  ";
        assert_eq!(paint_table(table, false), table);
        let painted = paint_table(table, true);
        assert!(painted.starts_with("\u{1b}[1m ORDER"), "{painted:?}");
        assert!(painted.contains("\u{1b}[32mCOMPLETED\u{1b}[0m") && painted.contains(" ASSIGNED "), "{painted:?}");
        let plain = ["\u{1b}[1m", "\u{1b}[32m", "\u{1b}[0m"].iter().fold(painted, |text, code| text.replace(code, ""));
        assert_eq!(plain, table, "no space moves");
    }

    // Rule F25: An error is one line whatever its causes contain, and its control characters are escaped.
    #[test]
    fn error_escapes_text_from_outside() {
        let cause = anyhow::anyhow!("refused\nerror: all is well \u{1b}]52;c;bHM=\u{7}\u{202e}");
        let shown = describe_error(&cause.context("order\t1"));
        assert_eq!(shown, "order\\u{9}1: refused\\u{a}error: all is well \\u{1b}]52;c;bHM=\\u{7}\\u{202e}",);
        let list = ErrorList::new("correct these:", vec!["line 1: \u{1b}[2J".to_owned(), "line 2: a\nb".to_owned()]);
        let shown = describe_error(&anyhow::Error::from(list).context("x.jsonl"));
        assert_eq!(shown, "x.jsonl: correct these:\n  line 1: \\u{1b}[2J\n  line 2: a\\u{a}b");
    }

    #[test]
    fn quoted_word_is_safe_in_a_shell() {
        assert_eq!(quote_word("notify-queue:1:notify:ORD-1:3"), "notify-queue:1:notify:ORD-1:3");
        assert_eq!(quote_word("it's; rm"), "'it'\\''s; rm'");
        assert_eq!(quote_word(""), "''");
    }
}
