//! `dispatchq binding start|pause|resume|stop`. Bindings given by id are changed one by one. Bindings selected by a
//! filter are changed by a plan.

mod planned;

use std::process::ExitCode;

use chrono::Utc;
use clap::ArgGroup;
use model::{
    binding::{
        Binding, BindingCommand, BindingId, BindingState, BindingVerb, CommandOutcome, ServerId, decide_command,
    },
    input::parse_reason,
};
use serde_json::json;

use super::parse_state;
use crate::cli::{
    order::cli_operator,
    output,
    remote::{ApiClient, CallError, fields::show_field},
};

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["ids", "server", "state", "all"]))]
pub(in crate::cli) struct BulkArgs {
    /// Ids of the bindings
    #[arg(value_name = "ID", conflicts_with_all = ["server", "state", "all"])]
    ids: Vec<BindingId>,
    /// All bindings on this server
    #[arg(long, value_name = "ID")]
    server: Option<ServerId>,
    /// All bindings in this state: STOPPED, RUNNING, PAUSED or STOPPING
    #[arg(long, value_parser = parse_state)]
    state: Option<BindingState>,
    /// All bindings
    #[arg(long, conflicts_with_all = ["server", "state"])]
    all: bool,
    /// Reason, kept with the plan and in the history of each binding
    #[arg(long, value_name = "TEXT", value_parser = parse_reason, conflicts_with = "ids")]
    reason: Option<String>,
    /// Print what would change; a selection is stored as a plan that can be run by its id
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[arg(long)]
    json: bool,
}

/// Result of the command for one binding. In a dry run, the expected result.
enum BindingFate {
    /// New state of the binding.
    Changed(String),
    /// The binding was already in the wanted state.
    Unchanged(String),
    Refused(String),
}

/// Results of the command for all bindings.
#[derive(Default)]
struct BulkReport {
    changed: Vec<(BindingId, String)>,
    unchanged: Vec<(BindingId, String)>,
    refused: Vec<(BindingId, String)>,
    failed: Option<anyhow::Error>,
}

impl BulkArgs {
    pub(super) async fn run(self, api: &ApiClient, verb: BindingVerb) -> anyhow::Result<ExitCode> {
        if self.ids.is_empty() { self.run_plan(api, verb).await } else { self.change_named(api, verb).await }
    }

    async fn change_named(&self, api: &ApiClient, verb: BindingVerb) -> anyhow::Result<ExitCode> {
        let mut ids = self.ids.clone();
        ids.sort();
        ids.dedup();
        let total = ids.len();
        let report = self.change_each(api, ids, verb).await;
        self.print_report(&report, total)?;
        if let Some(error) = report.failed {
            let (done, past) = (report.changed.len(), verb.past_form());
            return Err(error.context(format!(
                "{done} of {total} were {past} before the error; run the command again for the rest"
            )));
        }
        Ok(if self.dry_run || report.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Stops at the first error that does not concern one binding alone (status 404, 409 or 410).
    async fn change_each(&self, api: &ApiClient, ids: Vec<BindingId>, verb: BindingVerb) -> BulkReport {
        let mut report = BulkReport::default();
        for id in ids {
            let changed = if self.dry_run {
                preview_change(api, &id, &verb.to_command()).await
            } else {
                change_one(api, &id, verb).await
            };
            let fate = changed.or_else(|error| match error {
                CallError::Refused { status, message, .. } if matches!(status.as_u16(), 404 | 409 | 410) => {
                    Ok(BindingFate::Refused(message))
                }
                other => Err(other),
            });
            match fate {
                Ok(BindingFate::Changed(state)) => report.changed.push((id, state)),
                Ok(BindingFate::Unchanged(how)) => report.unchanged.push((id, how)),
                Ok(BindingFate::Refused(why)) => report.refused.push((id, why)),
                Err(error) => {
                    report.failed = Some(error.into());
                    break;
                }
            }
        }
        report
    }

    fn print_report(&self, report: &BulkReport, total: usize) -> anyhow::Result<()> {
        if self.json {
            let ids = |list: &[(BindingId, String)]| list.iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>();
            let changed: Vec<_> = report.changed.iter().map(|(id, _)| id.to_string()).collect();
            let refused: Vec<_> =
                report.refused.iter().map(|(id, why)| json!({ "id": id.as_str(), "message": why })).collect();
            return output::print_json(&json!({
                "dry_run": self.dry_run,
                "selected": total,
                "changed": changed,
                "unchanged": ids(&report.unchanged),
                "refused": refused,
            }));
        }
        for (id, state) in &report.changed {
            println!("{id} {} {state}.", if self.dry_run { "would be" } else { "is now" });
        }
        for (id, how) in &report.unchanged {
            println!("{id} is {how}.");
        }
        for (id, why) in &report.refused {
            output::print_note(&format!("{id}: {why}"));
        }
        Ok(())
    }
}

async fn change_one(api: &ApiClient, id: &BindingId, verb: BindingVerb) -> Result<BindingFate, CallError> {
    let answer = api.post(&["bindings", id.as_str(), verb.as_str()], &json!({})).await?;
    let state = show_field(&answer["binding"], "state");
    Ok(if answer["changed"] == true {
        BindingFate::Changed(state)
    } else {
        BindingFate::Unchanged(answer["note"].as_str().map_or_else(|| format!("{state} already"), str::to_owned))
    })
}

/// Returns the result that the command would have now.
async fn preview_change(api: &ApiClient, id: &BindingId, command: &BindingCommand) -> Result<BindingFate, CallError> {
    let shown = api.get(&["bindings", id.as_str()], &[]).await?;
    let binding: Binding = serde_json::from_value(shown).map_err(|error| CallError::Unanswered(error.to_string()))?;
    Ok(match decide_command(&binding, command, &cli_operator(), Utc::now()) {
        CommandOutcome::Write(change) => {
            let server = api.get(&["provider-servers", binding.server_id.as_str()], &[]).await?;
            if begins_cycles(command) && server["enabled"] != true {
                let server = &binding.server_id;
                let why =
                    format!("server {server} is disabled; enable it: dispatchq server set {server} --enabled true");
                BindingFate::Refused(why)
            } else {
                BindingFate::Changed(binding.apply(&change).state.to_string())
            }
        }
        CommandOutcome::NoOp(how) => BindingFate::Unchanged(how.to_owned()),
        CommandOutcome::Conflict(conflict) => BindingFate::Refused(conflict.to_string()),
    })
}

fn begins_cycles(command: &BindingCommand) -> bool {
    matches!(command, BindingCommand::Start | BindingCommand::Resume)
}
