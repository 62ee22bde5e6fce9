//! The one way a binding changes by request: load, decide, write on condition, tell those who follow.

use jobs::BindingId;
use model::binding::{Binding, CommandOutcome, derive};
use tracing::Instrument;

use super::{error::BindingError, follow, owner::new_owner, span};
use crate::{
    capability::Bindings,
    store::{
        BatchError,
        load::LoadedBinding,
        write::{BindingWrite, WriteVerdict},
    },
};
use foundation::{crash, error::ServiceError};
use queue::NewJob;

/// Attempts at a change before its maker is told to try again. Between two others of a binding there is time for one.
const MAX_CONFLICTS: usize = 20;

/// What became of a request to change a binding.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangedBinding {
    /// Written; the row as it now is.
    Yes(Box<Binding>),
    /// It was so already; the text says how.
    No(Box<Binding>, &'static str),
}

impl ChangedBinding {
    pub fn binding(&self) -> &Binding {
        match self {
            Self::Yes(binding) | Self::No(binding, _) => binding,
        }
    }

    pub fn has_changed(&self) -> bool {
        matches!(self, Self::Yes(_))
    }
}

/// What came of one try to change a binding.
enum ChangeAttempt {
    Ended(ChangedBinding),
    /// Another change was quicker.
    Conflict,
    /// It may be written.
    Unknown(BatchError),
}

/// Decides and writes, again whenever another change was quicker, then sees to the jobs that the binding must now have.
///
/// Where the answer to the write was lost, the row is read and decided on once more: what was written is so already.
pub async fn change_binding(
    bindings: &Bindings,
    id: &BindingId,
    mut decide: impl FnMut(&LoadedBinding) -> Result<CommandOutcome, BindingError>,
) -> Result<ChangedBinding, BindingError> {
    let mut read_again = false;
    for _ in 0..MAX_CONFLICTS {
        let loaded = bindings.rows.load_binding(id).await?.ok_or_else(|| BindingError::NotFound(id.clone()))?;
        let span = span::open_span(&loaded.binding, None);
        match attempt_change(bindings, loaded, &mut decide).instrument(span).await? {
            ChangeAttempt::Ended(changed) => return Ok(changed),
            ChangeAttempt::Conflict => {}
            ChangeAttempt::Unknown(_) if !read_again => read_again = true,
            ChangeAttempt::Unknown(error) => return Err(error.into()),
        }
    }
    Err(BindingError::Busy)
}

async fn attempt_change(
    bindings: &Bindings,
    loaded: LoadedBinding,
    decide: &mut impl FnMut(&LoadedBinding) -> Result<CommandOutcome, BindingError>,
) -> Result<ChangeAttempt, BindingError> {
    let change = match decide(&loaded)? {
        CommandOutcome::Write(mut change) => {
            change.record_values(&loaded.binding);
            *change
        }
        CommandOutcome::NoOp(how) => {
            return Ok(ChangeAttempt::Ended(ChangedBinding::No(Box::new(loaded.binding), how)));
        }
        CommandOutcome::Conflict(conflict) => return Err(conflict.into()),
    };
    let owner = new_owner(bindings);
    let write = BindingWrite { change: change.clone(), owner: owner.clone(), call: None };
    match bindings.rows.write_binding(write).await {
        Ok(WriteVerdict::Written { messages }) => {
            let before = &loaded.binding;
            let after = before.apply(&change);
            span::record_change(before, &change, &after);
            follow::announce_change(bindings, before, &change, &after, &owner);
            let jobs = follow::derive_jobs(&change, &after, &messages, loaded.current_time());
            enqueue_jobs(bindings, before, &after, jobs).await;
            Ok(ChangeAttempt::Ended(ChangedBinding::Yes(Box::new(after))))
        }
        Ok(WriteVerdict::Conflict) => Ok(ChangeAttempt::Conflict),
        Err(error) if error.is_outcome_unknown() => Ok(ChangeAttempt::Unknown(error)),
        Err(error) => Err(error.into()),
    }
}

/// Sees to the jobs of a binding after a change of it, for as long as its maker waits. A failure is logged: the row is committed,
/// and the reconciler puts its jobs in.
async fn enqueue_jobs(bindings: &Bindings, before: &Binding, after: &Binding, jobs: Vec<NewJob>) {
    crash::reach_point("request", "enqueues");
    let (bindings_of_task, before, after) = (bindings.clone(), before.clone(), after.clone());
    let enqueue = async move {
        if let Err(error) = move_jobs(&bindings_of_task, &before, &after, jobs).await {
            tracing::warn!(%error, "The job of a binding could not be enqueued; it will be.");
        }
    };
    let enqueued = tokio::spawn(enqueue.in_current_span());
    let _ = tokio::time::timeout(bindings.core.patience, enqueued).await;
}

/// Enqueues the jobs that a binding must have after a change, and takes what it must not have out of its line.
///
/// Changes reach Redis in any order. So after a job was removed the row is asked what it wants by now: a start that was written
/// after this change may have enqueued the same job before. One that is written after the row was asked enqueues it later.
pub async fn move_jobs(
    bindings: &Bindings,
    before: &Binding,
    after: &Binding,
    mut jobs: Vec<NewJob>,
) -> Result<(), ServiceError> {
    let job_of = |row: &Binding| derive(row, row.updated_at).map(|timer| timer.job.id);
    let leaving = if follow::runs_again(before, after) {
        // A run that saw the row before it was stopped may have put the job into the line since, be it of another server.
        job_of(after)
    } else {
        job_of(before).filter(|old| follow::leaves_line(before, after) || jobs.iter().all(|job| job.id != *old))
    };
    if let Some(old) = leaving {
        // First, for it may come back as another of the same id.
        bindings.core.store.cancel(&old, &[jobs::queues::BINDING]).await?;
        match bindings.rows.load_binding(&after.id).await {
            Ok(now) => jobs.extend(now.and_then(|now| Some(derive(&now.binding, now.now)?.job))),
            Err(error) => {
                tracing::warn!(%error, "What a binding wants by now could not be read; its job will be put back.");
            }
        }
    }
    bindings.core.queue().enqueue(&jobs).await?;
    Ok(())
}
