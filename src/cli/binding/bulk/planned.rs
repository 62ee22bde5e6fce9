//! All bindings that are selected: by a plan, which is shown, agreed to, and run.

use std::process::ExitCode;

use anyhow::bail;
use model::{
    binding::BindingVerb,
    plan::{Plan, PlanItem, PlanItemState, PlanState},
};
use serde_json::json;
use uuid::Uuid;

use super::{BulkArgs, with_cure};
use crate::cli::{
    consent,
    order::cli_operator,
    output,
    plan::{drive_plan, list_all_items, with_plan_cure},
};
use app::App;
use bindings::{error::BindingError, list::BindingFilter};
use desk::plans::{
    binding_plans, control,
    create::{self, PlanMode},
    error::PlanError,
};
use model::ids::PlanId;

/// Refused bindings that are named; all of them are with `--json`.
const MOST_NAMED: usize = 50;

/// The items of a plan by what became of them, or would.
struct PlannedItems {
    changed: Vec<PlanItem>,
    unchanged: Vec<PlanItem>,
    refused: Vec<PlanItem>,
}

impl BulkArgs {
    pub(super) async fn run_plan(&self, app: &App, verb: BindingVerb) -> anyhow::Result<ExitCode> {
        let author = cli_operator();
        let filter = BindingFilter { server_id: self.server.clone(), account_id: None, state: self.state };
        let draft = binding_plans::draft_plan(&app.core, &filter, verb, self.reason.clone(), &author).await;
        let draft = draft.map_err(|error| match error {
            PlanError::NoServer(id) => with_cure(BindingError::NoServer(id)),
            other => with_plan_cure(other),
        })?;
        if draft.items.is_empty() && !self.json {
            println!("No such bindings.");
            return Ok(ExitCode::SUCCESS);
        }
        let id = PlanId::from_uuid(Uuid::now_v7());
        let plan =
            create::store_draft(&app.core, id, &draft, PlanMode::DryRun, &author).await.map_err(with_plan_cure)?;
        if self.dry_run {
            self.print_outcome(app, &plan, verb).await?;
            if !self.json {
                output::print_note(&format!("The ids are stored. Run them within a day: dispatchq plan run {id}"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        if plan.counts.left() > 0 {
            self.ask_consent(app, &plan, verb).await?;
        }
        let ran = control::run_plan(&app.core, id, &author).await.map_err(with_plan_cure)?;
        let ended = drive_plan(app, ran.plan()).await?;
        let is_clean = self.print_outcome(app, &ended, verb).await?;
        if ended.state == PlanState::Cancelled {
            let who = ended.cancelled_by.as_deref().unwrap_or("another");
            bail!("plan {id} was cancelled by {who} before its end; what is done stays done");
        }
        Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Without consent the plan is cancelled, so that it is run by none.
    async fn ask_consent(&self, app: &App, plan: &Plan, verb: BindingVerb) -> anyhow::Result<()> {
        if !self.yes {
            let (counts, id) = (plan.counts, plan.id);
            let others = counts.unchanged + counts.refused;
            output::print_note(&format!(
                "Plan {id}: {} to {verb}, {others} so already or refused.",
                count_of_left(plan)
            ));
        }
        let question = format!("{verb} {}?", count_of_left(plan));
        let agreed = consent::ask_person(self.yes, &question);
        if !matches!(agreed, Ok(true)) {
            control::cancel_plan(&app.core, plan.id, &cli_operator()).await.map_err(with_plan_cure)?;
        }
        if !agreed? {
            bail!("nothing was {}", verb.past_form());
        }
        Ok(())
    }

    /// Prints what became of the items, or would. Returns whether none was refused.
    async fn print_outcome(&self, app: &App, plan: &Plan, verb: BindingVerb) -> anyhow::Result<bool> {
        // What a dry run leaves to be performed would be changed.
        let changed = if self.dry_run { PlanItemState::Pending } else { PlanItemState::Changed };
        let items = PlannedItems {
            changed: list_all_items(app, plan.id, Some(changed)).await?,
            unchanged: list_all_items(app, plan.id, Some(PlanItemState::Unchanged)).await?,
            refused: list_all_items(app, plan.id, Some(PlanItemState::Refused)).await?,
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
    fn to_json(&self, plan: &Plan, dry_run: bool) -> serde_json::Value {
        let ids = |items: &[PlanItem]| items.iter().map(|item| item.subject_id.clone()).collect::<Vec<_>>();
        let refused: Vec<_> = self
            .refused
            .iter()
            .map(|item| json!({ "id": item.subject_id, "error_code": item.refusal, "message": item.note }))
            .collect();
        json!({
            "plan": plan.id,
            "state": plan.state,
            "dry_run": dry_run,
            "selected": plan.counts.total,
            "changed": ids(&self.changed),
            "unchanged": ids(&self.unchanged),
            "refused": refused,
        })
    }

    fn print(&self, verb: BindingVerb, dry_run: bool) {
        let would = if dry_run { "would be " } else { "" };
        println!("{} {would}{}.", count_of_bindings(self.changed.len()), verb.past_form());
        if !self.unchanged.is_empty() {
            println!("{} so already.", count_of_bindings(self.unchanged.len()));
        }
        for item in self.refused.iter().take(MOST_NAMED) {
            output::print_note(&format!("{}: {}", item.subject_id, item.note.as_deref().unwrap_or("refused")));
        }
        if self.refused.len() > MOST_NAMED {
            output::print_note(&format!("and {} more; all of them: --json", self.refused.len() - MOST_NAMED));
        }
    }
}

/// Items that are yet to be performed, in words.
fn count_of_left(plan: &Plan) -> String {
    count_of_bindings(usize::try_from(plan.counts.left()).unwrap_or_default())
}

fn count_of_bindings(count: usize) -> String {
    if count == 1 { "1 binding".to_owned() } else { format!("{count} bindings") }
}
