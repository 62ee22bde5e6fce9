//! Settles each lease with the handler's result.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use apalis_core::{
    error::{AbortError, BoxDynError, DeferredError, RetryAfterError},
    task::Task,
};
use serde::Serialize;
use tower_layer::Layer;
use tower_service::Service;
use tracing::warn;

use super::{config::QueueConfig, stored_result::StoredResult};
use crate::{
    outcome::Outcome,
    retry::RetryPolicy,
    shards::Shards,
    supervisor::{FinishedJob, ResultSender, TicketedJob},
};

/// Lease of a task, as the worker has it.
#[derive(Debug, Clone)]
pub(super) struct Delivered {
    pub(super) work: TicketedJob,
    pub(super) results: ResultSender,
}

impl Delivered {
    /// Ends the lease with this outcome.
    pub(super) fn settle(self, outcome: Outcome, retry: Option<RetryPolicy>, duration: Duration) {
        self.results.send(FinishedJob { work: self.work, outcome, duration, retry });
    }
}

/// Layer that settles each task of a [`QueueStorage`](super::QueueStorage). apalis adds it around all layers of the user.
///
/// A task whose handler succeeds is done. `AbortError` makes it dead. After `RetryAfterError` it runs again after the
/// error's delay, after `DeferredError` at once, and after any other error by the retry policy. Each of these failures
/// spends a try; after the last one the task is dead.
#[derive(Debug, Clone)]
pub struct SettleLayer {
    shards: Shards,
    retry: RetryPolicy,
    keep_results: Option<Duration>,
}

impl SettleLayer {
    pub(super) fn new(shards: Shards, config: &QueueConfig) -> Self {
        Self { shards, retry: config.retry, keep_results: config.keep_results }
    }

    /// Stores the response before the lease ends, so that a caller that finds the task done finds its result, too. A
    /// result that cannot be stored is lost: the task is not repeated for it.
    async fn keep_result(&self, delivered: &Delivered, attempt: usize, response: &impl Serialize) {
        let Some(time) = self.keep_results else { return };
        let id = &delivered.work.leased.delivery.id;
        let stored = match StoredResult::new(attempt, response) {
            Ok(result) => Box::pin(result.store(&self.shards, id, time)).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = stored {
            warn!(job.id = %id, error, "The result of the task could not be stored; callers that wait for it do not receive it.");
        }
    }

    /// Returns the outcome of a failed run, and the policy of its next try.
    fn outcome_of(&self, error: &BoxDynError, max_attempts: Option<usize>) -> (Outcome, RetryPolicy) {
        let most = max_attempts.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        let retry = RetryPolicy { max_tries: most.unwrap_or(self.retry.max_tries), ..self.retry };
        let text = error.to_string();
        if error.is::<AbortError>() {
            return (Outcome::Dead(text), retry);
        }
        let delay = match error.downcast_ref::<RetryAfterError>() {
            Some(after) => Some(after.get_duration()),
            None => error.is::<DeferredError>().then_some(Duration::ZERO),
        };
        let retry = match delay {
            Some(delay) => RetryPolicy { initial: delay, max: delay, multiplier: 1.0, jitter: 0.0, ..retry },
            None => retry,
        };
        (Outcome::Retry(text), retry)
    }
}

impl<S> Layer<S> for SettleLayer {
    type Service = SettleService<S>;

    fn layer(&self, inner: S) -> SettleService<S> {
        SettleService { inner, layer: self.clone() }
    }
}

/// Service of [`SettleLayer`].
#[derive(Debug, Clone)]
pub struct SettleService<S> {
    inner: S,
    layer: SettleLayer,
}

impl<S, Args> Service<Task<Args>> for SettleService<S>
where
    S: Service<Task<Args>>,
    S::Response: Serialize + Send + Sync + 'static,
    S::Error: Into<BoxDynError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxDynError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxDynError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxDynError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, task: Task<Args>) -> Self::Future {
        let ctx = task.ctx().clone();
        let layer = self.layer.clone();
        let begun = Instant::now();
        let run = self.inner.call(task);
        Box::pin(async move {
            let ended = run.await.map_err(Into::into);
            // A task from another backend has no lease here.
            let Some(delivered) = ctx.data().get::<Delivered>().cloned() else { return ended };
            match &ended {
                Ok(response) => {
                    layer.keep_result(&delivered, ctx.attempt(), response).await;
                    delivered.settle(Outcome::done(), None, begun.elapsed());
                }
                Err(error) => {
                    let (outcome, retry) = layer.outcome_of(error, ctx.max_attempts());
                    delivered.settle(outcome, Some(retry), begun.elapsed());
                }
            }
            ended
        })
    }
}
