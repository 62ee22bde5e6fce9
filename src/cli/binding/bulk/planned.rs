//! Changes all selected bindings by a plan: the command shows the plan, asks for consent, and runs it.

use std::process::ExitCode;

use anyhow::bail;
use model::binding::BindingVerb;
use serde_json::{Value, json};

use super::BulkArgs;
use crate::cli::{
    consent, output,
    plan::{cancel_plan, drive_plan, list_items, run_plan},
    remote::{ApiClient, fields::show_field},
    server::no_such_server,
};

/// Maximum number of refused bindings that are listed. `--json` lists all.
const MOST_NAMED: usize = 50;

/// Items of a plan by their result. In a dry run, by their expected result.
struct PlannedItems {
    changed: Vec<Value>,
    unchanged: Vec<Value>,
    refused: Vec<Value>,
}

impl BulkArgs {
    pub(super) async fn run_plan(&self, api: &ApiClient, verb: BindingVerb) -> anyhow::Result<ExitCode> {
        let plan = self.make_plan(api, verb).await?;
        let id = show_field(&plan, "id");
        if plan["total"] == 0 && !self.json {
            cancel_plan(api, &id).await?;
            println!("No such bindings.");
            return Ok(ExitCode::SUCCESS);
        }
        if self.dry_run {
            self.print_outcome(api, &plan, verb).await?;
            if !self.json {
                output::print_note(&format!("The ids are stored. Run them within a day: dispatchq plan run {id}"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        if plan["left"] != 0 {
            self.ask_consent(api, &plan, verb).await?;
        }
        let ran = run_plan(api, &id).await?;
        let ended = drive_plan(api, ran).await?["plan"].take();
        let is_clean = self.print_outcome(api, &ended, verb).await?;
        if ended["state"] == "CANCELLED" {
            let who = ended["cancelled_by"].as_str().unwrap_or("someone");
            bail!("plan {id} was cancelled by {who} before its end; the items performed until then stay changed");
        }
        Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Stores a plan for the bindings that match the filter now.
    async fn make_plan(&self, api: &ApiClient, verb: BindingVerb) -> anyhow::Result<Value> {
        let mut filter = json!({ "server_id": self.server, "state": self.state });
        if let Some(members) = filter.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        let wanted = json!({ "filter": filter, "action": verb.as_str(), "reason": self.reason, "dry_run": true });
        match (api.post(&["bindings", "actions"], &wanted).await, &self.server) {
            (Err(error), Some(server)) if error.is_refusal("SERVER_NOT_FOUND") => Err(no_such_server(server)),
            (made, _) => Ok(made?["plan"].take()),
        }
    }

    /// Asks for consent. Cancels the plan if the person does not agree, so that it cannot be run later.
    async fn ask_consent(&self, api: &ApiClient, plan: &Value, verb: BindingVerb) -> anyhow::Result<()> {
        let (id, left) = (show_field(plan, "id"), count_of_left(plan));
        if !self.yes {
            let others = plan["unchanged"].as_u64().unwrap_or_default() + plan["refused"].as_u64().unwrap_or_default();
            output::print_note(&format!("Plan {id}: {left} to {verb}, {others} unchanged or refused."));
        }
        let agreed = consent::ask_person(self.yes, &format!("{verb} {left}?"));
        if !matches!(agreed, Ok(true)) {
            cancel_plan(api, &id).await?;
        }
        if !agreed? {
            bail!("nothing was {}", verb.past_form());
        }
        Ok(())
    }

    /// Prints the results of the items. Returns whether no item was refused.
    async fn print_outcome(&self, api: &ApiClient, plan: &Value, verb: BindingVerb) -> anyhow::Result<bool> {
        let id = show_field(plan, "id");
        // In a dry run, the items that would change are still pending.
        let changed = if self.dry_run { "PENDING" } else { "CHANGED" };
        let items = PlannedItems {
            changed: list_items(api, &id, Some(changed)).await?,
            unchanged: list_items(api, &id, Some("UNCHANGED")).await?,
            refused: list_items(api, &id, Some("REFUSED")).await?,
        };
        if self.json {
            output::print_json(&items.to_json(plan, self.dry_run))?;
        } else {
            items.print(verb, self.dry_run);
        }
        Ok(items.refused.is_empty())
    }
}

impl PlannedItems {
    fn to_json(&self, plan: &Value, dry_run: bool) -> Value {
        let ids = |items: &[Value]| items.iter().map(|item| item["subject_id"].clone()).collect::<Vec<_>>();
        let refused: Vec<_> = self
            .refused
            .iter()
            .map(|item| json!({ "id": item["subject_id"], "error_code": item["error_code"], "message": item["note"] }))
            .collect();
        json!({
            "plan": plan["id"],
            "state": plan["state"],
            "dry_run": dry_run,
            "selected": plan["total"],
            "changed": ids(&self.changed),
            "unchanged": ids(&self.unchanged),
            "refused": refused,
        })
    }

    fn print(&self, verb: BindingVerb, dry_run: bool) {
        let would = if dry_run { "would be " } else { "" };
        println!("{} {would}{}.", count_of_bindings(self.changed.len()), verb.past_form());
        if !self.unchanged.is_empty() {
            println!("{} unchanged.", count_of_bindings(self.unchanged.len()));
        }
        for item in self.refused.iter().take(MOST_NAMED) {
            let why = item["note"].as_str().unwrap_or("refused");
            output::print_note(&format!("{}: {why}", show_field(item, "subject_id")));
        }
        if self.refused.len() > MOST_NAMED {
            output::print_note(&format!("and {} more; all of them: --json", self.refused.len() - MOST_NAMED));
        }
    }
}

/// Returns the number of pending items as text.
fn count_of_left(plan: &Value) -> String {
    count_of_bindings(usize::try_from(plan["left"].as_u64().unwrap_or_default()).unwrap_or_default())
}

fn count_of_bindings(count: usize) -> String {
    if count == 1 { "1 binding".to_owned() } else { format!("{count} bindings") }
}
