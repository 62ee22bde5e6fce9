//! `trip_lock:{order}`: who is taking this order right now.
//!
//! A lock that is not removed ends by itself after ten seconds, so a process that dies in between blocks an order for so long at
//! most. After an order was taken its lock stays for the rest of them, and keeps latecomers away from the database.
//!
//! The gate decides nothing: the versioned update of the order's row alone does, as for every other change. So Redis may be slow,
//! away or empty, and the answers stay the same.

use std::fmt;

use jobs::OrderId;
use metrics::counter;
use model::ids::DriverId;
use redis::cmd;

use crate::{app::App, redis_keys::trip_lock};

const SECONDS: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GateEntry {
    /// This driver may try: no other is at it, or Redis cannot say.
    Open,
    /// Another driver is taking the order, or has just taken it.
    Taken,
}

/// Takes the lock of this order for this driver. The same driver may enter again.
pub(crate) async fn enter_gate(app: &App, order: &OrderId, driver: &DriverId) -> GateEntry {
    let mut take = cmd("SET");
    take.arg(trip_lock(order)).arg(driver.as_str()).arg("NX").arg("EX").arg(SECONDS).arg("GET");
    let (entry, result) = match app.query_optional::<Option<String>>("take trip lock", &take).await {
        Ok(None) => (GateEntry::Open, "won"),
        Ok(Some(holder)) if *driver == *holder => (GateEntry::Open, "own"),
        Ok(Some(_)) => (GateEntry::Taken, "lost"),
        Err(error) => {
            tracing::debug!(order.id = %order, %error, "The gate of an order could not be asked.");
            (GateEntry::Open, "unknown")
        }
    };
    counter!("dispatchq_reservations_total", "result" => result).increment(1);
    entry
}

/// Gives the lock back, if it is this driver's.
pub(crate) async fn leave_gate(app: &App, order: &OrderId, driver: &DriverId) {
    let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    let mut give_back = cmd("EVAL");
    give_back.arg(script).arg(1).arg(trip_lock(order)).arg(driver.as_str());
    log_release(order, app.query_optional::<i64>("give trip lock back", &give_back).await);
}

/// The order has lost its driver and is free for all.
pub(crate) async fn forget_lock(app: &App, order: &OrderId) {
    log_release(order, app.query_optional::<i64>("remove trip lock", cmd("DEL").arg(trip_lock(order))).await);
}

fn log_release(order: &OrderId, result: Result<i64, impl fmt::Display>) {
    if let Err(error) = result {
        tracing::debug!(order.id = %order, %error, "The gate of an order stays closed for some seconds.");
    }
}
