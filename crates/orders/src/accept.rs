//! A driver accepts an offer. Design: docs/design/accept.md.
//!
//! 1. Ask the gate in Redis. It lets one of many drivers pass and refuses the others immediately. Redis knows the
//!    offers of an order, so the gate comes before any query to Postgres.
//! 2. If Redis does not know the offer, check in Postgres whether it is live. If it is live, take the lock in Redis. If
//!    it is not, the full decision returns the reason and writes nothing. If Redis does not respond, the first driver
//!    of this process proceeds and the others wait. They then find the order taken instead of trying to write.
//! 3. Decide, and write on condition that the row has not changed. If this fails, release the gate. The order of the
//!    first driver at a process is loaded while Redis is asked, because that driver will probably pass.
//! 4. Respond to the driver. The row is written, so Redis is updated after the response.
//!
//! If the process dies before step 3, the lock expires. If it dies later, the driver has the order, and a repeated
//! accept confirms this.

use std::{mem, time::Instant};

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
    change::ChangeError,
    changed::{Changed, RestOfChange},
    order_store::offers::outdate_decisions,
    seen::{Basis, SeenOrder},
};
use foundation::crash;

/// Assigns order `id` to driver `driver`, who accepts `offer`; `by` is the author of the request. Repeating it is
/// harmless. Returns after Redis has been updated.
pub async fn accept_offer(
    orders: &Orders,
    id: &OrderId,
    driver: &DriverId,
    offer: OfferId,
    by: &Actor,
) -> Result<Changed, ChangeError> {
    let (taken, rest) = begin_accept(orders, id, driver, offer, by).await?;
    rest.await;
    Ok(taken)
}

/// Assigns the order like [`accept_offer`], but returns once the row is written. The rest continues in the background.
pub async fn accept_offer_at_once(
    orders: &Orders,
    id: &OrderId,
    driver: &DriverId,
    offer: OfferId,
    by: &Actor,
) -> Result<Changed, ChangeError> {
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
) -> Result<(Changed, RestOfChange), ChangeError> {
    let mut loading = None;
    let is_kept = orders.kept.has(id, offer, orders.core.clock.now());
    let when_first = || {
        if !is_kept {
            loading = Some((Instant::now(), orders.rows.begin_load(id, offer)));
        }
    };
    let mut entry = accept_gate::present_offer(orders, id, driver, offer, when_first).await;
    let is_looked_up = matches!(entry, GateEntry::Unknown | GateEntry::Silent);
    if is_looked_up && !orders.rows.is_offer_live(offer, id, driver).await? {
        return take_order(orders, id, driver, offer, Basis::Offer(offer), by).await;
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
    // A snapshot that was loaded before another driver's turn is outdated.
    let seen = match loading {
        Some((asked_at, loading)) if turn.is_some() || entry == GateEntry::Open => {
            loading.await.ok().flatten().map(|order| SeenOrder::asked_at(order, asked_at).with_offer(Some(offer)))
        }
        _ => None,
    };
    let basis = seen.map_or(Basis::Offer(offer), SeenOrder::into_basis);
    let taken = take_order(orders, id, driver, offer, basis, by).await;
    drop(turn);
    match taken {
        // A unique index limits the driver to one live offer, so there are no others to withdraw.
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
            // The lookup found the offer live and the driver free, so another accept by this driver was faster. An
            // offer that Redis knew is not looked up. It is not withdrawn here, because the driver may have been busy
            // before and may be free again before it expires. If another accept was faster, that accept withdraws it.
            if is_looked_up && matches!(error, ChangeError::Refused(OrderRefusal::DriverBusy)) {
                withdraw_offer(orders, id, offer).await;
            }
            Err(error)
        }
    }
}

/// Writes the assignment. If the offer has expired, makes sure that the driver does not get the order after the
/// refusal: an earlier accept may have been decided in time and not be written yet. That accept must be written, or
/// decide again, before this one is refused.
async fn take_order(
    orders: &Orders,
    id: &OrderId,
    driver: &DriverId,
    offer: OfferId,
    basis: Basis,
    by: &Actor,
) -> Result<(Changed, RestOfChange), ChangeError> {
    let decide = |s: &Snapshot| actions::accept_offer(s, driver, offer).signed_by(by);
    let mut taken = orders.change(id, basis, decide).await;
    if matches!(taken, Err(ChangeError::Refused(OrderRefusal::OfferExpired))) {
        outdate_decisions(&orders.core.db, id, offer).await?;
        taken = orders.change(id, Basis::Offer(offer), decide).await;
    }
    let mut taken = taken?;
    // The timers are queued now, so those of the order's next change are sent later.
    let rest = mem::take(&mut taken.effects).start(orders);
    Ok((taken, rest))
}

/// Runs [`withdraw_others`] in the background and waits for it up to the patience, because other orders may delay it.
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

/// Withdraws the driver's offers for other orders, so that those orders need not wait. If this fails, their attempts
/// end at their deadlines.
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
            tracing::warn!(order.id = %taken, %error, "The other offers of a driver who accepted could not be withdrawn; they stay until they expire.");
        }
    }
}

/// Withdraws the offer of a driver who took another order.
async fn withdraw_offer(orders: &Orders, order: &OrderId, offer: OfferId) {
    let decide = |s: &Snapshot| actions::withdraw_offer(s, offer, "took another order");
    match orders.change(order, Basis::Offer(offer), decide).await {
        Ok(withdrawn) => withdrawn.effects.run(orders).await,
        Err(error) => {
            tracing::warn!(order.id = %order, %error, "The offer of a driver who took another order could not be withdrawn; it stays until it expires.");
        }
    }
}
