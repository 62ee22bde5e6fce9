//! `dispatchq plan` over the API: the workers perform the items, and this process looks how far they are.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{Command, HEADINGS, LOOK_EVERY, NO_PLANS};
use crate::cli::{
    output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{list_items, show_field, show_time},
    },
};
use model::ids::PlanId;

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { state, before, limit, json } => {
                let mut query = Vec::new();
                query.extend(state.map(|state| ("state", state.to_string())));
                query.extend(before.map(|before| ("cursor", before.to_string())));
                let names = PageNames::of("plans");
                let most = usize::try_from(limit)?;
                let ListedItems { items, .. } = api.list(&["admin", "plans"], &query, names, most).await?;
                if json {
                    output::print_json(&items)?;
                } else {
                    output::print_rows(&HEADINGS, items.iter().map(format_plan), NO_PLANS);
                }
            }
            Self::Show { id, items, state, json } => {
                let shown = api.get(&["admin", "plans", &id.to_string()], &[]).await?;
                let mut listed = None;
                if items {
                    let query: Vec<_> = state.map(|state| ("state", state.to_string())).into_iter().collect();
                    let (path, names) = (id.to_string(), PageNames::of("items"));
                    let path = ["admin", "plans", path.as_str(), "items"];
                    listed = Some(api.list(&path, &query, names, usize::MAX).await?.items);
                }
                print_plan(&shown, listed.as_deref(), json)?;
            }
            Self::Run { id, no_wait, json } => {
                let mut ran = api.post(&["admin", "plans", &id.to_string(), "run"], &json!({})).await?;
                while !no_wait && !matches!(ran["plan"]["state"].as_str(), Some("DONE" | "CANCELLED")) {
                    tokio::time::sleep(LOOK_EVERY).await;
                    ran = api.get(&["admin", "plans", &id.to_string()], &[]).await?;
                }
                print_plan(&ran, None, json)?;
                let plan = &ran["plan"];
                let is_clean = plan["refused"] == 0 && plan["state"] != "CANCELLED";
                return Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            Self::Cancel { id, json } => cancel_plan(api, id, json).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn cancel_plan(api: &ApiClient, id: PlanId, json: bool) -> anyhow::Result<()> {
    let cancelled = api.post(&["admin", "plans", &id.to_string(), "cancel"], &json!({})).await?;
    if json {
        return output::print_json(&cancelled["plan"]);
    }
    println!("{id} is cancelled; {} items were not performed.", show_field(&cancelled["plan"], "left"));
    Ok(())
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
        ("run", format!("{} by {}", show_time(plan, "started_at"), show_field(plan, "run_by"))),
        ("cancelled by", show_field(plan, "cancelled_by")),
        ("ended", show_time(plan, "ended_at")),
    ] {
        output::print_escaped(&format!("{name:<13} {value}"));
    }
    for refusal in list_items(shown, "refusals") {
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
