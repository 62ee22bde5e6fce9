//! A driver presses accept.
//! Design: docs/design/accept.md.
//!
//! 1. Pass the gate, so that of a hundred drivers one goes on and the others hear at once. Redis knows the offers of an order, so
//!    this comes before any question to Postgres.
//! 2. Redis does not know the offer: look whether it is live. If not, the full decision says why, and nothing is written; if it
//!    is, take the lock. If Redis does not answer at all, the first at this process goes on, and the others when it is through:
//!    they find the order taken, where each would have tried to write.
//! 3. Decide and write, on the condition that nothing has changed. A driver who fails here gives the gate back. The first who presses
//!    at a process will pass most likely: the order is loaded while Redis is asked.
//! 4. The driver is told. Redis hears of it behind the answer, which need not wait for that: the row is written.
//!
//! If the process dies before 3, the lock ends by itself; after 3, the order is the driver's, and pressing accept again says
//! so.

use std::time::Instant;

use futures_util::FutureExt;
use jobs::OrderId;
use model::{
    actor::Actor,
    decide::{OrderRefusal, actions},
    ids::{DriverId, OfferId},
    order::Snapshot,
};
use tokio::time::timeout;
use tracing::Instrument;

use crate::{
    accept_gate::{self, GateEntry},
    capability::Orders,
    commit::{ChangeError, ChangeOutcome},
    seen::SeenOrder,
    store::write,
    update::{self, RestOfChange},
};
use foundation::crash;

/// Gives order `id` to driver `driver`, who answers `offer`; `by` sent the answer. Repeating it is harmless. Returns once Redis is told
/// of it, too.
pub async fn accept_offer(
    orders: &Orders,
    id: &OrderId,
    driver: &DriverId,
    offer: OfferId,
    by: &Actor,
) -> Result<ChangeOutcome, ChangeError> {
    let (taken, rest) = begin_accept(orders, id, driver, offer, by).await?;
    rest.await;
    Ok(taken)
}

/// As [`accept_offer`], and returns once the order is the driver's. What is left to do goes on behind the answer.
pub async fn accept_offer_at_once(
    orders: &Orders,
    id: &OrderId,
    driver: &DriverId,
    offer: OfferId,
    by: &Actor,
) -> Result<ChangeOutcome, ChangeError> {
    let (taken, rest) = begin_accept(orders, id, driver, offer, by).await?;
    orders.core.behind_answers.spawn(rest.in_current_span());
    Ok(taken)
}

async fn begin_accept(
    orders: &Orders,
    id: &OrderId,
    driver: &DriverId,
    offer: OfferId,
    by: &Actor,
) -> Result<(ChangeOutcome, RestOfChange), ChangeError> {
    let mut loading = None;
    let when_first = || loading = Some((Instant::now(), orders.rows.begin_load(id, offer)));
    let mut entry = accept_gate::present_offer(orders, id, driver, offer, when_first).await;
    let is_looked_up = matches!(entry, GateEntry::Unknown | GateEntry::Silent);
    if is_looked_up && !orders.rows.is_offer_live(offer, id, driver).await? {
        return take_order(orders, id, driver, offer, None, by).await;
    }
    if entry == GateEntry::Unknown {
        entry = accept_gate::enter_gate(&orders.core, id, driver).await;
    }
    match entry {
        GateEntry::Held => return Err(OrderRefusal::ReservationInProgress.into()),
        GateEntry::Taken => return Err(OrderRefusal::AlreadyAssigned.into()),
        GateEntry::Open | GateEntry::Unknown | GateEntry::Silent => {}
    }
    crash::reach_point("accept", "entered");
    let turn = if entry == GateEntry::Silent { orders.gate_views.await_turn(id).await } else { None };
    // What was loaded before another driver's turn is no longer so.
    let seen = match loading {
        Some((asked_at, loading)) if turn.is_some() || entry == GateEntry::Open => {
            loading.await.ok().flatten().map(|order| SeenOrder::asked_at(order, asked_at))
        }
        _ => None,
    };
    let taken = take_order(orders, id, driver, offer, seen, by).await;
    drop(turn);
    match taken {
        // Where a driver holds one live offer at most, by a unique index, there are no others.
        Ok((taken, rest)) if !orders.config.allows_several_offers() => Ok((taken, rest)),
        Ok((taken, rest)) => {
            let withdrawn = withdraw_others_in_time(orders, id, driver);
            Ok((
                taken,
                async move {
                    tokio::join!(rest, withdrawn);
                }
                .boxed(),
            ))
        }
        Err(error) => {
            accept_gate::leave_gate(orders, id, driver, offer).await;
            // Free a moment ago, so another accept of this driver was quicker. Of an offer that Redis knew, that accept
            // withdraws it; a driver who was busy before may be free again before the offer lapses.
            if is_looked_up && matches!(error, ChangeError::Refused(OrderRefusal::DriverBusy)) {
                withdraw_offer(orders, id, offer).await;
            }
            Err(error)
        }
    }
}

/// A driver who is told that the time is over must not get the order after all. An accept sent before may have been decided in
/// time and not be written yet: it must be written, or decide again, before this one is refused.
async fn take_order(
    orders: &Orders,
    id: &OrderId,
    driver: &DriverId,
    offer: OfferId,
    seen: Option<SeenOrder>,
    by: &Actor,
) -> Result<(ChangeOutcome, RestOfChange), ChangeError> {
    let decide = |s: &Snapshot| actions::accept_offer(s, driver, offer).signed_by(by);
    match update::begin_trip(orders, id, offer, seen, decide).await {
        Err(ChangeError::Refused(OrderRefusal::OfferExpired)) => {
            write::outdate_decisions(&orders.core.db, id, offer).await?;
            update::begin_trip(orders, id, offer, None, decide).await
        }
        taken => taken,
    }
}

/// As [`withdraw_others`]. Other orders may keep it waiting; after a while it goes on by itself.
fn withdraw_others_in_time(
    orders: &Orders,
    taken: &OrderId,
    driver: &DriverId,
) -> impl Future<Output = ()> + Send + use<> {
    let (patience, orders, taken, driver) = (orders.core.patience, orders.clone(), taken.clone(), driver.clone());
    let withdrawn = tokio::spawn(async move { withdraw_others(&orders, &taken, &driver).await }.in_current_span());
    async move {
        let _ = timeout(patience, withdrawn).await;
    }
}

/// Other orders need not wait for a driver who is on this one. If it fails, their attempts end at their deadlines.
async fn withdraw_others(orders: &Orders, taken: &OrderId, driver: &DriverId) {
    let others: Result<Vec<(String, OfferId)>, sqlx::Error> = sqlx::query_as(
        "-- other offers
         SELECT order_id, id FROM offers WHERE driver_id = $1 AND state = 'offered' AND order_id <> $2",
    )
    .bind(driver)
    .bind(taken.as_str())
    .fetch_all(&orders.core.db)
    .await;
    match others {
        Ok(others) => {
            for (order, offer) in others {
                if let Ok(order) = order.parse() {
                    withdraw_offer(orders, &order, offer).await;
                }
            }
        }
        Err(error) => {
            tracing::warn!(order.id = %taken, %error, "The other offers of a driver who accepted stay until they lapse.");
        }
    }
}

/// The driver of this offer is on another order.
async fn withdraw_offer(orders: &Orders, order: &OrderId, offer: OfferId) {
    let withdrawn =
        update::update_for_offer(orders, order, offer, |s| actions::withdraw_offer(s, offer, "took another order"))
            .await;
    if let Err(error) = withdrawn {
        tracing::warn!(order.id = %order, %error, "An offer of a driver on another order stays until it lapses.");
    }
}
