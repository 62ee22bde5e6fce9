//! Creations and cancellations in the area with little room. Redis is flushed in the middle.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use redis::cmd;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use super::stage::{AdmissionStage, AvailabilityAnswer, SERVICE_TYPE, THRESHOLD, WITH_BYPASS, area_point};
use areas::admission::waiting::{self, SuspectMembers};
use model::{
    actor::{Actor, ActorRole},
    decide::actions,
    ids::LatLng,
    order::Snapshot,
};
use orders::seen::Basis;

const PRODUCERS: u32 = 64;
/// Pause of a producer before it retries: the Retry-After of a server that sheds load.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_TRIES: u32 = 30;

#[derive(Debug)]
pub(super) struct CreationTally {
    pub(super) tried: u32,
    pub(super) taken: u32,
    pub(super) refused: u32,
    pub(super) failed: u32,
    pub(super) per_s: f64,
    /// Maximum number of waiting orders when an order without bypass was admitted, including that order.
    pub(super) most_without_bypass: i64,
    /// Maximum number of waiting orders when an order with bypass was admitted, including that order.
    pub(super) most_with_bypass: i64,
}

impl CreationTally {
    /// Returns the number of orders above the allowed threshold.
    pub(super) fn threshold_overshoot(&self) -> i64 {
        (self.most_without_bypass - THRESHOLD).max(self.most_with_bypass - WITH_BYPASS).max(0)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "tried": self.tried,
            "taken": self.taken,
            "refused": self.refused,
            "failed": self.failed,
            "per_s": self.per_s,
            "most_waiting": { "without_bypass": self.most_without_bypass, "with_bypass": self.most_with_bypass },
        })
    }
}

#[derive(Debug, Default)]
struct CreationCounters {
    tried: AtomicU32,
    taken: AtomicU32,
    refused: AtomicU32,
    failed: AtomicU32,
}

pub(super) async fn measure_creations(stage: &Arc<AdmissionStage>, tries: u32) -> anyhow::Result<CreationTally> {
    note_all(stage).await?;
    let counters = Arc::new(CreationCounters::default());
    let begun = Instant::now();
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        producers.spawn(create_and_cancel(stage.clone(), counters.clone(), tries, producer));
    }
    let flush = async {
        while counters.tried.load(Ordering::Relaxed) < tries / 2 {
            sleep(Duration::from_millis(5)).await;
        }
        stage.app.core.store.run_command::<()>("flush", &cmd("FLUSHALL")).await?;
        sleep(Duration::from_millis(500)).await;
        waiting::repair_waiting_sets(&stage.app.areas, &mut SuspectMembers::default()).await
    };
    let (_, flushed) = tokio::join!(producers.join_all(), flush);
    flushed?;
    let seconds = begun.elapsed().as_secs_f64();
    let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
    Ok(CreationTally {
        tried: tries,
        taken: count(&counters.taken),
        refused: count(&counters.refused),
        failed: count(&counters.failed),
        per_s: (f64::from(tries) / seconds).round(),
        most_without_bypass: max_waiting_seen(stage, false).await?,
        most_with_bypass: max_waiting_seen(stage, true).await?,
    })
}

/// Creates an order as a producer does. Retries while the server sheds load or does not answer.
async fn create_patiently(stage: &AdmissionStage, id: &str, body: &Value) -> AvailabilityAnswer {
    for _ in 0..MAX_TRIES {
        match stage.create_order(id, body).await {
            AvailabilityAnswer::Shed | AvailabilityAnswer::Nothing => sleep(PAUSE).await,
            answer => return answer,
        }
    }
    AvailabilityAnswer::Nothing
}

async fn create_and_cancel(stage: Arc<AdmissionStage>, counters: Arc<CreationCounters>, tries: u32, producer: u32) {
    let LatLng { lat: latitude, lng: longitude } = area_point(0);
    let mut own = Vec::new();
    while let n = counters.tried.fetch_add(1, Ordering::Relaxed)
        && n < tries
    {
        let id = format!("ORD-{n}");
        let mut body = json!({
            "order_id": id,
            "service_type": SERVICE_TYPE,
            "pickup": { "latitude": latitude, "longitude": longitude },
        });
        // Orders with bypass start later, so that the others have the area to themselves at first.
        if producer.is_multiple_of(8) && n > tries / 4 {
            body["loyalty_level"] = json!("ELITE");
            body["customer_id"] = json!("loyal");
        }
        let counter = match create_patiently(&stage, &id, &body).await {
            AvailabilityAnswer::Room => {
                own.push(n);
                &counters.taken
            }
            AvailabilityAnswer::Full { .. } => {
                // Cancels some of the waiting orders, as if drivers were found. There are fewer cancellations than
                // orders with bypass.
                if n.is_multiple_of(16)
                    && let Some(n) = own.pop()
                    && let Ok(order) = format!("ORD-{n}").parse()
                {
                    let by = Actor::with_fixed_name(ActorRole::Producer, "bench");
                    let cancel = |s: &Snapshot| actions::cancel_order(s, &by, None);
                    if let Ok(cancelled) = stage.app.orders.change(&order, Basis::Fresh, cancel).await {
                        cancelled.effects.run(&stage.app.orders).await;
                    }
                }
                &counters.refused
            }
            AvailabilityAnswer::Shed | AvailabilityAnswer::Nothing => &counters.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds a trigger that records in each creating transaction how many orders wait. So no intermediate count is missed.
async fn note_all(stage: &AdmissionStage) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(
        "CREATE TABLE waiting_seen (bypass boolean NOT NULL, waiting bigint NOT NULL);
         CREATE FUNCTION note_waiting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO waiting_seen
             VALUES (NEW.customer_id IS NOT NULL, dispatchq_waiting(NEW.area_id, NEW.service_type));
             RETURN NULL;
         END $$;
         CREATE TRIGGER note_waiting AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION note_waiting()",
    )
    .execute(&stage.app.core.db)
    .await?;
    Ok(())
}

async fn max_waiting_seen(stage: &AdmissionStage, bypass: bool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT coalesce(max(waiting), 0) FROM waiting_seen WHERE bypass = $1")
        .bind(bypass)
        .fetch_one(&stage.app.core.db)
        .await
}
