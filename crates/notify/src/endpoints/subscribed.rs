//! Keeps the subscriptions in memory up to date.
//!
//! Every process reads the number of the latest change from Postgres every 400 ms and reads all active endpoints when the
//! number has changed. A new endpoint therefore gets events within a second, and a change of an order runs no statement
//! for it. While Postgres is unavailable, the subscriptions do not change.

use std::{sync::Arc, time::Duration};

use model::messages::{
    ProducerEvent,
    subscriptions::{EndpointsByProducer, EventSubscription, Subscriptions},
};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::EndpointId;
use foundation::{db::Pool, loops::LoopRegistry};

const LOOK_EVERY: Duration = Duration::from_millis(400);

/// Subscriptions of this process, with those that the configuration declares. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct SubscribedEndpoints {
    subscriptions: Subscriptions,
    declared: Arc<EndpointsByProducer>,
    /// Number of the change that was read last. One reload runs at a time, so an older one cannot replace a newer one.
    revision: Arc<Mutex<Option<i64>>>,
}

#[derive(sqlx::FromRow)]
struct ActiveEndpoint {
    id: EndpointId,
    producer: String,
    events: Vec<String>,
}

impl ActiveEndpoint {
    fn into_subscription(self) -> (String, EventSubscription) {
        let events = if self.events.is_empty() {
            ProducerEvent::ALL.into()
        } else {
            // Skips types that only a newer version knows.
            self.events.iter().filter_map(|event| ProducerEvent::of_message(event)).collect()
        };
        (self.producer, EventSubscription { channel: self.id.to_channel(), events })
    }
}

impl SubscribedEndpoints {
    pub fn new(subscriptions: &Subscriptions, declared: EndpointsByProducer) -> Self {
        Self { subscriptions: subscriptions.clone(), declared: Arc::new(declared), revision: Arc::default() }
    }

    /// Reads the endpoints again if one of them has changed. Returns whether one had.
    pub async fn reload_if_changed(&self, db: &Pool) -> Result<bool, sqlx::Error> {
        let mut known = self.revision.lock().await;
        // Reads the number first: a change during the reload then causes another one.
        let revision: i64 = sqlx::query_scalar(
            "-- revision of endpoints
             SELECT number FROM webhook_revision",
        )
        .fetch_one(db)
        .await?;
        if *known == Some(revision) {
            return Ok(false);
        }
        let mut endpoints = EndpointsByProducer::clone(&self.declared);
        for (producer, subscription) in load_active(db).await?.into_iter().map(ActiveEndpoint::into_subscription) {
            endpoints.entry(producer).or_default().push(subscription);
        }
        self.subscriptions.replace(endpoints);
        *known = Some(revision);
        Ok(true)
    }

    /// Keeps the subscriptions up to date until `stop` is cancelled.
    pub async fn keep_fresh(self, db: Pool, loops: LoopRegistry, stop: CancellationToken) {
        let turns = loops.register_loop("webhook endpoints");
        let mut failing = false;
        while !stop.is_cancelled() {
            match turns.run_turn(self.reload_if_changed(&db)).await {
                Some(Ok(_)) => failing = false,
                // Logs once per outage, not on every turn.
                Some(Err(error)) if !failing => {
                    tracing::warn!(%error, "The webhook endpoints could not be read; the known ones stay in effect.");
                    failing = true;
                }
                Some(Err(_)) | None => failing = true,
            }
            stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await;
        }
    }
}

async fn load_active(db: &Pool) -> Result<Vec<ActiveEndpoint>, sqlx::Error> {
    sqlx::query_as(
        "-- active endpoints
         SELECT id, producer, events FROM webhook_endpoints WHERE state = 'active' ORDER BY id",
    )
    .fetch_all(db)
    .await
}
