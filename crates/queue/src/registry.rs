//! Maps a job kind to its typed handler.
//!
//! A job that can never be decoded is dead at once. A job of an unregistered kind comes from a newer producer and is
//! snoozed. A run that exceeds the job's timeout is aborted and counts as a failed try. A panic counts as a failed try,
//! too; the runtime catches it.

use std::{collections::HashMap, fmt, pin::Pin, sync::Arc, time::Duration};

use tracing::warn;

use crate::{
    job::{Delivery, Job},
    outcome::Outcome,
    retry::RetryPolicy,
    store::{LeasedJob, SettleRequest},
};

/// Delay of a job of an unknown kind, until a worker that knows the kind may take it.
const UNKNOWN_KIND_DELAY: Duration = Duration::from_secs(60);

type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// All handlers of a process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Registry {
    handlers: HashMap<&'static str, RegisteredHandler>,
}

#[derive(Clone)]
struct RegisteredHandler {
    queue: &'static str,
    retry: RetryPolicy,
    perform: Arc<dyn Fn(Delivery) -> Running + Send + Sync>,
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the handler of jobs `J`.
    ///
    /// # Panics
    ///
    /// Panics if the kind is already registered. A kind has one handler and one queue.
    #[must_use]
    pub fn register<J, F, Fut>(mut self, handler: F) -> Self
    where
        J: Job,
        F: Fn(J, Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let perform = move |delivery: Delivery| -> Running {
            let handler = handler.clone();
            Box::pin(async move {
                let job = match J::decode(&delivery.id, delivery.payload.clone()) {
                    Ok(job) => job,
                    Err(error) => return Outcome::Dead(error.to_string()),
                };
                match tokio::time::timeout(J::TIMEOUT, handler(job, delivery)).await {
                    Ok(outcome) => outcome,
                    Err(_) => Outcome::Retry(format!("timed out after {:?}", J::TIMEOUT)),
                }
            })
        };
        let registered = RegisteredHandler { queue: J::QUEUE, retry: J::RETRY, perform: Arc::new(perform) };
        if let Some(earlier) = self.handlers.insert(J::KIND, registered) {
            panic!("job kind '{}' is registered twice, for {} and for {}", J::KIND, earlier.queue, J::QUEUE);
        }
        self
    }

    /// Returns the kind and queue of every registered job, sorted by kind.
    pub fn kinds(&self) -> Vec<(&'static str, &'static str)> {
        let mut kinds: Vec<_> = self.handlers.iter().map(|(kind, handler)| (*kind, handler.queue)).collect();
        kinds.sort_unstable();
        kinds
    }

    /// Runs the handler of one delivery. A panic of the handler passes through. Dropping the future aborts the handler.
    pub async fn perform(&self, delivery: Delivery) -> Outcome {
        let Some(handler) = self.handlers.get(delivery.id.kind()) else {
            warn!(job.id = %delivery.id, queue = delivery.queue, "This process has no handler for this kind of job; it is snoozed, because a newer process may have one.");
            return Outcome::Snooze { delay: UNKNOWN_KIND_DELAY };
        };
        (handler.perform)(delivery).await
    }

    /// Returns the settle request for an outcome. The retry policy of the job's kind decides about retries.
    pub fn settle(&self, leased: &LeasedJob, outcome: Outcome) -> SettleRequest {
        let handler = self.handlers.get(leased.delivery.id.kind());
        let retry = handler.map_or(RetryPolicy::DEFAULT, |handler| handler.retry);
        SettleRequest::new(leased, outcome, &retry, rand::random())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("kinds", &self.kinds()).finish()
    }
}
