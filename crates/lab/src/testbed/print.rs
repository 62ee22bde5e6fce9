//! Output of benchmarks and replays. A closed stdout (`| head`) is not an error.

use std::{
    fmt::Display,
    io::{self, Write},
};

use anyhow::Context;

/// Prints the report as text. For programs, prints one line of JSON on stdout and the text on stderr.
pub(crate) fn print_report(text: &str, json: &impl Display, for_programs: bool) -> anyhow::Result<()> {
    print_line(text, for_programs)?;
    if for_programs { write_line(&mut io::stdout(), json) } else { Ok(()) }
}

/// Prints a line for people. If stdout is for programs, the line goes to stderr.
pub(crate) fn print_line(text: &str, for_programs: bool) -> anyhow::Result<()> {
    if for_programs { write_line(&mut io::stderr(), &text) } else { write_line(&mut io::stdout(), &text) }
}

fn write_line(stream: &mut impl Write, text: &impl Display) -> anyhow::Result<()> {
    match writeln!(stream, "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot print the report"),
        _ => Ok(()),
    }
}
