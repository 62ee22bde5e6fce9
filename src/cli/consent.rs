//! Options of all commands that change many things at once. `--dry-run` prints the changes, `--reason` is kept in the
//! record with the actor. Without `--yes` the command asks for confirmation. It changes every page of the selection.

use std::io::{self, IsTerminal};

use anyhow::ensure;

use super::output;
use model::input::parse_reason;

#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct ConsentArgs {
    /// Reason, kept in the record with the actor
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    pub(super) reason: Option<String>,
    /// Print what would be done, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl ConsentArgs {
    /// Returns whether `--yes` or a person at the terminal answers `question` (such as `requeue 7 jobs?`) with yes.
    pub(super) fn ask_consent(&self, question: &str) -> anyhow::Result<bool> {
        ask_person(self.yes, question)
    }
}

/// Returns whether `yes` is set or a person at the terminal answers `question` with yes.
pub(super) fn ask_person(yes: bool, question: &str) -> anyhow::Result<bool> {
    ask_or_advise(yes, question, "Preview with --dry-run, then add --yes")
}

/// Asks like [`ask_person`], for a command without a dry run.
pub(super) fn ask_at_once(yes: bool, question: &str) -> anyhow::Result<bool> {
    ask_or_advise(yes, question, "To skip the confirmation, add --yes")
}

fn ask_or_advise(yes: bool, question: &str, advice: &str) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    ensure!(
        io::stdin().is_terminal() && io::stderr().is_terminal(),
        "no terminal for the confirmation: {question} {advice}"
    );
    output::print_question(&format!("Really {question}"))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
