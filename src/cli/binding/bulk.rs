//! `dispatchq binding start|pause|resume|stop`. Bindings given by id are changed one by one. Bindings selected by a
//! filter are changed by a plan.

mod planned;

use std::{
    collections::HashSet,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

use chrono::Utc;
use clap::ArgGroup;
use futures_util::{StreamExt, stream};
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

/// Named bindings that are changed at the same time.
const AT_ONCE: usize = 8;

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

/// Results for the named bindings, in the order of the arguments.
#[derive(Default)]
struct BulkReport {
    fates: Vec<(BindingId, BindingFate)>,
    /// The first error that does not concern one binding alone.
    failed: Vec<(BindingId, CallError)>,
}

impl BulkReport {
    /// Returns the bindings for which `pick` returns a text, with that text.
    fn pick<'a>(&'a self, pick: fn(&'a BindingFate) -> Option<&'a String>) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.fates.iter().filter_map(move |(id, fate)| Some((id.as_str(), pick(fate)?.as_str())))
    }

    fn changed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pick(|fate| if let BindingFate::Changed(state) = fate { Some(state) } else { None })
    }

    fn unchanged(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pick(|fate| if let BindingFate::Unchanged(how) = fate { Some(how) } else { None })
    }

    fn refused(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pick(|fate| if let BindingFate::Refused(why) = fate { Some(why) } else { None })
    }
}

impl BulkArgs {
    pub(super) async fn run(self, api: &ApiClient, verb: BindingVerb) -> anyhow::Result<ExitCode> {
        if self.ids.is_empty() { self.run_plan(api, verb).await } else { self.change_named(api, verb).await }
    }

    async fn change_named(&self, api: &ApiClient, verb: BindingVerb) -> anyhow::Result<ExitCode> {
        let mut ids = self.ids.clone();
        let mut seen = HashSet::new();
        ids.retain(|id| seen.insert(id.clone()));
        let total = ids.len();
        let report = self.change_each(api, &ids, verb).await;
        self.print_report(&report, total)?;
        let (done, is_clean) = (report.changed().count(), self.dry_run || report.refused().next().is_none());
        let mut failed = report.failed.into_iter();
        if let Some((id, error)) = failed.next() {
            for (id, error) in failed {
                output::print_note(&format!("{id}: {error}"));
            }
            let past = verb.past_form();
            let rest = format!("at least {done} of {total} were {past}; run the command again for the rest");
            return Err(anyhow::Error::new(error).context(id).context(rest));
        }
        Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Changes up to [`AT_ONCE`] bindings at the same time. After an error that does not concern one binding alone (status 404, 409 or
    /// 410), it starts no further changes and waits for those under way. A change that waits after a 429 is under way.
    async fn change_each(&self, api: &ApiClient, ids: &[BindingId], verb: BindingVerb) -> BulkReport {
        let has_failed = AtomicBool::new(false);
        let mut changes = stream::iter(ids)
            .map(async |id| {
                if has_failed.load(Ordering::Relaxed) {
                    return None;
                }
                let fate = self.change_named_one(api, id, verb).await;
                has_failed.fetch_or(fate.is_err(), Ordering::Relaxed);
                Some((id.clone(), fate))
            })
            .buffered(AT_ONCE);
        let mut report = BulkReport::default();
        while let Some(changed) = changes.next().await {
            match changed {
                Some((id, Ok(fate))) => report.fates.push((id, fate)),
                Some((id, Err(error))) => report.failed.push((id, error)),
                None => {}
            }
        }
        report
    }

    async fn change_named_one(
        &self,
        api: &ApiClient,
        id: &BindingId,
        verb: BindingVerb,
    ) -> Result<BindingFate, CallError> {
        let changed = if self.dry_run {
            preview_change(api, id, &verb.to_command()).await
        } else {
            change_one(api, id, verb).await
        };
        changed.or_else(|error| match error {
            CallError::Refused { status, message, .. } if matches!(status.as_u16(), 404 | 409 | 410) => {
                Ok(BindingFate::Refused(message))
            }
            other => Err(other),
        })
    }

    fn print_report(&self, report: &BulkReport, total: usize) -> anyhow::Result<()> {
        if self.json {
            let refused: Vec<_> = report.refused().map(|(id, why)| json!({ "id": id, "message": why })).collect();
            return output::print_json(&json!({
                "dry_run": self.dry_run,
                "selected": total,
                "changed": report.changed().map(|(id, _)| id).collect::<Vec<_>>(),
                "unchanged": report.unchanged().map(|(id, _)| id).collect::<Vec<_>>(),
                "refused": refused,
            }));
        }
        for (id, fate) in &report.fates {
            match fate {
                BindingFate::Changed(state) => {
                    println!("{id} {} {state}.", if self.dry_run { "would be" } else { "is now" });
                }
                BindingFate::Unchanged(how) => println!("{id} is {how}."),
                BindingFate::Refused(why) => output::print_note(&format!("{id}: {why}")),
            }
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
