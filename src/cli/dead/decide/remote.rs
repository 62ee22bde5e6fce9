//! `dispatchq dead requeue|discard` over the API, job by job.

use std::process::ExitCode;

use anyhow::bail;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{
    DeadJobAction, DeadSelectionArgs, DecisionReport, DiscardArgs, RefusedDecision, RequeueArgs, count_of_jobs,
};
use crate::cli::{
    output,
    remote::{ApiClient, CallError, ListedItems, PageNames, fields::show_field, given_reason},
};

/// The error code of a job that cannot have another life.
const STAYS_DEAD: &str = "STAYS_DEAD";

impl RequeueArgs {
    pub(in crate::cli::dead) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        self.which.run_over_api(api, DeadJobAction::Requeue).await
    }
}

impl DiscardArgs {
    pub(in crate::cli::dead) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        self.which.run_over_api(api, DeadJobAction::Discard).await
    }
}

impl DeadSelectionArgs {
    async fn run_over_api(self, api: &ApiClient, deed: DeadJobAction) -> anyhow::Result<ExitCode> {
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
        let reason = if self.consent.dry_run { String::new() } else { given_reason(self.consent.reason.clone())? };
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
                // Of a decision, and of a preview.
                Err(error) if error.is_refusal("NOT_DEAD") || error.is_refusal("JOB_NOT_FOUND") => {
                    report.not_dead.push(id);
                }
                Err(CallError::Refused { code, message, .. }) if code == STAYS_DEAD => {
                    report.refused.push(RefusedDecision { id, why: json!(code), message });
                }
                Err(error) => {
                    self.print_report(deed, named, &report)?;
                    let (done, total) = (report.done, report.total);
                    let past = deed.past_form();
                    let rest = format!("{done} of {total} were {past}; what is done stays done: run it again");
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

    /// The ids of all dead jobs that are selected.
    async fn list_ids(&self, api: &ApiClient) -> Result<Vec<String>, CallError> {
        let query = self.filter.to_query();
        let ListedItems { items, .. } = api.list(&["admin", "dead"], &query, PageNames::of("jobs"), usize::MAX).await?;
        Ok(items.iter().map(|dead: &Value| show_field(dead, "id")).collect())
    }
}

/// What the decision would come to now.
async fn preview_decision(api: &ApiClient, deed: DeadJobAction, id: &str) -> Result<(), CallError> {
    let explained = api.get(&["admin", "dead", id], &[]).await?;
    if deed == DeadJobAction::Requeue && explained["can_requeue"] != true {
        let message = show_field(&explained, "note");
        return Err(CallError::Refused { status: StatusCode::CONFLICT, code: STAYS_DEAD.to_owned(), message });
    }
    Ok(())
}
