//! `dispatchq dead requeue|discard`.

use std::process::ExitCode;

use anyhow::bail;
use clap::ArgGroup;
use queue::JobId;
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
    /// Ids of the requeued or discarded jobs.
    done: Vec<String>,
    not_dead: Vec<String>,
    refused: Vec<RefusedDecision>,
}

/// Result of one decision, or of its preview.
enum JobFate {
    Done,
    NotDead,
    Refused { why: Value, message: String },
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
    fn add(&mut self, id: String, fate: JobFate) {
        match fate {
            JobFate::Done => self.done.push(id),
            JobFate::NotDead => self.not_dead.push(id),
            JobFate::Refused { why, message } => self.refused.push(RefusedDecision { id, why, message }),
        }
    }

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
        let reason = if self.consent.dry_run { None } else { api.reason_of_change(self.consent.reason.clone())? };
        let named = !self.ids.is_empty();
        let ids = if named { self.named_ids() } else { self.list_ids(api).await? };
        if ids.is_empty() && !self.json {
            println!("No such dead jobs.");
            return Ok(ExitCode::SUCCESS);
        }
        let question = format!("{} {}?", deed.imperative_form(), count_of_jobs(ids.len()));
        if !named && !self.consent.dry_run && !ids.is_empty() && !self.consent.ask_consent(&question)? {
            bail!("nothing was {}", deed.past_form());
        }
        let mut report = DecisionReport { total: ids.len(), ..DecisionReport::default() };
        let bar = output::progress_bar(ids.len());
        for id in ids {
            let decided = if self.consent.dry_run {
                preview_decision(api, deed, &id).await
            } else {
                decide_on_job(api, deed, &id, reason.as_deref()).await
            };
            match decided {
                Ok(fate) => report.add(id, fate),
                Err(error) => {
                    self.print_report(deed, named, &report)?;
                    let (done, total) = (report.done.len(), report.total);
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
                deed.past_form(): report.done.len(),
                "jobs": report.done,
                "not_dead": report.not_dead,
                "refused": refused,
            }));
        }
        self.print_done(deed, &report.done);
        if !named && !report.not_dead.is_empty() {
            println!("{} no longer dead.", count_of_jobs(report.not_dead.len()));
        }
        let not_dead = report.not_dead.iter().filter(|_| named);
        let left = not_dead.map(|id| (id, format!("it is not dead; see: dispatchq job show {id}")));
        let mut left: Vec<_> = left.chain(report.refused.iter().map(|r| (&r.id, r.message.clone()))).collect();
        left.sort();
        if !left.is_empty() {
            println!("{} left as {}:", count_of_jobs(left.len()), if left.len() == 1 { "it is" } else { "they are" });
        }
        print_some(left.iter().map(|(id, why)| format!("{id}: {why}")), left.len());
        Ok(())
    }

    /// Prints how many jobs were decided on. A dry run names them.
    fn print_done(&self, deed: DeadJobAction, done: &[String]) {
        let (count, past) = (count_of_jobs(done.len()), deed.past_form());
        if !self.consent.dry_run {
            println!("{count} {past}.");
        } else if done.is_empty() {
            println!("{count} would be {past}.");
        } else {
            println!("{count} would be {past}:");
            print_some(done.iter().cloned(), done.len());
        }
    }
}

/// Prints the first lines and the number of the others.
fn print_some(lines: impl Iterator<Item = String>, total: usize) {
    for line in lines.take(MOST_NAMED) {
        output::print_escaped(&format!("  {line}"));
    }
    if total > MOST_NAMED {
        println!("  and {} more; all of them: --json", total - MOST_NAMED);
    }
}

/// Requeues or discards one job.
async fn decide_on_job(
    api: &ApiClient,
    deed: DeadJobAction,
    id: &str,
    reason: Option<&str>,
) -> Result<JobFate, CallError> {
    match api.post(&["admin", "dead", id, deed.imperative_form()], &json!({ "reason": reason })).await {
        Ok(_) => Ok(JobFate::Done),
        Err(error) if is_not_dead(&error) => Ok(JobFate::NotDead),
        Err(CallError::Refused { code, message, mut body, .. }) if code == STAYS_DEAD => {
            Ok(JobFate::Refused { why: body["why"].take(), message })
        }
        Err(error) => Err(error),
    }
}

/// Returns what [`decide_on_job`] would do now.
async fn preview_decision(api: &ApiClient, deed: DeadJobAction, id: &str) -> Result<JobFate, CallError> {
    match api.get(&["admin", "dead", id], &[]).await {
        Ok(mut explained) if deed == DeadJobAction::Requeue && explained["can_requeue"] != true => {
            let message = show_field(&explained, "note");
            Ok(JobFate::Refused { why: explained["refusal"].take(), message })
        }
        Ok(_) => Ok(JobFate::Done),
        Err(error) if is_not_dead(&error) => Ok(JobFate::NotDead),
        Err(error) => Err(error),
    }
}

/// Returns whether the error of a decision or of a preview says that the job is not dead.
fn is_not_dead(error: &CallError) -> bool {
    error.is_refusal("NOT_DEAD") || error.is_refusal("JOB_NOT_FOUND")
}

fn count_of_jobs(count: usize) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}
