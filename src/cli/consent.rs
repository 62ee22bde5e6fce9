//! What all commands that deal with many things at once have in common: `--dry-run` says what would be done, `--reason` is
//! kept with who did it, and without `--yes` a person is asked first. They deal with every page of what is selected.

use std::io::{self, IsTerminal};

use anyhow::ensure;

use super::output;
use model::input::parse_reason;

#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct ConsentArgs {
    /// Why; kept with who did it
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    pub(super) reason: Option<String>,
    /// Only say what would be done
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl ConsentArgs {
    /// Returns whether `question` (as in `requeue 7 jobs?`) is answered with yes, by `--yes` or by a person.
    pub(super) fn ask_consent(&self, question: &str) -> anyhow::Result<bool> {
        ask_person(self.yes, question)
    }
}

/// Returns whether `question` is answered with yes: by `yes`, or by a person at the terminal.
pub(super) fn ask_person(yes: bool, question: &str) -> anyhow::Result<bool> {
    ask_or_advise(yes, question, "Look first with --dry-run, then say --yes")
}

/// As [`ask_person`], for a command that has no dry run.
pub(super) fn ask_at_once(yes: bool, question: &str) -> anyhow::Result<bool> {
    ask_or_advise(yes, question, "To do it without being asked, add --yes")
}

fn ask_or_advise(yes: bool, question: &str, advice: &str) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    ensure!(io::stdin().is_terminal() && io::stderr().is_terminal(), "no terminal to confirm at: {question} {advice}");
    output::print_question(&format!("Really {question}"))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
