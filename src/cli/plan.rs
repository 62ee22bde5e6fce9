//! `dispatchq plan list|show|run|cancel`: mass actions by their id, whatever they are about.

mod remote;

use std::{process::ExitCode, time::Duration};

use anyhow::anyhow;
use serde_json::json;

use super::{
    order::cli_operator,
    output::{self, format_time, or_dash, progress_bar},
    words::parse_word,
};
use app::App;
use desk::plans::{
    control::{self, ChangedPlan},
    create,
    error::PlanError,
    run_plan::{self, PlanStep},
    store::{self, RefusalCount},
};
use model::ids::PlanId;
use model::plan::{Plan, PlanConflict, PlanItem, PlanItemState, PlanState};

/// Rows read at a time.
const PAGE: i64 = 500;
/// How far a plan is, is looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const HEADINGS: [&str; 11] =
    ["PLAN", "ACTION", "STATE", "ITEMS", "LEFT", "CHANGED", "UNCHANGED", "REFUSED", "MADE BY", "MADE", "RUN BY"];
const NO_PLANS: &str = "No such plans. Make one, as by: dispatchq binding stop --all --dry-run";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Plans, the newest first
    List {
        /// Only in this state: PLANNED, RUNNING, DONE or CANCELLED
        #[arg(long, value_parser = parse_plan_state)]
        state: Option<PlanState>,
        /// Only those made before this one
        #[arg(long, value_name = "ID")]
        before: Option<PlanId>,
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// One plan: who made it, how far it is, and why items were refused
    #[command(after_help = "Examples:\n  dispatchq plan show 01937c3e-8f00-7000-8000-000000000001\n  \
        dispatchq plan show 01937c3e-8f00-7000-8000-000000000001 --items --state REFUSED")]
    Show {
        id: PlanId,
        /// Its items, too: the exact ids
        #[arg(long)]
        items: bool,
        /// Only items of this state: PENDING, CHANGED, UNCHANGED or REFUSED
        #[arg(long, requires = "items", value_parser = parse_item_state)]
        state: Option<PlanItemState>,
        #[arg(long)]
        json: bool,
    },
    /// Run a plan, once, and wait for its end; exit 1 if an item was refused
    Run {
        id: PlanId,
        /// Leave it to the workers
        #[arg(long)]
        no_wait: bool,
        #[arg(long)]
        json: bool,
    },
    /// Let no other item of a plan begin; what was done stays done
    Cancel {
        id: PlanId,
        #[arg(long)]
        json: bool,
    },
}

fn parse_plan_state(text: &str) -> Result<PlanState, String> {
    parse_word(text, &PlanState::ALL)
}

fn parse_item_state(text: &str) -> Result<PlanItemState, String> {
    parse_word(text, &PlanItemState::ALL)
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { state, before, limit, json } => {
                let rows = store::list_plans(&app.core.db, state, before, i64::from(limit)).await?;
                if json {
                    output::print_json(&rows)?;
                } else {
                    print_list(rows);
                }
            }
            Self::Show { id, items, state, json } => {
                let plan = create::find_plan(&app.core, id).await.map_err(with_plan_cure)?;
                let items = if items { Some(list_all_items(&app, id, state).await?) } else { None };
                print_plan(&app, &plan, items, json).await?;
            }
            Self::Run { id, no_wait, json } => {
                let ran = control::run_plan(&app.core, id, &cli_operator()).await.map_err(with_plan_cure)?;
                let plan = if no_wait { ran.plan().clone() } else { drive_plan(&app, ran.plan()).await? };
                print_plan(&app, &plan, None, json).await?;
                let is_clean = plan.counts.refused == 0 && plan.state != PlanState::Cancelled;
                return Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            Self::Cancel { id, json } => {
                let changed = control::cancel_plan(&app.core, id, &cli_operator()).await.map_err(with_plan_cure)?;
                if json {
                    output::print_json(changed.plan())?;
                } else {
                    let already = if matches!(changed, ChangedPlan::No(..)) { " already" } else { "" };
                    println!("{id} is cancelled{already}; {} items were not performed.", changed.plan().counts.left());
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The error with what to do about it.
pub(super) fn with_plan_cure(error: PlanError) -> anyhow::Error {
    match error {
        PlanError::NotFound(id) => anyhow!("no plan {id}, or retention has removed it; see: dispatchq plan list"),
        PlanError::Conflict(conflict @ PlanConflict::Running { .. }) => {
            anyhow!("{conflict}; see how far it is: dispatchq plan show ID")
        }
        other => other.into(),
    }
}

/// Performs the items of a plan beside the workers, at the pace that holds for all, until the plan has ended. If this process
/// ends before, the workers go on.
pub(super) async fn drive_plan(app: &App, plan: &Plan) -> anyhow::Result<Plan> {
    let bar = progress_bar(usize::try_from(plan.counts.total).unwrap_or_default());
    let mut current = plan.clone();
    while !current.state.is_final() {
        bar.set_position(u64::from((current.counts.total - current.counts.left()).unsigned_abs()));
        match run_plan::run_batch(&app.desk, plan.id).await {
            Ok(PlanStep::Performed(after)) => current = after.plan,
            Ok(PlanStep::NotYet(pause)) => {
                tokio::time::sleep(pause.min(LOOK_EVERY)).await;
                current = create::find_plan(&app.core, plan.id).await?;
            }
            Ok(PlanStep::Over) => current = create::find_plan(&app.core, plan.id).await?,
            Err(error) => {
                let id = plan.id;
                return Err(anyhow::Error::new(error)
                    .context(format!("plan {id} is not done; the workers go on: dispatchq plan show {id}")));
            }
        }
    }
    bar.finish_and_clear();
    Ok(current)
}

/// Every item of a plan in this state, by id. `None`: in any.
pub(super) async fn list_all_items(
    app: &App,
    id: PlanId,
    state: Option<PlanItemState>,
) -> anyhow::Result<Vec<PlanItem>> {
    let mut items: Vec<PlanItem> = Vec::new();
    loop {
        let after = items.last().map_or("", |item| item.subject_id.as_str());
        let page = store::list_items(&app.core.db, id, state, after, PAGE).await?;
        if page.is_empty() {
            return Ok(items);
        }
        items.extend(page);
    }
}

fn print_list(rows: Vec<Plan>) {
    let rows = rows.into_iter().map(|plan| {
        [
            plan.id.to_string(),
            action_words(&plan),
            plan.state.to_string(),
            plan.counts.total.to_string(),
            plan.counts.left().to_string(),
            plan.counts.changed.to_string(),
            plan.counts.unchanged.to_string(),
            plan.counts.refused.to_string(),
            plan.created_by,
            format_time(plan.created_at),
            or_dash(plan.run_by),
        ]
    });
    output::print_rows(&HEADINGS, rows, NO_PLANS);
}

/// What is done to what, as in `stop bindings`.
fn action_words(plan: &Plan) -> String {
    let action = plan.action.as_str().map_or_else(|| plan.action.to_string(), str::to_owned);
    format!("{action} {}", plan.kind)
}

async fn print_plan(app: &App, plan: &Plan, items: Option<Vec<PlanItem>>, as_json: bool) -> anyhow::Result<()> {
    let refusals = store::count_refusals(&app.core.db, plan.id).await?;
    if as_json {
        let mut shown = json!({ "plan": plan, "refusals": refusals });
        if let Some(items) = items {
            shown["items"] = json!(items);
        }
        return output::print_json(&shown);
    }
    for (name, value) in [
        ("plan", plan.id.to_string()),
        ("action", action_words(plan)),
        ("filter", plan.filter.to_string()),
        ("reason", or_dash(plan.reason.as_ref())),
        ("state", plan.state.to_string()),
        ("items", plan.counts.total.to_string()),
        ("left", plan.counts.left().to_string()),
        ("changed", plan.counts.changed.to_string()),
        ("unchanged", plan.counts.unchanged.to_string()),
        ("refused", plan.counts.refused.to_string()),
        ("made", format!("{} by {}", format_time(plan.created_at), plan.created_by)),
        ("run", or_dash(plan.started_at.map(|at| format!("{} by {}", format_time(at), or_dash(plan.run_by.as_ref()))))),
        ("cancelled by", or_dash(plan.cancelled_by.as_ref())),
        ("ended", or_dash(plan.ended_at.map(format_time))),
    ] {
        output::print_escaped(&format!("{name:<13} {value}"));
    }
    for RefusalCount { refusal, count, example } in refusals {
        output::print_escaped(&format!("{count} refused: {refusal}: {}", or_dash(example)));
    }
    if let Some(items) = items {
        let rows = items.into_iter().map(|item| {
            [item.subject_id, item.state.to_string(), or_dash(item.done_at.map(format_time)), or_dash(item.note)]
        });
        output::print_rows(&["ITEM", "STATE", "DONE", "NOTE"], rows, "No such items.");
    }
    Ok(())
}
