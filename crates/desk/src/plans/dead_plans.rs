//! Plans of dead jobs: all that match a filter are requeued or discarded.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use model::plan::{Plan, PlanItem, PlanKind};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    create::PlanDraft,
    error::{PlanError, PlanRunError},
};
use crate::{
    capability::Desk,
    dead_letters::{
        bulk,
        decide::{self, DecisionAuthor, DecisionOutcome},
        walk::{self, DeadSelection},
    },
};
use foundation::{core::Core, dead_letter_rows, error::ServiceError};
use model::decide::requeue::RequeueRefusal;
use queue::JobId;

/// Maximum items of one plan. The preview queries Redis and Postgres for each item within one request.
const MOST_ITEMS: usize = 10_000;
/// Note of an item whose job is no longer dead when the item runs.
const NOT_DEAD: &str = "no longer dead";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum DeadJobVerb {
    /// Requeues the job, if its order or message still needs it.
    Requeue,
    Discard,
}

impl DeadJobVerb {
    pub const ALL: [Self; 2] = [Self::Requeue, Self::Discard];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    async fn preview(self, core: Core, job: JobId) -> Result<DecisionOutcome, ServiceError> {
        match self {
            Self::Requeue => decide::preview_requeue(&core, &job).await,
            Self::Discard => decide::preview_discard(&core, &job).await,
        }
    }

    async fn perform(self, desk: &Desk, job: &JobId, by: &DecisionAuthor) -> Result<DecisionOutcome, ServiceError> {
        match self {
            Self::Requeue => decide::requeue_job(desk, job, by).await,
            Self::Discard => decide::discard_job(&desk.core, job, by).await,
        }
    }
}

/// Filter for dead jobs. Absent fields match all, so `{}` selects every dead job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadJobFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Text that the error must contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Minimum seconds since the death.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_sec: Option<u32>,
}

impl DeadJobFilter {
    /// Returns the selection of dead letters, or `None` if the queue does not exist.
    pub fn to_selection(&self) -> Option<DeadSelection> {
        let queue = match &self.queue {
            Some(name) => Some(jobs::queues::ALL.into_iter().find(|queue| *queue == name.as_str())?),
            None => None,
        };
        let older_than = Duration::from_secs(self.older_than_sec.unwrap_or_default().into());
        Some(DeadSelection { queue, error: self.error.clone(), older_than })
    }
}

/// Finds the dead jobs that match the filter now, with the expected result for each. `selection` must come from the
/// filter.
pub async fn draft_plan(
    core: &Core,
    filter: &DeadJobFilter,
    selection: &DeadSelection,
    verb: DeadJobVerb,
    reason: Option<String>,
) -> Result<PlanDraft, PlanError> {
    let ids = walk::list_first_ids(core, selection, MOST_ITEMS + 1).await?;
    if ids.len() > MOST_ITEMS {
        let narrowed_by = "a queue, a text of the error, or a longer time that they have been dead (older_than_sec)";
        return Err(PlanError::TooMany { most: MOST_ITEMS, narrowed_by });
    }
    let foreseen = bulk::decide_each(ids.clone(), |id| verb.preview(core.clone(), id), || {}).await;
    if let Some(error) = foreseen.failed {
        return Err(error.into());
    }
    let refused: HashMap<JobId, RequeueRefusal> = foreseen.refused.into_iter().collect();
    let not_dead: HashSet<JobId> = foreseen.not_dead.into_iter().collect();
    let items = ids.iter().filter(|id| !not_dead.contains(*id)).map(|id| match refused.get(id) {
        Some(refusal) => PlanItem::refused(id.as_str(), &refusal_code(refusal), refusal.to_string()),
        None => PlanItem::pending(id.as_str()),
    });
    let items = items.collect();
    Ok(PlanDraft { kind: PlanKind::DeadJobs, action: json!(verb), filter: json!(filter), reason, items })
}

/// Returns the error code for programs.
fn refusal_code(refusal: &RequeueRefusal) -> String {
    json!(refusal)["code"].as_str().unwrap_or("REFUSED").to_owned()
}

/// Runs one item for the person who started the plan.
pub(super) async fn perform_item(desk: &Desk, plan: &Plan, subject: &str) -> Result<Option<PlanItem>, PlanRunError> {
    let verb: DeadJobVerb =
        serde_json::from_value(plan.action.clone()).map_err(|error| PlanRunError::Unreadable(error.to_string()))?;
    let job = match JobId::parse(subject) {
        Ok(job) => job,
        Err(error) => return Ok(Some(PlanItem::refused(subject, "INVALID", error.to_string()))),
    };
    let note = plan.history_note();
    // A process may have died between the decision and its record. If the job has died again since, that death is not
    // touched.
    if was_carried_out(&desk.core, &job, &note).await? {
        return Ok(Some(PlanItem::changed(subject)));
    }
    let by = DecisionAuthor { who: plan.runner(), why: Some(note.clone()) };
    let item = match verb.perform(desk, &job, &by).await? {
        DecisionOutcome::Done => PlanItem::changed(subject),
        DecisionOutcome::NotDead => {
            // Another process may just have decided on the job for this plan.
            let was_ours = was_carried_out(&desk.core, &job, &note).await?;
            if was_ours { PlanItem::changed(subject) } else { PlanItem::unchanged(subject, NOT_DEAD) }
        }
        DecisionOutcome::Refused(refusal) => PlanItem::refused(subject, &refusal_code(&refusal), refusal.to_string()),
    };
    Ok(Some(item))
}

/// Returns whether a decision on the job with this note was made and completed. The decision is written first, so a
/// process that died afterwards may have left the job dead.
async fn was_carried_out(core: &Core, job: &JobId, note: &str) -> Result<bool, ServiceError> {
    let deaths = dead_letter_rows::list_deaths(&core.db, job.as_str()).await?;
    let noted = deaths.iter().filter(|death| death.resolved_why.as_deref() == Some(note));
    let noted: Vec<u64> = noted.map(|death| death.died_at.timestamp_millis().unsigned_abs()).collect();
    if noted.is_empty() {
        return Ok(false);
    }
    let found = core.queue().find_job(job, &jobs::queues::ALL).await?;
    let died_ms = found.and_then(|found| found.dead).map(|dead| dead.died_ms);
    Ok(died_ms.is_none_or(|died_ms| !noted.contains(&died_ms)))
}
