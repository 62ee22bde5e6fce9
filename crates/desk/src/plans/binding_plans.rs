//! Plans of bindings: one command for all bindings that match a filter.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use jobs::BindingId;
use model::{
    actor::Actor,
    binding::{Binding, BindingCommand, BindingVerb, CommandOutcome, ServerId},
    plan::{Plan, PlanItem, PlanKind},
};
use serde_json::json;

use super::{
    create::PlanDraft,
    error::{PlanError, PlanRunError},
};
use crate::capability::Desk;
use bindings::{
    change::ChangedBinding,
    commands,
    error::BindingError,
    list::{self, BindingFilter},
    store::servers,
};
use foundation::{core::Core, db};

/// Maximum items of one plan. The preview of an item needs only its row.
const MOST_ITEMS: usize = 100_000;
/// Bindings read at a time.
const PAGE: i64 = 500;
/// Refusal code of an item that Postgres rejected; the log has the details.
const INTERNAL: &str = "INTERNAL";
/// Refusal code of an item whose row another version has written.
const UNREADABLE: &str = "UNREADABLE";

/// Finds the bindings that match the filter now, with the expected result of the command for each.
pub async fn draft_plan(
    core: &Core,
    filter: &BindingFilter,
    verb: BindingVerb,
    reason: Option<String>,
    author: &Actor,
) -> Result<PlanDraft, PlanError> {
    if let Some(server) = &filter.server_id
        && servers::find_server(&core.db, server).await?.is_none()
    {
        return Err(PlanError::NoServer(server.clone()));
    }
    let disabled: HashSet<ServerId> = servers::list_disabled(&core.db).await?.into_iter().collect();
    let now = db::database_now(&core.db).await?;
    let command = verb.to_command();
    let mut items = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = list::list_bindings(core, filter, after.as_deref(), PAGE).await?;
        let foresee = |row: &Binding| foresee_item(row, !disabled.contains(&row.server_id), &command, author, now);
        items.extend(page.rows.iter().map(foresee));
        items.extend(page.unreadable.iter().map(|row| PlanItem::refused(&row.id, UNREADABLE, row.error.clone())));
        if items.len() > MOST_ITEMS {
            return Err(PlanError::TooMany { most: MOST_ITEMS, narrowed_by: "a server or a state" });
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(PlanDraft { kind: PlanKind::Bindings, action: json!(verb), filter: json!(filter), reason, items })
}

/// Returns the expected result of the command. An item that would change nothing is not run later either.
fn foresee_item(
    row: &Binding,
    is_server_enabled: bool,
    command: &BindingCommand,
    author: &Actor,
    now: DateTime<Utc>,
) -> PlanItem {
    let id = row.id.as_str();
    match commands::decide_on_server(row, is_server_enabled, command, author, now) {
        Ok(CommandOutcome::Write(_)) => PlanItem::pending(id),
        Ok(CommandOutcome::NoOp(how)) => PlanItem::unchanged(id, how),
        Ok(CommandOutcome::Conflict(conflict)) => PlanItem::refused(id, conflict.error_code(), conflict.to_string()),
        Err(error) => PlanItem::refused(id, error.refusal_code().unwrap_or(INTERNAL), error.to_string()),
    }
}

/// Runs one item for the person who started the plan. Returns `None` if the binding changes too quickly; the item then
/// stays pending.
pub(super) async fn perform_item(desk: &Desk, plan: &Plan, subject: &str) -> Result<Option<PlanItem>, PlanRunError> {
    let verb: BindingVerb =
        serde_json::from_value(plan.action.clone()).map_err(|error| PlanRunError::Unreadable(error.to_string()))?;
    let id = match subject.parse::<BindingId>() {
        Ok(id) => id,
        Err(error) => return Ok(Some(PlanItem::refused(subject, "INVALID", error.to_string()))),
    };
    let note = plan.history_note();
    // A process may have died between the change and its record. If others have undone the change since, it is not
    // repeated.
    if list::has_noted_event(&desk.core, &id, &note).await? {
        return Ok(Some(PlanItem::changed(subject)));
    }
    match commands::command_with_note(&desk.bindings, &id, &verb.to_command(), &plan.runner(), Some(&note)).await {
        Ok(ChangedBinding::Yes(_)) => Ok(Some(PlanItem::changed(subject))),
        Ok(ChangedBinding::No(_, how)) => {
            // Another process may just have changed the binding for this plan.
            let was_ours = list::has_noted_event(&desk.core, &id, &note).await?;
            Ok(Some(if was_ours { PlanItem::changed(subject) } else { PlanItem::unchanged(subject, how) }))
        }
        Err(BindingError::Busy) => Ok(None),
        Err(error) => match error.refusal_code() {
            Some(code) => Ok(Some(PlanItem::refused(subject, code, error.to_string()))),
            None if error.database_error().is_some_and(|error| !db::is_transient(error)) => {
                tracing::error!(plan_id = %plan.id, binding_id = %id, %error, "Postgres rejected an item of a plan; the plan continues.");
                Ok(Some(PlanItem::refused(subject, INTERNAL, "internal error; the log has the details")))
            }
            None => Err(error.into()),
        },
    }
}
