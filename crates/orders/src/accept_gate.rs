//! `trip_lock:{order}`: who is taking this order right now. `dispatchq:offered:{trip_lock:{order}}`, beside it: which drivers are asked
//! for it.
//! Design: docs/design/accept.md.
//!
//! An order is known here by its offers. So all drivers but one have their answer after one call to Redis, beside the winner and
//! afterwards, and Postgres hears of the one alone: it is not asked first whether the offer is live, nor Redis for the lock by
//! itself.
//!
//! Of those who press at the same process at once the first asks Redis, and the others lose by what it heard
//! ([`gate_views`](crate::gate_views)): the last of a hundred waits for one answer and not for a hundred.
//!
//! A lock that is not removed ends by itself after ten seconds, so a process that dies in between blocks an order for so long at
//! most. After an order was taken its lock stays for the rest of them.
//!
//! The gate decides nothing: the versioned update of the order's row alone does, as for every other change. So Redis may be slow,
//! away or empty, and the answers stay the same: what it does not know goes to the row. What it says of an offer holds for that
//! offer alone, and an offer that has ended never lives again: a message that comes late may cost a look at the row and no driver
//! an order.

use std::{collections::HashMap, fmt, time::Instant};

use jobs::OrderId;
use metrics::counter;
use model::{
    decide::Change,
    ids::{DriverId, OfferId},
    order::{Offer, OfferState, Snapshot},
};
use redis::{Cmd, Value, cmd};

use crate::{capability::Orders, gate_views::GateView};
use foundation::{
    core::Core,
    redis_keys::{offered_drivers, trip_lock},
};

const SECONDS: u64 = 10;

/// A driver answers an offer. KEYS: lock, offers. ARGV: driver, offer, seconds of the lock. Takes the lock if the offer is known
/// and the order neither taken nor locked. Returns the answer, who holds the lock (empty: not asked), and the offers.
/// Bound: the drivers asked at once.
const PRESENT: &str = "
    local known = redis.call('HMGET', KEYS[2], ARGV[2], 'taken')
    if known[1] ~= ARGV[1] then return { 'unknown', '', {} } end
    local offers = redis.call('HGETALL', KEYS[2])
    if known[2] == ARGV[2] then return { 'own', '', offers } end
    if known[2] then return { 'taken', '', offers } end
    local holder = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[3], 'GET')
    if not holder then return { 'won', ARGV[1], offers } end
    if holder == ARGV[1] then return { 'own', holder, offers } end
    return { 'lost', holder, offers }";

/// Replaces what is known of an order's offers. KEYS: offers. ARGV: ms until they end, then offer and driver of each.
/// Bound: the drivers asked at once.
const ANNOUNCE: &str = "
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[1], unpack(ARGV, 2))
    return redis.call('PEXPIRE', KEYS[1], ARGV[1])";

/// The order was taken by this offer. KEYS: offers. ARGV: offer, driver. Does nothing if other offers are known by now.
/// Bound: two fields.
const TAKE: &str = "
    if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
    return redis.call('HSET', KEYS[1], 'taken', ARGV[1])";

/// A driver failed at the row. KEYS: lock, offers. ARGV: driver, offer. Removes the lock if it is this driver's, and the offer:
/// the next answer to it asks Postgres first.
/// Bound: a field and a string.
const LEAVE: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
    return redis.call('HDEL', KEYS[2], ARGV[2])";

/// What the gate says to a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateEntry {
    /// This driver may try: no other is at it.
    Open,
    /// Another driver is taking the order, or has just taken it.
    Held,
    /// Another driver has taken the order by an offer made together with this one.
    Taken,
    /// Redis does not know the offer: it has ended, was never announced, or Redis has lost it.
    Unknown,
    /// Redis does not answer.
    Silent,
}

/// Takes the lock of this order for this driver, if Redis knows the offer. The same driver may enter again. `when_first` is called while
/// Redis is asked, if this driver is the first who presses at this process, and so may well pass.
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

/// What Redis said to another driver a moment ago answers this one, unless this one might pass.
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
    let mut present = cmd("EVAL");
    present.arg(PRESENT).arg(2).arg(trip_lock(order)).arg(offered_drivers(order));
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

/// Takes the lock of this order for this driver, whose offer Postgres says is live. The same driver may enter again.
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
    tracing::debug!(order.id = %order, %error, "The gate of an order could not be asked.");
    GateEntry::Silent
}

/// Gives the lock back, if it is this driver's. The driver's next answer goes by way of Postgres.
pub(crate) async fn leave_gate(orders: &Orders, order: &OrderId, driver: &DriverId, offer: OfferId) {
    let mut leave = cmd("EVAL");
    leave.arg(LEAVE).arg(2).arg(trip_lock(order)).arg(offered_drivers(order));
    leave.arg(driver.as_str()).arg(offer.to_string());
    log_release(order, orders.core.query_optional::<i64>("give trip lock back", &leave).await);
    orders.gate_views.forget(order);
}

/// The order has lost its driver and is free for all.
pub(crate) async fn forget_lock(orders: &Orders, order: &OrderId) {
    log_release(order, orders.core.query_optional::<i64>("remove trip lock", cmd("DEL").arg(trip_lock(order))).await);
    orders.gate_views.forget(order);
}

fn log_release(order: &OrderId, result: Result<i64, impl fmt::Display>) {
    if let Err(error) = result {
        tracing::debug!(order.id = %order, %error, "The gate of an order stays closed for some seconds.");
    }
}

/// What the gate is to be told of a committed change.
#[derive(Debug)]
pub(crate) struct GateUpdate {
    order: OrderId,
    command: Cmd,
    /// This process knows already who has taken the order.
    is_taken: bool,
}

/// Makes this process' own view that of a committed change. Returns what Redis is to be told of it: which offers there are, which have
/// ended, and by which one the order was taken.
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
        // Those who press from now on lose by this, also before Redis has heard of it.
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

/// Tells Redis.
pub(crate) async fn send_update(orders: &Orders, update: &GateUpdate) {
    let GateUpdate { order, command, is_taken } = update;
    if let Err(error) = orders.core.query_optional::<Value>("tell gate of offers", command).await {
        tracing::debug!(order.id = %order, %error, "The gate of an order was not told of its offers.");
    }
    // What Redis said to others meanwhile was said before it heard of this.
    if !is_taken {
        orders.gate_views.forget(order);
    }
}

/// `None`: the gate knows no offers of this order, or what it knows keeps no other driver away. The end of an offer that was made
/// alone is not told: an answer to it costs a look at the row until it would have lapsed, and new offers take its place.
fn build_update(before: &Snapshot, change: &Change, after: &Snapshot) -> Option<Cmd> {
    let offers = offered_drivers(&after.order.id);
    let live: Vec<&Offer> = after.live_offers().collect();
    if change.new_offers.is_some() && !live.is_empty() {
        let end = live.iter().map(|offer| offer.expires_at).max()?;
        let mut announce = cmd("EVAL");
        announce.arg(ANNOUNCE).arg(1).arg(offers).arg((end - change.at).num_milliseconds().max(1));
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
        let mut take = cmd("EVAL");
        take.arg(TAKE).arg(1).arg(offers).arg(end.offer.id.to_string()).arg(end.offer.driver_id.as_str());
        return Some(take);
    }
    let loses_driver = before.order.status.occupies_driver() && !after.order.status.occupies_driver();
    if loses_driver || (live.is_empty() && !change.offers.is_empty()) {
        let mut forget = cmd("DEL");
        forget.arg(offers);
        return Some(forget);
    }
    if change.offers.is_empty() {
        return None;
    }
    let mut forget = cmd("HDEL");
    forget.arg(offers);
    for end in &change.offers {
        forget.arg(end.offer.id.to_string());
    }
    Some(forget)
}
