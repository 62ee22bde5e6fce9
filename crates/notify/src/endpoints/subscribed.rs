//! Keeps the subscriptions in memory up to date.
//!
//! Every process reads the number of the latest change from Postgres every 400 ms and reads all endpoints when the number
//! has changed. A new endpoint therefore gets events within a second, and a change of an order runs no statement for it.
//! If the last read is older than [`MAX_AGE`], a write reads them first, so a process that was stopped or cut off loses no
//! step of an endpoint that was created or resumed meanwhile. While Postgres is unavailable, nothing is written.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, TimeDelta, Utc};
use model::messages::{
    ProducerEvent,
    subscriptions::{EndpointsByProducer, EventSubscription, Subscriptions},
};
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{EndpointId, EndpointState, owners::EndpointOwners};
use foundation::core::Core;
use settings::Config;

const LOOK_EVERY: Duration = Duration::from_millis(400);
/// Maximum age of the subscriptions that a write uses.
const MAX_AGE: TimeDelta = TimeDelta::seconds(3);

/// Subscriptions of this process, with those that the configuration declares. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct SubscribedEndpoints {
    subscriptions: Subscriptions,
    declared: Arc<EndpointsByProducer>,
    owners: EndpointOwners,
    /// Number of the change that was read last. One reload runs at a time, so an older one cannot replace a newer one.
    revision: Arc<Mutex<Option<i64>>>,
    reads: Arc<RwLock<Reads>>,
}

#[derive(Debug, Default)]
struct Reads {
    /// Start of the last successful read. `None` in programs that never read the endpoints, such as benchmarks.
    succeeded: Option<DateTime<Utc>>,
    /// Start of the last read, and whether it succeeded.
    last: Option<(Instant, bool)>,
}

#[derive(sqlx::FromRow)]
struct CreatedEndpoint {
    id: EndpointId,
    producer: String,
    events: Vec<String>,
    state: EndpointState,
}

impl CreatedEndpoint {
    fn to_subscription(&self) -> EventSubscription {
        let events = if self.events.is_empty() {
            ProducerEvent::ALL.into()
        } else {
            // Skips types that only a newer version knows.
            self.events.iter().filter_map(|event| ProducerEvent::of_message(event)).collect()
        };
        EventSubscription { channel: self.id.to_channel(), events }
    }
}

impl SubscribedEndpoints {
    pub(crate) fn new(subscriptions: &Subscriptions, declared: EndpointsByProducer, owners: EndpointOwners) -> Self {
        Self {
            subscriptions: subscriptions.clone(),
            declared: Arc::new(declared),
            owners,
            revision: Arc::default(),
            reads: Arc::default(),
        }
    }

    /// Reads the endpoints again if one of them has changed. Returns whether one had.
    pub async fn reload_if_changed(&self, core: &Core) -> Result<bool, sqlx::Error> {
        let mut known = self.revision.lock().await;
        self.reload(core, &mut known).await
    }

    /// Reads the endpoints like [`reload_if_changed`](Self::reload_if_changed) if the last read is older than [`MAX_AGE`].
    /// A write calls this function before it decides which endpoints get its steps. All writes that wait for one read
    /// share its result, so a slow Postgres delays each of them by at most two reads.
    ///
    /// # Errors
    /// Fails if Postgres does. The write must not be made then.
    pub async fn ensure_fresh(&self, core: &Core) -> Result<(), sqlx::Error> {
        if self.is_fresh(core) {
            return Ok(());
        }
        let asked = Instant::now();
        let mut known = self.revision.lock().await;
        let last = self.reads.read().last.filter(|(began, _)| *began >= asked);
        match last {
            Some((_, true)) => Ok(()),
            // The caller that made this read got the cause.
            Some((_, false)) => Err(sqlx::Error::PoolTimedOut),
            None if self.is_fresh(core) => Ok(()),
            None => self.reload(core, &mut known).await.map(drop),
        }
    }

    /// Returns whether the last read is at most [`MAX_AGE`] old.
    fn is_fresh(&self, core: &Core) -> bool {
        let read_at = self.reads.read().succeeded;
        read_at.is_none_or(|at| (TimeDelta::zero()..=MAX_AGE).contains(&(core.clock.now() - at)))
    }

    async fn reload(&self, core: &Core, known: &mut Option<i64>) -> Result<bool, sqlx::Error> {
        let (began, now) = (Instant::now(), core.clock.now());
        let read = self.read_changes(core, known).await;
        let mut reads = self.reads.write();
        reads.last = Some((began, read.is_ok()));
        if read.is_ok() {
            reads.succeeded = Some(now);
        }
        read
    }

    async fn read_changes(&self, core: &Core, known: &mut Option<i64>) -> Result<bool, sqlx::Error> {
        // Reads the number first: a change during the reload then causes another one.
        let revision: i64 = sqlx::query_scalar(
            "-- revision of endpoints
             SELECT number FROM webhook_revision",
        )
        .fetch_one(&core.upkeep)
        .await?;
        let has_changed = *known != Some(revision);
        if has_changed {
            self.replace(&load_endpoints(core).await?);
            *known = Some(revision);
        }
        Ok(has_changed)
    }

    fn replace(&self, created: &[CreatedEndpoint]) {
        let mut endpoints = EndpointsByProducer::clone(&self.declared);
        for endpoint in created.iter().filter(|endpoint| endpoint.state == EndpointState::Active) {
            endpoints.entry(endpoint.producer.clone()).or_default().push(endpoint.to_subscription());
        }
        let owner_of = |e: &CreatedEndpoint| (e.id.to_channel(), Config::producer_channel(&e.producer));
        self.owners.replace(created.iter().map(owner_of).collect::<BTreeMap<_, _>>());
        self.subscriptions.replace(endpoints);
    }

    /// Keeps the subscriptions up to date until `stop` is cancelled.
    pub async fn keep_fresh(self, core: Core, stop: CancellationToken) {
        let turns = core.loops.register_loop("webhook endpoints");
        let mut failing = false;
        while !stop.is_cancelled() {
            match turns.run_turn(self.reload_if_changed(&core)).await {
                Some(Ok(_)) => failing = false,
                // Logs once per outage, not on every turn.
                Some(Err(error)) if !failing => {
                    tracing::warn!(%error, "The webhook endpoints could not be read; they are read again before the next write.");
                    failing = true;
                }
                Some(Err(_)) | None => failing = true,
            }
            stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await;
        }
    }
}

/// Returns the created endpoints, also paused ones.
async fn load_endpoints(core: &Core) -> Result<Vec<CreatedEndpoint>, sqlx::Error> {
    sqlx::query_as(
        "-- created endpoints
         SELECT id, producer, events, state FROM webhook_endpoints ORDER BY id",
    )
    .fetch_all(&core.upkeep)
    .await
}
