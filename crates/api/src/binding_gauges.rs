//! Gauges of /metrics about bindings and providers' servers.

use std::collections::{BTreeMap, BTreeSet};

use foundation::core::Core;
use metrics::gauge;
use model::binding::ServerId;

use parking_lot::Mutex;

use super::scrape::{as_gauge, with_timeout};
use desk::reports::bindings::{self, BindingCensus, CallCensus, ServerCensus};

pub(super) async fn set_binding_gauges(core: &Core) {
    let (census, calls) =
        tokio::join!(with_timeout(bindings::count_bindings(core)), with_timeout(bindings::count_calls(core)));
    set_census_gauges(census.as_ref());
    set_call_gauges(calls.as_ref());
    set_server_gauges(&calls.map(|calls| calls.servers).unwrap_or_default());
}

fn set_census_gauges(census: Option<&BindingCensus>) {
    let count = |pick: fn(&BindingCensus) -> i64| as_gauge(census.map(|c| pick(c).unsigned_abs()));
    gauge!("dispatchq_bindings", "state" => "STOPPED").set(count(|c| c.stopped));
    gauge!("dispatchq_bindings", "state" => "RUNNING").set(count(|c| c.running));
    gauge!("dispatchq_bindings", "state" => "PAUSED").set(count(|c| c.paused));
    gauge!("dispatchq_bindings", "state" => "STOPPING").set(count(|c| c.stopping));
    gauge!("dispatchq_bindings_waiting_otp").set(count(|c| c.waiting_otp));
    gauge!("dispatchq_transactions_unresolved").set(count(|c| c.unresolved));
    gauge!("dispatchq_bindings_otp_oldest_seconds").set(census.map_or(f64::NAN, |c| c.otp_oldest_s));
    gauge!("dispatchq_bindings_most_overdue_seconds").set(census.map_or(f64::NAN, |c| c.most_overdue_s));
}

fn set_call_gauges(calls: Option<&CallCensus>) {
    gauge!("dispatchq_provider_calls_open").set(as_gauge(calls.map(|c| c.open)));
    gauge!("dispatchq_provider_calls_limit").set(as_gauge(calls.map(|c| c.limit)));
    gauge!("dispatchq_bindings_parked").set(as_gauge(calls.map(|c| c.parked)));
    gauge!("dispatchq_bindings_longest_wait_seconds").set(calls.map_or(f64::NAN, |c| c.longest_wait_s));
}

/// Servers that were shown before. Their values become NaN when they cannot be read.
static SHOWN: Mutex<BTreeSet<ServerId>> = Mutex::new(BTreeSet::new());

fn set_server_gauges(servers: &[ServerCensus]) {
    let read: BTreeMap<&ServerId, &ServerCensus> = servers.iter().map(|census| (&census.server.id, census)).collect();
    let mut shown = SHOWN.lock();
    shown.extend(servers.iter().map(|census| census.server.id.clone()));
    for id in &*shown {
        let census = read.get(id).copied();
        let label = [("server", id.to_string())];
        let count = |pick: fn(&ServerCensus) -> u64| as_gauge(census.map(pick));
        gauge!("dispatchq_provider_server_calls_open", &label).set(count(|c| c.open));
        gauge!("dispatchq_provider_server_calls_limit", &label).set(count(|c| c.limit));
        gauge!("dispatchq_provider_server_parked", &label).set(count(|c| c.parked));
        gauge!("dispatchq_provider_server_longest_wait_seconds", &label)
            .set(census.map_or(f64::NAN, |c| c.longest_wait_s));
        gauge!("dispatchq_provider_server_breaker_open", &label).set(count(|c| u64::from(c.breaker_is_open)));
        gauge!("dispatchq_provider_server_paused", &label).set(count(|c| u64::from(c.is_paused)));
    }
}
