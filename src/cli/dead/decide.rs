//! `dispatchq dead requeue|discard`.

mod remote;

use std::process::ExitCode;

use anyhow::bail;
use clap::ArgGroup;
use serde_json::{Value, json};

use super::DeadFilterArgs;
use crate::cli::{consent::ConsentArgs, job::parse_job_id, order::cli_operator, output};
use app::App;
use desk::dead_letters::{
    bulk::{self, BulkSummary},
    decide::{self, DecisionAuthor, DecisionOutcome},
    walk,
};
use foundation::error::ServiceError;
use queue::JobId;

/// Jobs named one by one; the rest is counted.
const MOST_NAMED: usize = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dispatchq dead requeue dispatch:ORD-1:1 --reason \"routing is back\"\n  \
    dispatchq dead requeue --queue notify-queue --error \"status 503\" --dry-run\n  \
    dispatchq dead requeue --queue notify-queue --error \"status 503\" --reason \"they are back\" --yes")]
pub(in crate::cli) struct RequeueArgs {
    #[command(flatten)]
    which: DeadSelectionArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dispatchq dead discard timeout:ORD-1:3 --reason \"the order was cancelled\"\n  \
    dispatchq dead discard --older-than 7days --dry-run\n  \
    dispatchq dead discard --older-than 7days --reason \"too late\" --yes")]
pub(in crate::cli) struct DiscardArgs {
    #[command(flatten)]
    which: DeadSelectionArgs,
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["ids", "queue", "error", "older_than", "all"]))]
struct DeadSelectionArgs {
    /// These, for example dispatch:ORD-1:1
    #[arg(value_name = "ID", value_parser = parse_job_id, conflicts_with_all = ["queue", "error", "older_than", "all"])]
    ids: Vec<JobId>,
    #[command(flatten)]
    filter: DeadFilterArgs,
    /// All dead jobs
    #[arg(long, conflicts_with_all = ["queue", "error", "older_than"])]
    all: bool,
    #[command(flatten)]
    consent: ConsentArgs,
    #[arg(long)]
    json: bool,
}

/// What is to be done with them, and how that is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeadJobAction {
    Requeue,
    Discard,
}

impl DeadJobAction {
    fn imperative_form(self) -> &'static str {
        match self {
            Self::Requeue => "requeue",
            Self::Discard => "discard",
        }
    }

    fn past_form(self) -> &'static str {
        match self {
            Self::Requeue => "requeued",
            Self::Discard => "discarded",
        }
    }
}

/// What became of dead jobs, or would.
#[derive(Debug, Default)]
struct DecisionReport {
    /// Jobs that were selected.
    total: usize,
    done: u64,
    not_dead: Vec<String>,
    refused: Vec<RefusedDecision>,
}

/// A job that stays dead.
#[derive(Debug)]
struct RefusedDecision {
    id: String,
    /// As JSON has it.
    why: Value,
    message: String,
}

impl DecisionReport {
    fn new(total: usize, summary: &BulkSummary) -> anyhow::Result<Self> {
        let refused = summary.refused.iter().map(|(id, why)| {
            let (why, message) = (serde_json::to_value(why)?, why.to_string());
            Ok::<_, anyhow::Error>(RefusedDecision { id: id.to_string(), why, message })
        });
        Ok(Self {
            total,
            done: summary.done,
            not_dead: summary.not_dead.iter().map(ToString::to_string).collect(),
            refused: refused.collect::<anyhow::Result<_>>()?,
        })
    }

    /// Returns whether every job is as it was wanted. One that is named and not dead is not.
    fn is_clean(&self, named: bool) -> bool {
        self.refused.is_empty() && (self.not_dead.is_empty() || !named)
    }
}

impl RequeueArgs {
    pub(super) async fn run(self, app: &App) -> anyhow::Result<ExitCode> {
        self.which.run(app, DeadJobAction::Requeue).await
    }
}

impl DiscardArgs {
    pub(super) async fn run(self, app: &App) -> anyhow::Result<ExitCode> {
        self.which.run(app, DeadJobAction::Discard).await
    }
}

impl DeadSelectionArgs {
    async fn run(self, app: &App, deed: DeadJobAction) -> anyhow::Result<ExitCode> {
        let named = !self.ids.is_empty();
        let mut ids = self.ids.clone();
        ids.sort();
        ids.dedup();
        if !named {
            debug_assert!(self.all || !self.filter.is_empty());
            ids = walk::list_ids(&app.core, &self.filter.to_selection()).await?;
            if ids.is_empty() && !self.json {
                println!("No such dead jobs.");
                return Ok(ExitCode::SUCCESS);
            }
            let question = format!("{} {}?", deed.imperative_form(), count_of_jobs(ids.len() as u64));
            if !self.consent.dry_run && !ids.is_empty() && !self.consent.ask_consent(&question)? {
                bail!("nothing was {}", deed.past_form());
            }
        }
        let by = DecisionAuthor { who: cli_operator(), why: self.consent.reason.clone() };
        let total = ids.len();
        let bar = output::progress_bar(total);
        let summary = bulk::decide_each(
            ids,
            |id| decide_one(app.clone(), deed, self.consent.dry_run, id, by.clone()),
            || bar.inc(1),
        )
        .await;
        bar.finish_and_clear();
        let report = DecisionReport::new(total, &summary)?;
        self.print_report(deed, named, &report)?;
        if let Some(error) = summary.failed {
            let rest =
                format!("{} of {total} were {}; what is done stays done: run it again", summary.done, deed.past_form());
            return Err(anyhow::Error::new(error).context(rest));
        }
        Ok(if self.consent.dry_run || report.is_clean(named) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print_report(&self, deed: DeadJobAction, named: bool, report: &DecisionReport) -> anyhow::Result<()> {
        if self.json {
            let refused = report.refused.iter();
            let refused: Vec<_> = refused.map(|r| json!({ "id": r.id, "why": r.why, "message": r.message })).collect();
            return output::print_json(&json!({
                "dry_run": self.consent.dry_run,
                "selected": report.total,
                deed.past_form(): report.done,
                "not_dead": report.not_dead,
                "refused": refused,
            }));
        }
        let were = if self.consent.dry_run { "would be " } else { "" };
        println!("{} {were}{}.", count_of_jobs(report.done), deed.past_form());
        if !named && !report.not_dead.is_empty() {
            println!("{} no longer dead.", count_of_jobs(report.not_dead.len() as u64));
        }
        let not_dead = report.not_dead.iter().filter(|_| named);
        let left = not_dead.map(|id| (id, format!("it is not dead; see: dispatchq job show {id}")));
        let mut left: Vec<_> = left.chain(report.refused.iter().map(|r| (&r.id, r.message.clone()))).collect();
        left.sort();
        if !left.is_empty() {
            println!(
                "{} left as {}:",
                count_of_jobs(left.len() as u64),
                if left.len() == 1 { "it is" } else { "they are" }
            );
        }
        for (id, why) in left.iter().take(MOST_NAMED) {
            output::print_escaped(&format!("  {id}: {why}"));
        }
        if left.len() > MOST_NAMED {
            println!("  and {} more; all of them: --json", left.len() - MOST_NAMED);
        }
        Ok(())
    }
}

async fn decide_one(
    app: App,
    deed: DeadJobAction,
    dry_run: bool,
    id: JobId,
    by: DecisionAuthor,
) -> Result<DecisionOutcome, ServiceError> {
    match (deed, dry_run) {
        (DeadJobAction::Requeue, false) => decide::requeue_job(&app.desk, &id, &by).await,
        (DeadJobAction::Requeue, true) => decide::preview_requeue(&app.core, &id).await,
        (DeadJobAction::Discard, false) => decide::discard_job(&app.core, &id, &by).await,
        (DeadJobAction::Discard, true) => decide::preview_discard(&app.core, &id).await,
    }
}

fn count_of_jobs(count: u64) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}
