//! `dispatchq plan list|show|run|cancel`: plans of all kinds, by their id.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use serde_json::{Value, json};

use super::{
    output::{self, progress_bar},
    remote::{
        ApiClient, CallError, ListedItems, PageNames,
        fields::{self, show_field, show_time},
    },
    words::parse_word,
};
use model::ids::PlanId;
use model::plan::{PlanItemState, PlanState};

/// Path of plans below `/api/v1`.
const PLANS: [&str; 2] = ["admin", "plans"];
/// Maximum pause before a plan is polled again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const HEADINGS: [&str; 11] =
    ["PLAN", "ACTION", "STATE", "ITEMS", "LEFT", "CHANGED", "UNCHANGED", "REFUSED", "MADE BY", "MADE", "RUN BY"];
const NO_PLANS: &str = "No such plans. Create one, for example: dispatchq binding stop --all --dry-run";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List plans, newest first
    List {
        /// Only plans in this state: PLANNED, RUNNING, DONE or CANCELLED
        #[arg(long, value_parser = parse_plan_state)]
        state: Option<PlanState>,
        /// Only plans created before this one
        #[arg(long, value_name = "ID")]
        before: Option<PlanId>,
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// Show a plan: who created it, its progress, and why items were refused
    #[command(after_help = "Examples:\n  dispatchq plan show 01937c3e-8f00-7000-8000-000000000001\n  \
        dispatchq plan show 01937c3e-8f00-7000-8000-000000000001 --items --state REFUSED")]
    Show {
        id: PlanId,
        /// Also print the items, with their ids
        #[arg(long)]
        items: bool,
        /// Only items in this state: PENDING, CHANGED, UNCHANGED or REFUSED
        #[arg(long, requires = "items", value_parser = parse_item_state)]
        state: Option<PlanItemState>,
        #[arg(long)]
        json: bool,
    },
    /// Run a plan and wait for its end; exit 1 if an item was refused. A plan runs only once
    Run {
        id: PlanId,
        /// Return at once; workers perform the items
        #[arg(long)]
        no_wait: bool,
        #[arg(long)]
        json: bool,
    },
    /// Cancel a plan: no further item starts, and finished items stay changed
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
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { state, before, limit, json } => {
                let mut query = Vec::new();
                query.extend(state.map(|state| ("state", state.to_string())));
                query.extend(before.map(|before| ("cursor", before.to_string())));
                let most = usize::try_from(limit)?;
                let ListedItems { items, .. } = api.list(&PLANS, &query, PageNames::of("plans"), most).await?;
                if json {
                    output::print_json(&items)?;
                } else {
                    output::print_rows(&HEADINGS, items.iter().map(format_plan), NO_PLANS);
                }
            }
            Self::Show { id, items, state, json } => {
                let id = id.to_string();
                let shown = api.get(&path_of(&id), &[]).await?;
                let state = state.map(PlanItemState::as_str);
                let items = if items { Some(list_items(api, &id, state).await?) } else { None };
                print_plan(&shown, items.as_deref(), json)?;
            }
            Self::Run { id, no_wait, json } => {
                let ran = run_plan(api, &id.to_string()).await?;
                let ended = if no_wait { ran } else { drive_plan(api, ran).await? };
                print_plan(&ended, None, json)?;
                let plan = &ended["plan"];
                let is_clean = plan["refused"] == 0 && plan["state"] != "CANCELLED";
                return Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            Self::Cancel { id, json } => {
                let cancelled = cancel_plan(api, &id.to_string()).await?;
                let plan = &cancelled["plan"];
                if json {
                    output::print_json(plan)?;
                } else {
                    let already = if cancelled["note"].is_null() { "" } else { " already" };
                    println!("{id} is cancelled{already}; {} items were not performed.", show_field(plan, "left"));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn path_of(id: &str) -> [&str; 3] {
    ["admin", "plans", id]
}

/// Starts a plan.
pub(super) async fn run_plan(api: &ApiClient, id: &str) -> Result<Value, CallError> {
    api.post(&[&path_of(id)[..], &["run"]].concat(), &json!({})).await
}

/// Cancels a plan. Its pending items do not start.
pub(super) async fn cancel_plan(api: &ApiClient, id: &str) -> Result<Value, CallError> {
    api.post(&[&path_of(id)[..], &["cancel"]].concat(), &json!({})).await
}

/// Performs items of a plan until the plan ends, in parallel with the workers and at the pace set for all. If this
/// process dies, the workers continue. Returns the plan in the format of the API.
pub(super) async fn drive_plan(api: &ApiClient, ran: Value) -> anyhow::Result<Value> {
    let mut shown = ran;
    let id = show_field(&shown["plan"], "id");
    let total = usize::try_from(shown["plan"]["total"].as_u64().unwrap_or_default())?;
    let bar = progress_bar(total);
    while !matches!(shown["plan"]["state"].as_str(), Some("DONE" | "CANCELLED")) {
        let left = shown["plan"]["left"].as_u64().unwrap_or_default();
        bar.set_position((total as u64).saturating_sub(left));
        let path = [&path_of(&id)[..], &["perform"]].concat();
        let performed = api.post(&path, &json!({})).await;
        shown = performed
            .with_context(|| format!("plan {id} has not ended; the workers continue: dispatchq plan show {id}"))?;
        if let Some(pause) = shown["wait_ms"].as_u64() {
            tokio::time::sleep(Duration::from_millis(pause).min(LOOK_EVERY)).await;
        }
    }
    bar.finish_and_clear();
    Ok(shown)
}

/// Returns all items of a plan by id. With `state`, only items in that state.
pub(super) async fn list_items(api: &ApiClient, id: &str, state: Option<&str>) -> Result<Vec<Value>, CallError> {
    let query: Vec<_> = state.map(|state| ("state", state.to_owned())).into_iter().collect();
    let path = [&path_of(id)[..], &["items"]].concat();
    Ok(api.list(&path, &query, PageNames::of("items"), usize::MAX).await?.items)
}

fn format_plan(plan: &Value) -> [String; 11] {
    [
        show_field(plan, "id"),
        format!("{} {}", show_field(plan, "action"), show_field(plan, "kind")),
        show_field(plan, "state"),
        show_field(plan, "total"),
        show_field(plan, "left"),
        show_field(plan, "changed"),
        show_field(plan, "unchanged"),
        show_field(plan, "refused"),
        show_field(plan, "created_by"),
        show_time(plan, "created_at"),
        show_field(plan, "run_by"),
    ]
}

fn print_plan(shown: &Value, items: Option<&[Value]>, as_json: bool) -> anyhow::Result<()> {
    let plan = &shown["plan"];
    if as_json {
        let mut said = json!({ "plan": plan, "refusals": shown["refusals"] });
        if let Some(items) = items {
            said["items"] = json!(items);
        }
        return output::print_json(&said);
    }
    for (name, value) in [
        ("plan", show_field(plan, "id")),
        ("action", format!("{} {}", show_field(plan, "action"), show_field(plan, "kind"))),
        ("filter", show_field(plan, "filter")),
        ("reason", show_field(plan, "reason")),
        ("state", show_field(plan, "state")),
        ("items", show_field(plan, "total")),
        ("left", show_field(plan, "left")),
        ("changed", show_field(plan, "changed")),
        ("unchanged", show_field(plan, "unchanged")),
        ("refused", show_field(plan, "refused")),
        ("made", format!("{} by {}", show_time(plan, "created_at"), show_field(plan, "created_by"))),
        ("run", describe_run(plan)),
        ("cancelled by", show_field(plan, "cancelled_by")),
        ("ended", show_time(plan, "ended_at")),
    ] {
        output::print_escaped(&format!("{name:<13} {value}"));
    }
    for refusal in fields::list_items(shown, "refusals") {
        let (count, why, example) =
            (show_field(refusal, "count"), show_field(refusal, "error_code"), show_field(refusal, "example"));
        output::print_escaped(&format!("{count} refused: {why}: {example}"));
    }
    if let Some(items) = items {
        let rows = items.iter().map(|item| {
            [
                show_field(item, "subject_id"),
                show_field(item, "state"),
                show_time(item, "done_at"),
                show_field(item, "note"),
            ]
        });
        output::print_rows(&["ITEM", "STATE", "DONE", "NOTE"], rows, "No such items.");
    }
    Ok(())
}

/// Describes when a plan was started and by whom. Returns a dash before the start.
fn describe_run(plan: &Value) -> String {
    if plan["started_at"].is_null() {
        return "-".to_owned();
    }
    format!("{} by {}", show_time(plan, "started_at"), show_field(plan, "run_by"))
}
