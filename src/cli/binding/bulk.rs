//! `dispatchq binding start|pause|resume|stop`: of bindings that are named, one by one, or of all that are selected, by a plan.

mod planned;
mod remote;

use std::process::ExitCode;

use clap::ArgGroup;
use model::{
    binding::{BindingCommand, BindingId, BindingState, BindingVerb, CommandOutcome, ServerId, decide_command},
    input::parse_reason,
};
use serde_json::json;
use tokio::task::JoinSet;

use super::{parse_state, with_cure};
use crate::cli::{order::cli_operator, output};
use app::App;
use bindings::{change::ChangedBinding, error::BindingError, registry::RedisWorkerRegistry};

/// Bindings changed at the same time: their writes share statements and commits.
const AT_ONCE: usize = 32;

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["ids", "server", "state", "all"]))]
pub(in crate::cli) struct BulkArgs {
    /// These
    #[arg(value_name = "ID", conflicts_with_all = ["server", "state", "all"])]
    ids: Vec<BindingId>,
    /// All on this server
    #[arg(long, value_name = "ID")]
    server: Option<ServerId>,
    /// All in this state: STOPPED, RUNNING, PAUSED or STOPPING
    #[arg(long, value_parser = parse_state)]
    state: Option<BindingState>,
    /// All bindings
    #[arg(long, conflicts_with_all = ["server", "state"])]
    all: bool,
    /// Why; kept with the plan and in the history of each binding
    #[arg(long, value_name = "TEXT", value_parser = parse_reason, conflicts_with = "ids")]
    reason: Option<String>,
    /// Only say what would be done; of all that are selected it is stored as a plan, to be run by its id
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[arg(long)]
    json: bool,
}

/// What became of one binding, or would.
enum BindingFate {
    Changed(BindingState),
    /// It was so already.
    Unchanged(String),
    Refused(String),
}

/// What became of many.
#[derive(Default)]
struct BulkReport {
    changed: Vec<(BindingId, BindingState)>,
    unchanged: Vec<(BindingId, String)>,
    refused: Vec<(BindingId, String)>,
    failed: Option<anyhow::Error>,
}

impl BulkArgs {
    pub(super) async fn run(self, app: &App, verb: BindingVerb) -> anyhow::Result<ExitCode> {
        if self.ids.is_empty() { self.run_plan(app, verb).await } else { self.change_named(app, verb).await }
    }

    async fn change_named(&self, app: &App, verb: BindingVerb) -> anyhow::Result<ExitCode> {
        let mut ids = self.ids.clone();
        ids.sort();
        ids.dedup();
        let total = ids.len();
        let report = self.change_each(app, ids, &verb.to_command()).await;
        self.print_report(&report, total)?;
        if let Some(error) = report.failed {
            let (done, past) = (report.changed.len(), verb.past_form());
            return Err(error.context(format!("{done} of {total} were {past}; what is done stays done: run it again")));
        }
        Ok(if self.dry_run || report.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Stops at the first that fails for another reason than the binding's own.
    async fn change_each(&self, app: &App, ids: Vec<BindingId>, command: &BindingCommand) -> BulkReport {
        let mut report = BulkReport::default();
        for page in ids.chunks(AT_ONCE) {
            let mut running = JoinSet::new();
            for id in page.iter().cloned() {
                let (app, command, dry_run) = (app.clone(), command.clone(), self.dry_run);
                running.spawn(async move {
                    let fate = if dry_run {
                        preview_change(&app, &id, &command).await
                    } else {
                        change_one(&app, &id, &command).await
                    };
                    (id, fate)
                });
            }
            for (id, fate) in running.join_all().await {
                match fate {
                    Ok(BindingFate::Changed(state)) => report.changed.push((id, state)),
                    Ok(BindingFate::Unchanged(how)) => report.unchanged.push((id, how)),
                    Ok(BindingFate::Refused(why)) => report.refused.push((id, why)),
                    Err(error) => report.failed = Some(error),
                }
            }
            if report.failed.is_some() {
                break;
            }
        }
        report.changed.sort();
        report.unchanged.sort();
        report.refused.sort();
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

async fn change_one(app: &App, id: &BindingId, command: &BindingCommand) -> anyhow::Result<BindingFate> {
    match RedisWorkerRegistry::new(app.bindings.clone(), cli_operator()).command(id, command).await {
        Ok(ChangedBinding::Yes(binding)) => Ok(BindingFate::Changed(binding.state)),
        Ok(ChangedBinding::No(_, how)) => Ok(BindingFate::Unchanged(how.to_owned())),
        Err(error @ (BindingError::Batch(_) | BindingError::Database(_))) => Err(error.into()),
        Err(refused) => Ok(BindingFate::Refused(with_cure(refused).to_string())),
    }
}

/// What the change would come to now.
async fn preview_change(app: &App, id: &BindingId, command: &BindingCommand) -> anyhow::Result<BindingFate> {
    let Some(loaded) = app.bindings.rows.load_binding(id).await? else {
        return Ok(BindingFate::Refused(with_cure(BindingError::NotFound(id.clone())).to_string()));
    };
    Ok(match decide_command(&loaded.binding, command, &cli_operator(), loaded.now) {
        CommandOutcome::Write(_) if begins_cycles(command) && !loaded.server.enabled => {
            BindingFate::Refused(with_cure(BindingError::ServerDisabled(loaded.server.id)).to_string())
        }
        CommandOutcome::Write(change) => BindingFate::Changed(loaded.binding.apply(&change).state),
        CommandOutcome::NoOp(how) => BindingFate::Unchanged(how.to_owned()),
        CommandOutcome::Conflict(conflict) => BindingFate::Refused(conflict.to_string()),
    })
}

fn begins_cycles(command: &BindingCommand) -> bool {
    matches!(command, BindingCommand::Start | BindingCommand::Resume)
}
