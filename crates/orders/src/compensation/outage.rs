//! STATUS_UPDATE_FAILED during a Postgres outage: one message per support channel and outage, however many orders wait
//! for their end. It needs only Redis and the channels.
//!
//! Workers take no jobs while Postgres accepts no writes, so each worker checks independently. Redis stores the start
//! of the outage and the channels that were notified. All workers thus agree on the outage, and one of them sends the
//! message. A worker claims a channel before it sends. If the process dies or the receiver is down, the claim expires,
//! and another worker sends the message under the same message id.
//!
//! No message is sent for an outage shorter than [`OUTAGE_GRACE`], or if no order waits for its end. Without Redis no
//! message can be sent; `dispatchq_dependency_up` and the log show the outage.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat};
use jobs::{CompensateOrder, ExpireOrder, OrderId, queues};
use model::{
    decide::timers,
    messages::{self, MessageAudience, MessageSubject, STATUS_UPDATE_FAILED},
};
use redis::cmd;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::alarm::OUTAGE_GRACE;
use crate::capability::Orders;
use foundation::{
    core::Core,
    loops,
    redis_keys::{OUTAGE_SINCE, outage_told},
};
use notify::channels::OutgoingMessage;
use queue::{Job, JobId, StoreError, store::JobState};

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Expiry of a claim. Then another worker may try the channel again.
const CLAIM_SECONDS: u64 = 60;
/// Retention of the outage's keys. A longer outage is reported again.
const KEPT_SECONDS: u64 = 24 * 3600;
/// Maximum jobs read from each queue. If there are more, the message gives the count with a `+`.
const MAX_LISTED: usize = 1000;

/// Orders whose end waits for Postgres.
struct WaitingEnds {
    first: OrderId,
    /// Number of orders, with `+` if there are more.
    count: String,
}

/// Checks every 5 s until `stop`.
pub async fn run(orders: Orders, stop: CancellationToken) {
    let turns = orders.core.loops.register_loop("outage alarm");
    // An earlier process may have recorded an outage.
    let mut was_away = true;
    while !stop.is_cancelled() {
        match turns.run_turn(look_once(&orders, was_away)).await {
            Some(Ok(is_away)) => was_away = is_away,
            Some(Err(error)) => tracing::debug!(%error, "Redis cannot be queried about an outage."),
            None => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Notifies support of an outage that has lasted for [`OUTAGE_GRACE`] and delays the end of orders. `was_away` is the
/// result of the previous check. Returns whether Postgres accepts no writes.
pub async fn look_once(orders: &Orders, was_away: bool) -> Result<bool, StoreError> {
    if orders.core.readiness.is_writable().await {
        if was_away {
            orders.core.store.run_command::<u64>("forget outage", cmd("DEL").arg(OUTAGE_SINCE)).await?;
        }
        return Ok(false);
    }
    let now_ms = orders.core.store.now_ms().await?;
    let mut note = cmd("SET");
    note.arg(OUTAGE_SINCE).arg(now_ms).arg("NX").arg("EX").arg(KEPT_SECONDS).arg("GET");
    let since_ms = orders.core.store.run_command::<Option<u64>>("note outage", &note).await?.unwrap_or(now_ms);
    if Duration::from_millis(now_ms.saturating_sub(since_ms)) < OUTAGE_GRACE {
        return Ok(true);
    }
    if let Some(waiting) = find_waiting_ends(&orders.core, now_ms).await? {
        for channel in orders.config.notifications.channels_for(&MessageAudience::Support) {
            tell_channel(orders, channel, since_ms, &waiting).await?;
            loops::report_progress();
        }
    }
    Ok(true)
}

/// Returns the orders whose lifetime is over and those that wait for their final status.
async fn find_waiting_ends(core: &Core, now_ms: u64) -> Result<Option<WaitingEnds>, StoreError> {
    let mut orders = Vec::new();
    let mut is_all = true;
    for (queue, kind) in [(queues::COMPENSATION, CompensateOrder::KIND), (queues::LIFETIME_CANCEL, ExpireOrder::KIND)] {
        let listed = core.queue().list_jobs(queue, JobState::Due, 0, MAX_LISTED).await?;
        is_all &= listed.len() < MAX_LISTED || listed.last().is_some_and(|job| job.at_ms > now_ms);
        // A failed compensation is delayed, but its order is waiting.
        let waits = listed.into_iter().filter(|job| kind == CompensateOrder::KIND || job.at_ms <= now_ms);
        let ids = waits.filter_map(|job| JobId::parse(&job.id).ok()).filter(|id| id.kind() == kind);
        orders.extend(ids.filter_map(|id| timers::order_of(&id)));
    }
    let more = if is_all { "" } else { "+" };
    let count = format!("{}{more}", orders.len());
    Ok(orders.into_iter().next().map(|first| WaitingEnds { first, count }))
}

/// Notifies a channel unless it was notified of this outage, or a worker is notifying it.
async fn tell_channel(orders: &Orders, channel: &str, since_ms: u64, waiting: &WaitingEnds) -> Result<(), StoreError> {
    // A channel without a free slot is tried at the next check.
    let Ok(place) = orders.notify.channels.enter_lane(channel) else { return Ok(()) };
    let key = outage_told(since_ms, channel);
    let mut claim = cmd("SET");
    claim.arg(&key).arg("claimed").arg("NX").arg("EX").arg(CLAIM_SECONDS).arg("GET");
    if orders.core.store.run_command::<Option<String>>("claim outage alarm", &claim).await?.is_some() {
        return Ok(());
    }
    let since = DateTime::from_timestamp_millis(since_ms.cast_signed()).unwrap_or_default();
    let error = format!(
        "Postgres has accepted no writes since {}; orders whose end waits for it: {}, including this one",
        since.to_rfc3339_opts(SecondsFormat::Secs, true),
        waiting.count
    );
    let message = messages::status_update_failed(&waiting.first, &error, orders.core.clock.now());
    let (content, subject) = (message.to_stored(), MessageSubject::Order(waiting.first.clone()));
    let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{STATUS_UPDATE_FAILED}:{since_ms}:{channel}").as_bytes());
    let parcel = OutgoingMessage { id, subject: &subject, content: &content, phone: None, email: None };
    match orders.notify.channels.deliver_message(place, channel, &parcel).await {
        Ok(_) => {
            tracing::error!(channel, orders = waiting.count, "Orders wait for Postgres to end; support was notified.");
            let mut told = cmd("SET");
            told.arg(&key).arg("told").arg("EX").arg(KEPT_SECONDS);
            orders.core.store.run_command::<()>("note outage alarm", &told).await
        }
        Err(error) => {
            tracing::error!(
                channel,
                orders = waiting.count,
                %error,
                "Orders wait for Postgres to end, and support could not be notified."
            );
            Ok(())
        }
    }
}
