//! The only way in which a request changes a binding: load the row, decide, write if the version is unchanged, enqueue
//! the jobs and notify observers.

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

/// Maximum attempts to make a change before the caller is asked to try again. Conflicts are short, so an attempt
/// usually succeeds soon.
const MAX_CONFLICTS: usize = 20;

/// Result of a request to change a binding.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangedBinding {
    /// The change was written. Contains the new row.
    Yes(Box<Binding>),
    /// The binding was already in this state. The text names the state.
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

/// Result of one attempt to change a binding.
enum ChangeAttempt {
    Ended(ChangedBinding),
    /// Another change was written first.
    Conflict,
    /// The change may or may not have been written.
    Unknown(BatchError),
}

/// Changes a binding: decides and writes, retries after a conflict, then enqueues the jobs that the binding must have.
///
/// If the response to the write was lost, the function reads the row and decides once more. A change that was written
/// is then a no-op.
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

/// Enqueues the jobs of a binding after a change. The caller waits for at most `patience`. A failure is logged: the row
/// is committed, and the reconciler enqueues its jobs.
async fn enqueue_jobs(bindings: &Bindings, before: &Binding, after: &Binding, jobs: Vec<NewJob>) {
    crash::reach_point("request", "enqueues");
    let (bindings_of_task, before, after) = (bindings.clone(), before.clone(), after.clone());
    let enqueue = async move {
        if let Err(error) = move_jobs(&bindings_of_task, &before, &after, jobs).await {
            tracing::warn!(%error, "The job of a binding could not be enqueued; the reconciler enqueues it.");
        }
    };
    let enqueued = tokio::spawn(enqueue.in_current_span());
    let _ = tokio::time::timeout(bindings.core.patience, enqueued).await;
}

/// Enqueues the jobs that a binding must have after a change, and removes the job that it no longer has.
///
/// Changes can reach Redis in any order. After the removal, the function therefore reads the row again and enqueues its
/// present job: a later start may have enqueued the same job before the removal. A start after this read enqueues its
/// own job later.
pub async fn move_jobs(
    bindings: &Bindings,
    before: &Binding,
    after: &Binding,
    mut jobs: Vec<NewJob>,
) -> Result<(), ServiceError> {
    let job_of = |row: &Binding| derive(row, row.updated_at).map(|timer| timer.job.id);
    let leaving = if follow::runs_again(before, after) {
        // A run that read the row before the stop may have parked the job in a line since then, possibly in another
        // server's line.
        job_of(after)
    } else {
        job_of(before).filter(|old| follow::leaves_line(before, after) || jobs.iter().all(|job| job.id != *old))
    };
    if let Some(old) = leaving {
        // The removal comes first, because a new job may have the same id.
        bindings.core.store.cancel(&old, &[jobs::queues::BINDING]).await?;
        match bindings.rows.load_binding(&after.id).await {
            Ok(now) => jobs.extend(now.and_then(|now| Some(derive(&now.binding, now.now)?.job))),
            Err(error) => {
                tracing::warn!(%error, "The row of a binding could not be read again; the reconciler enqueues its job.");
            }
        }
    }
    bindings.core.queue().enqueue(&jobs).await?;
    Ok(())
}
