//! The Redis gate of an order. `trip_lock:{order}` stores the driver who is accepting the order.
//! `dispatchq:offered:{trip_lock:{order}}`, in the same slot, stores the drivers it is offered to. Design:
//! docs/design/accept.md.
//!
//! The gate knows an order by its offers. One call to Redis answers all drivers but one, and only that driver causes a
//! query to Postgres. Neither the state of the offer nor the lock needs a separate query.
//!
//! If several drivers accept at the same process at once, the first asks Redis. The result refuses the others
//! ([`gate_views`](crate::gate_views)). The last of a hundred drivers waits for one response, not for a hundred.
//!
//! A lock expires after ten seconds, so a process that dies blocks an order for at most ten seconds. After an order was
//! taken, its lock remains until it expires.
//!
//! The gate decides nothing: only the versioned update of the order's row does, as for every other change. If Redis is
//! slow, unavailable or empty, the results are the same, because unknown offers are decided at the row. A gate entry is
//! valid for one offer, and an ended offer never becomes live again. A late update of the gate can therefore cost a
//! query of the row, but never a driver's order.

use std::{collections::HashMap, fmt, time::Instant};

use jobs::OrderId;
use metrics::counter;
use model::{
    decide::Change,
    ids::{DriverId, OfferId},
    order::{Offer, OfferState, Snapshot},
};
use queue::{Command, LuaScript};
use redis::{Value, cmd};

use crate::{capability::Orders, gate_views::GateView};
use foundation::{
    core::Core,
    redis_keys::{offered_drivers, trip_lock},
};

const SECONDS: u64 = 10;

static PRESENT: LuaScript = LuaScript::new(include_str!("scripts/present_offer.lua"));

static ANNOUNCE: LuaScript = LuaScript::new(include_str!("scripts/announce_offers.lua"));

static TAKE: LuaScript = LuaScript::new(include_str!("scripts/record_taken.lua"));

static LEAVE: LuaScript = LuaScript::new(include_str!("scripts/leave_gate.lua"));

/// Answer of the gate to a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateEntry {
    /// The driver may try to take the order: the lock is this driver's.
    Open,
    /// Another driver is taking the order, or has just taken it.
    Held,
    /// Another driver has taken the order by an offer of the same attempt.
    Taken,
    /// Redis does not know the offer: it has ended, was never announced, or Redis has lost it.
    Unknown,
    Silent,
}

/// Takes the lock of this order for this driver if Redis knows the offer. The same driver may enter again. Calls
/// `when_first` during the Redis call if this driver is the first at this process and will probably pass.
pub(crate) async fn present_offer(
    orders: &Orders,
    order: &OrderId,
    driver: &DriverId,
    offer: OfferId,
    when_first: impl FnOnce(),
) -> GateEntry {
    let (view, is_first) = orders.gate_views.get(order);
    let mut first = None;
    let asking = async {
        if is_first {
            when_first();
        }
        let (entry, view) = ask_gate(&orders.core, order, driver, offer).await;
        first = Some(entry);
        view
    };
    let seen = view.get_or_init(|| asking).await;
    if let Some(entry) = first {
        return entry;
    }
    let Some(entry) = refuse_by_view(seen, driver, offer) else {
        return ask_gate(&orders.core, order, driver, offer).await.0;
    };
    count_entry(match entry {
        GateEntry::Taken => "late",
        GateEntry::Silent => "unknown",
        _ => "lost",
    });
    entry
}

/// Returns the answer from the result of another driver's recent call, or `None` if this driver might pass.
fn refuse_by_view(view: &GateView, driver: &DriverId, offer: OfferId) -> Option<GateEntry> {
    if view.is_silent {
        return Some(GateEntry::Silent);
    }
    let offer = offer.to_string();
    if view.offers.get(&offer).is_none_or(|asked| asked.as_str() != driver.as_str()) {
        return None;
    }
    match (&view.taken_by, &view.holder) {
        (Some(taken_by), _) => (*taken_by != offer).then_some(GateEntry::Taken),
        (None, Some(holder)) => (holder.as_str() != driver.as_str()).then_some(GateEntry::Held),
        (None, None) => None,
    }
}

async fn ask_gate(core: &Core, order: &OrderId, driver: &DriverId, offer: OfferId) -> (GateEntry, GateView) {
    let mut present = PRESENT.call([trip_lock(order), offered_drivers(order)]);
    present.arg(driver.as_str()).arg(offer.to_string()).arg(SECONDS);
    let said = core.query_optional::<(String, String, HashMap<String, String>)>("present offer", &present).await;
    let seen_at = Instant::now();
    let (answer, holder, mut offers) = match said {
        Ok(said) => said,
        Err(error) => {
            count_entry("unknown");
            let view = GateView { seen_at, is_silent: true, holder: None, offers: HashMap::new(), taken_by: None };
            return (log_silence(order, &error), view);
        }
    };
    let taken_by = offers.remove("taken");
    let holder = (!holder.is_empty()).then_some(holder);
    let view = GateView { seen_at, is_silent: false, holder, offers, taken_by };
    let (entry, result) = match answer.as_str() {
        "won" => (GateEntry::Open, "won"),
        "own" => (GateEntry::Open, "own"),
        "lost" => (GateEntry::Held, "lost"),
        "taken" => (GateEntry::Taken, "late"),
        // Counted when the driver enters, if the offer is live.
        _ => return (GateEntry::Unknown, view),
    };
    count_entry(result);
    (entry, view)
}

fn count_entry(result: &'static str) {
    counter!("dispatchq_reservations_total", "result" => result).increment(1);
}

/// Takes the lock of this order for a driver whose offer is live according to Postgres. The same driver may enter
/// again.
pub(crate) async fn enter_gate(core: &Core, order: &OrderId, driver: &DriverId) -> GateEntry {
    let mut take = cmd("SET");
    take.arg(trip_lock(order)).arg(driver.as_str()).arg("NX").arg("EX").arg(SECONDS).arg("GET");
    let (entry, result) = match core.query_optional::<Option<String>>("take trip lock", &take).await {
        Ok(None) => (GateEntry::Open, "won"),
        Ok(Some(holder)) if *driver == *holder => (GateEntry::Open, "own"),
        Ok(Some(_)) => (GateEntry::Held, "lost"),
        Err(error) => (log_silence(order, &error), "unknown"),
    };
    count_entry(result);
    entry
}

fn log_silence(order: &OrderId, error: &str) -> GateEntry {
    tracing::debug!(order.id = %order, %error, "The gate of an order could not be queried.");
    GateEntry::Silent
}

/// Releases the lock if it is this driver's. The driver's next accept queries Postgres.
pub(crate) async fn leave_gate(orders: &Orders, order: &OrderId, driver: &DriverId, offer: OfferId) {
    let mut leave = LEAVE.call([trip_lock(order), offered_drivers(order)]);
    leave.arg(driver.as_str()).arg(offer.to_string());
    log_release(order, orders.core.query_optional::<i64>("give trip lock back", &leave).await);
    orders.gate_views.forget(order);
}

/// Removes the lock of an order that has lost its driver.
pub(crate) async fn forget_lock(orders: &Orders, order: &OrderId) {
    log_release(order, orders.core.query_optional::<i64>("remove trip lock", cmd("DEL").arg(trip_lock(order))).await);
    orders.gate_views.forget(order);
}

fn log_release(order: &OrderId, result: Result<i64, impl fmt::Display>) {
    if let Err(error) = result {
        tracing::debug!(order.id = %order, %error, "The lock of an order could not be removed; it expires in some seconds.");
    }
}

#[derive(Debug)]
pub(crate) struct GateUpdate {
    order: OrderId,
    command: Command,
    /// Whether this process has already recorded the driver who took the order.
    is_taken: bool,
}

/// Updates this process' view after a committed change. Returns the update for Redis: the new offers, the ended offers,
/// or the offer by which the order was taken.
pub(crate) fn begin_update(
    orders: &Orders,
    before: &Snapshot,
    change: &Change,
    after: &Snapshot,
) -> Option<GateUpdate> {
    let order = &after.order.id;
    orders.gate_views.end_turn(order);
    let command = build_update(before, change, after)?;
    let taken_by = change.offers.iter().find(|end| end.to == OfferState::Accepted);
    match taken_by {
        // Later accepts at this process are refused by this view, even before Redis is updated.
        Some(taken_by) => {
            let asked = change.offers.iter().map(|end| &end.offer);
            let view = GateView {
                seen_at: Instant::now(),
                is_silent: false,
                holder: None,
                offers: asked.map(|offer| (offer.id.to_string(), offer.driver_id.to_string())).collect(),
                taken_by: Some(taken_by.offer.id.to_string()),
            };
            orders.gate_views.remember(order, view);
        }
        None => orders.gate_views.forget(order),
    }
    Some(GateUpdate { order: order.clone(), command, is_taken: taken_by.is_some() })
}

/// Sends the update to Redis. A failure is logged.
pub(crate) async fn send_update(orders: &Orders, update: &GateUpdate) {
    let GateUpdate { order, command, is_taken } = update;
    if let Err(error) = orders.core.query_optional::<Value>("tell gate of offers", command).await {
        tracing::debug!(order.id = %order, %error, "The gate of an order could not be updated.");
    }
    // Views that were loaded from Redis before this update are outdated.
    if !is_taken {
        orders.gate_views.forget(order);
    }
}

/// Builds the update for Redis. Returns `None` if the gate knows no offers of this order, or if its entries refuse no
/// other driver. The end of a single offer is not sent: an accept of it costs a query of the row until the offer would
/// have expired, and new offers replace it.
fn build_update(before: &Snapshot, change: &Change, after: &Snapshot) -> Option<Command> {
    let offers = offered_drivers(&after.order.id);
    let live: Vec<&Offer> = after.live_offers().collect();
    if change.new_offers.is_some() && !live.is_empty() {
        let end = live.iter().map(|offer| offer.expires_at).max()?;
        let mut announce = ANNOUNCE.call([offers]);
        announce.arg((end - change.at).num_milliseconds().max(1));
        for offer in live {
            announce.arg(offer.id.to_string()).arg(offer.driver_id.as_str());
        }
        return Some(announce);
    }
    let is_known = |offer: &&Offer| offer.attempt_no == before.order.attempt_no && offer.expires_at > change.at;
    if before.offers.iter().filter(is_known).count() < 2 {
        return None;
    }
    if let Some(end) = change.offers.iter().find(|end| end.to == OfferState::Accepted) {
        let mut take = TAKE.call([offers]);
        take.arg(end.offer.id.to_string()).arg(end.offer.driver_id.as_str());
        return Some(take);
    }
    let loses_driver = before.order.status.occupies_driver() && !after.order.status.occupies_driver();
    if loses_driver || (live.is_empty() && !change.offers.is_empty()) {
        let mut forget = cmd("DEL");
        forget.arg(offers);
        return Some(forget.into());
    }
    if change.offers.is_empty() {
        return None;
    }
    let mut forget = cmd("HDEL");
    forget.arg(offers);
    for end in &change.offers {
        forget.arg(end.offer.id.to_string());
    }
    Some(forget.into())
}
