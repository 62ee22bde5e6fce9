//! `dispatchq dead requeue|discard`.

use std::process::ExitCode;

use anyhow::bail;
use clap::ArgGroup;
use queue::JobId;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::DeadFilterArgs;
use crate::cli::{
    consent::ConsentArgs,
    job::parse_job_id,
    output,
    remote::{ApiClient, CallError, ListedItems, PageNames, fields::show_field},
};

/// Error code for a job that cannot be requeued.
const STAYS_DEAD: &str = "STAYS_DEAD";
/// Maximum number of jobs that are listed. The rest is counted.
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
    /// Ids of the jobs, for example dispatch:ORD-1:1
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

/// Action on dead jobs, and its wording.
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

/// Results of the action. In a dry run, the expected results.
#[derive(Debug, Default)]
struct DecisionReport {
    /// Number of selected jobs.
    total: usize,
    done: u64,
    not_dead: Vec<String>,
    refused: Vec<RefusedDecision>,
}

/// A job that stays dead.
#[derive(Debug)]
struct RefusedDecision {
    id: String,
    /// Reason as JSON.
    why: Value,
    message: String,
}

impl DecisionReport {
    /// Returns whether the action succeeded for every job. A job that was given by id and is not dead counts as a
    /// failure.
    fn is_clean(&self, named: bool) -> bool {
        self.refused.is_empty() && (self.not_dead.is_empty() || !named)
    }
}

impl RequeueArgs {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        self.which.run(api, DeadJobAction::Requeue).await
    }
}

impl DiscardArgs {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        self.which.run(api, DeadJobAction::Discard).await
    }
}

impl DeadSelectionArgs {
    async fn run(self, api: &ApiClient, deed: DeadJobAction) -> anyhow::Result<ExitCode> {
        let named = !self.ids.is_empty();
        let ids = if named { self.named_ids() } else { self.list_ids(api).await? };
        if ids.is_empty() && !self.json {
            println!("No such dead jobs.");
            return Ok(ExitCode::SUCCESS);
        }
        let question = format!("{} {}?", deed.imperative_form(), count_of_jobs(ids.len() as u64));
        if !named && !self.consent.dry_run && !ids.is_empty() && !self.consent.ask_consent(&question)? {
            bail!("nothing was {}", deed.past_form());
        }
        let reason = if self.consent.dry_run { None } else { api.reason_of_change(self.consent.reason.clone())? };
        let mut report = DecisionReport { total: ids.len(), ..DecisionReport::default() };
        let bar = output::progress_bar(ids.len());
        for id in ids {
            let decided = if self.consent.dry_run {
                preview_decision(api, deed, &id).await
            } else {
                let path = ["admin", "dead", id.as_str(), deed.imperative_form()];
                api.post(&path, &json!({ "reason": reason })).await.map(drop)
            };
            match decided {
                Ok(()) => report.done += 1,
                // Both the action and the preview return these errors.
                Err(error) if error.is_refusal("NOT_DEAD") || error.is_refusal("JOB_NOT_FOUND") => {
                    report.not_dead.push(id);
                }
                Err(CallError::Refused { code, message, mut body, .. }) if code == STAYS_DEAD => {
                    report.refused.push(RefusedDecision { id, why: body["why"].take(), message });
                }
                Err(error) => {
                    self.print_report(deed, named, &report)?;
                    let (done, total) = (report.done, report.total);
                    let past = deed.past_form();
                    let rest =
                        format!("{done} of {total} were {past} before the error; run the command again for the rest");
                    return Err(anyhow::Error::new(error).context(rest));
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.print_report(deed, named, &report)?;
        Ok(if self.consent.dry_run || report.is_clean(named) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn named_ids(&self) -> Vec<String> {
        let mut ids: Vec<_> = self.ids.iter().map(ToString::to_string).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// Returns the ids of all selected dead jobs.
    async fn list_ids(&self, api: &ApiClient) -> Result<Vec<String>, CallError> {
        let query = self.filter.to_query();
        let ListedItems { items, .. } = api.list(&["admin", "dead"], &query, PageNames::of("jobs"), usize::MAX).await?;
        Ok(items.iter().map(|dead: &Value| show_field(dead, "id")).collect())
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

/// Returns the result that the action would have now.
async fn preview_decision(api: &ApiClient, deed: DeadJobAction, id: &str) -> Result<(), CallError> {
    let explained = api.get(&["admin", "dead", id], &[]).await?;
    if deed == DeadJobAction::Requeue && explained["can_requeue"] != true {
        let message = show_field(&explained, "note");
        return Err(CallError::Refused {
            status: StatusCode::CONFLICT,
            code: STAYS_DEAD.to_owned(),
            message,
            body: json!({ "why": { "code": STAYS_DEAD } }),
        });
    }
    Ok(())
}

fn count_of_jobs(count: u64) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}
