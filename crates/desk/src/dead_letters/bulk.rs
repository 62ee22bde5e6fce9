//! Decisions on many dead letters, a few at a time. Each decision runs the same checks as a single one.

use tokio::task::JoinSet;

use crate::dead_letters::decide::DecisionOutcome;
use foundation::error::ServiceError;
use model::decide::requeue::RequeueRefusal;
use queue::JobId;

/// Concurrent decisions; well below the number of Postgres connections of a process.
const IN_FLIGHT: usize = 8;

/// Result of the decisions.
#[derive(Debug, Default)]
pub struct BulkSummary {
    pub done: u64,
    /// Jobs that are not dead now.
    pub not_dead: Vec<JobId>,
    pub refused: Vec<(JobId, RequeueRefusal)>,
    /// Error that ended the run early. Decisions made before it remain.
    pub failed: Option<ServiceError>,
}

/// Decides on each job and calls `after_each`. Starts no further decision after the first failure.
pub async fn decide_each<Fut>(ids: Vec<JobId>, decide: impl Fn(JobId) -> Fut, after_each: impl Fn()) -> BulkSummary
where
    Fut: Future<Output = Result<DecisionOutcome, ServiceError>> + Send + 'static,
{
    let mut summary = BulkSummary::default();
    let mut waiting = ids.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < IN_FLIGHT && summary.failed.is_none() {
            let Some(id) = waiting.next() else { break };
            let decided = decide(id.clone());
            running.spawn(async move { (id, decided.await) });
        }
        let Some(joined) = running.join_next().await else { return summary };
        after_each();
        match joined {
            Ok((_, Ok(DecisionOutcome::Done))) => summary.done += 1,
            Ok((id, Ok(DecisionOutcome::NotDead))) => summary.not_dead.push(id),
            Ok((id, Ok(DecisionOutcome::Refused(refused)))) => summary.refused.push((id, refused)),
            Ok((id, Err(error))) => {
                summary.failed = Some(error.during(format!("the decision on {id} failed")));
            }
            Err(error) => summary.failed = Some(ServiceError::Incomplete(error.to_string())),
        }
    }
}
