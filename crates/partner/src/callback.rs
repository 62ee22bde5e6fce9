//! Callbacks of partners: stored together with their change, or processed later from the inbox.
//!
//! Usually the request that delivers a callback stores it and its change in one statement, and no job is needed. If
//! that fails, the request stores the callback first and processes it afterwards. The job is needed if that fails too:
//! the process died, the order kept changing, or the callback arrived before its booking was known.

use std::time::Duration;

use jobs::OrderId;
use model::{
    decide::{Decision, timers},
    ids::PartnerName,
    order::{ArrivedCallback, Booking, Snapshot},
};
use serde_json::Value;

use super::inbox;
use crate::{
    capability::Partners,
    client::{ConfiguredPartner, settings::partner_rules},
};
use areas::admission::check;
use foundation::{crash, db};
use model::partner::{
    BookingReference, decide,
    observation::{CallbackBody, Observation},
};
use orders::{
    change::{ChangeError, decided},
    order_store::inbox::CallbackState,
    seen::{Basis, SeenOrder},
};
use queue::Outcome;

/// Pause while other sessions change the order or process the callback.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Stored result of a callback that changes nothing.
const ADDS_NOTHING: &str = "adds nothing";

/// A new callback that was stored and processed.
#[derive(Debug)]
pub struct ProcessedArrival {
    pub order: OrderId,
    /// Timers that the order must have, and those that it will never need again.
    pub outcome: Outcome,
}

/// Processes a new callback that is not stored yet. Stores it with its change, or as ignored, in one statement. Returns
/// `None` if nothing was written, as far as this process can tell. The caller must then store the callback before
/// processing it.
///
/// This works only if the callback has our reference and the order already stores this booking id. Any other callback
/// may belong to an order that cannot be determined yet.
pub async fn process_arrival(
    partners: &Partners,
    partner: &ConfiguredPartner,
    body: &CallbackBody,
    raw: &Value,
) -> Option<ProcessedArrival> {
    let order = BookingReference::order_in(body.reference.as_deref()?)?;
    let s = partners.orders.rows.load_order(&order).await.ok()??;
    let is_meant = |b: &&Booking| b.partner == partner.name && b.booking_id.as_ref() == Some(&body.booking_id);
    let attempt_no = s.bookings.iter().find(is_meant)?.attempt_no;
    crash::reach_point("callback", "learnt");
    let policy = if body.kind.may_pause_search() {
        check::policy_for_pause(&partners.orders.areas, &s.order).await
    } else {
        partners.orders.areas.policy_for_order(&s.order)
    };
    let observation = Observation::from_callback(attempt_no, body.clone());
    match decide::apply_observation(&s, &observation, partner_rules(&policy, partner)) {
        Decision::Change(mut change) => {
            change.arrival = Some(Box::new(ArrivedCallback {
                partner: partner.name.clone(),
                event_id: body.event_id.clone(),
                booking_id: body.booking_id.clone(),
                body: raw.clone(),
            }));
            // Another change was written first, the event is already in the inbox, or Postgres failed. The later
            // processing handles each case.
            let basis = Basis::Seen(Box::new(SeenOrder::new(s)));
            let changed = partners.orders.change(&order, basis, decided(*change)).await.ok()?;
            if !changed.is_written() {
                return None;
            }
            let outcome = changed.into_outcome(&partners.orders).await;
            crash::reach_point("callback", "stored");
            Some(ProcessedArrival { order, outcome })
        }
        Decision::Unchanged => {
            let nothing = (ADDS_NOTHING, s.order.version);
            let row = inbox::store_ignored(&partners.orders.rows, &partner.name, body, raw, nothing).await.ok()?;
            let is_done = row.is_new && row.state == CallbackState::Ignored;
            let outcome = Outcome::then_enqueue(timers::derive_jobs(&s));
            is_done.then_some(ProcessedArrival { order, outcome })
        }
        Decision::Refuse(_) => None,
    }
}

/// Processes a callback from the inbox and returns the outcome of its job. Does nothing if the callback was already
/// processed.
pub async fn process_callback(partners: &Partners, order: &OrderId, inbox_id: i64) -> Outcome {
    let (partner, body) = match inbox::load_pending(&partners.core.db, inbox_id, order).await {
        Ok(Some(pending)) => pending,
        Ok(None) => return Outcome::done(),
        Err(e) => return db::database_failed(&*partners.core.rng, &e),
    };
    match serde_json::from_value(body) {
        Ok(body) => process_body(partners, order, inbox_id, &partner, &body).await,
        Err(e) => Outcome::Dead(format!("the callback cannot be read: {e}")),
    }
}

/// Processes a stored callback of this partner whose body is already loaded.
pub async fn process_body(
    partners: &Partners,
    order: &OrderId,
    inbox_id: i64,
    partner: &PartnerName,
    body: &CallbackBody,
) -> Outcome {
    crash::reach_point("callback", "learnt");
    // The length of the search pause depends on the state of the order's area.
    let mut for_pause = None;
    if body.kind.may_pause_search() {
        match partners.orders.rows.load_order(order).await {
            Ok(Some(s)) => for_pause = Some(check::policy_for_pause(&partners.orders.areas, &s.order).await),
            Ok(None) => {}
            Err(e) => return db::database_failed(&*partners.core.rng, &e),
        }
    }
    let changed = partners
        .orders
        .change(order, Basis::Fresh, |s| {
            // A version that knows this type may have stored the callback as pending.
            if body.is_unknown() {
                return Decision::Unchanged;
            }
            let Some(partner) = partners.registry.get(partner) else { return Decision::Unchanged };
            let Some(attempt_no) = attempt_of(s, &partner.name, body) else { return Decision::Unchanged };
            let policy = for_pause.clone().unwrap_or_else(|| partners.orders.areas.policy_for_order(&s.order));
            let observation = Observation::from_callback(attempt_no, body.clone());
            match decide::apply_observation(s, &observation, partner_rules(&policy, partner)) {
                Decision::Change(mut change) => {
                    change.callback = Some((inbox_id, change.order.status.as_str()));
                    Decision::Change(change)
                }
                decision => decision,
            }
        })
        .await;
    match changed {
        Ok(changed) if changed.is_written() => changed.into_outcome(&partners.orders).await,
        Ok(unchanged) => match partners.orders.rows.ignore_callback(inbox_id, ADDS_NOTHING).await {
            Ok(true) => {
                let mut s = *unchanged.after;
                s.callbacks.retain(|c| c.id != inbox_id);
                Outcome::then_enqueue(timers::derive_jobs(&s))
            }
            Ok(false) => Outcome::Snooze { delay: BUSY_PAUSE },
            Err(e) => db::database_failed(&*partners.core.rng, &e),
        },
        Err(ChangeError::NotFound) => Outcome::done(),
        Err(ChangeError::Refused(refusal)) => Outcome::Retry(refusal.to_string()),
        Err(ChangeError::Busy | ChangeError::NoRoom) => Outcome::Snooze { delay: BUSY_PAUSE },
        Err(ChangeError::Database(e)) => db::database_failed(&*partners.core.rng, &e),
    }
}

/// Returns the attempt that the callback is about: found by its booking, or by our reference. Only the partner's own
/// bookings count, because two partners may use the same id.
fn attempt_of(s: &Snapshot, partner: &PartnerName, body: &CallbackBody) -> Option<i32> {
    let own: Vec<&Booking> = s.bookings.iter().filter(|b| b.partner == *partner).collect();
    let by_booking = own.iter().find(|b| b.booking_id.as_ref() == Some(&body.booking_id));
    by_booking.map(|b| b.attempt_no).or_else(|| {
        let reference = body.reference.as_deref()?.parse::<BookingReference>().ok()?;
        let is_own = reference.order == s.order.id && own.iter().any(|b| b.attempt_no == reference.attempt_no);
        is_own.then_some(reference.attempt_no)
    })
}
