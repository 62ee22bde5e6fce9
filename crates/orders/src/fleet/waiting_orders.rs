//! Orders that wait for a driver, and drivers who come to be free.
//! Design: docs/design/offers-and-search.md.
//!
//! An order that found no driver has its timer, which is the truth: its search is repeated after the pause, together with those of
//! other orders, and while it finds none nothing is written (`wait_on`). A driver who may be free again does not wait for such a
//! search: every worker process looks four times a second at the drivers of `orders::freed_drivers` and asks them for the oldest orders near
//! them ([`match_freed_drivers`]). The offer is made as every other: on the row's version, so that the order's own search and this one
//! may meet, and under the driver's lock. A process that dies with drivers it has taken leaves them to the searches.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use jobs::OrderId;
use model::{
    decide::{superseded::superseded_timers, timers},
    fleet::{
        deal::{OpenPair, deal_drivers},
        decide,
    },
    ids::DriverId,
    order::Snapshot,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    capability::Orders,
    commit,
    fleet::candidates,
    freed_drivers,
    offers::free_drivers::{self, SearchTerms},
    store::write::ApplyError,
    update,
};
use areas::admission::check;
use foundation::{db, error::ServiceError, loops::report_progress};
use queue::{Outcome, store::Takeable};

/// How often freed drivers are looked at. With what the look and the offer take it bounds how long a driver waits.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Drivers of one look. Each may need as many orders as there are drivers, so what they cost grows with the square: further drivers
/// have the next look, which follows at once.
const MOST_DRIVERS: usize = 25;
/// Offers made at the same time: jobs need the connections, too.
const AT_ONCE: usize = 8;

/// Returns for how long the order waits on: it waits for a driver, there is still none, and nothing is to be written. `None`: it is
/// to be searched for in full.
pub async fn wait_on(orders: &Orders, s: &Snapshot) -> Result<Option<Duration>, Outcome> {
    if s.order.search_pause().is_none() {
        return Ok(None);
    }
    let policy = check::policy_for_pause(&orders.areas, &s.order).await;
    let Some(next) = decide::next_unwritten_search(s, &policy) else { return Ok(None) };
    let has_driver = orders.free_drivers.has_driver(&s.order.id, SearchTerms::from(&policy)).await;
    let has_driver = has_driver.map_err(|error| db::database_failed(&*orders.core.rng, &error))?;
    Ok((!has_driver).then(|| timers::time_until(next, s.now)))
}

/// Looks at freed drivers until told to stop.
pub async fn run(orders: Orders, stop: CancellationToken) {
    let turns = orders.core.loops.register_loop("waiting orders");
    let mut failing = false;
    loop {
        let pause = match turns.run_turn(match_freed_drivers(&orders)).await {
            Some(Ok(looked_at)) => {
                failing = false;
                if looked_at == MOST_DRIVERS { Duration::ZERO } else { LOOK_EVERY }
            }
            Some(Err(error)) => {
                if !failing {
                    tracing::warn!(%error, "Drivers who are free again could not be looked at; orders search by themselves.");
                }
                failing = true;
                PAUSE_AFTER_FAILURE
            }
            None => PAUSE_AFTER_FAILURE,
        };
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Asks drivers who are free again for the oldest orders that wait near them. Returns how many drivers were looked at; none while an
/// operator has the searches stopped, whose part this is. A Redis that has lost its data does not know that, until a
/// rebuild has put it back: it does so before workers may take a job.
pub async fn match_freed_drivers(orders: &Orders) -> Result<usize, ServiceError> {
    if !freed_drivers::is_any_freed(&orders.core).await?
        || orders.core.store.takeable().await? == Takeable::Nothing
        || orders.core.store.is_queue_paused(jobs::queues::DISPATCH).await?
        // Also an order whose attempt is over is asked for.
        || orders.core.store.is_queue_paused(jobs::queues::DISPATCH_TIMEOUT).await?
    {
        return Ok(0);
    }
    let drivers = freed_drivers::take_freed(&orders.core, MOST_DRIVERS).await?;
    if drivers.is_empty() {
        return Ok(0);
    }
    match offer_waiting_orders(orders, &drivers).await {
        Ok(()) => Ok(drivers.len()),
        Err(error) => {
            freed_drivers::record_freed(&orders.core, &drivers).await;
            Err(error.into())
        }
    }
}

async fn offer_waiting_orders(orders: &Orders, drivers: &[DriverId]) -> Result<(), sqlx::Error> {
    let terms: Vec<_> = orders
        .config
        .service_types
        .keys()
        .map(|name| (name.clone(), SearchTerms::from(&orders.config.policy_for_type(name))))
        .collect();
    let near = free_drivers::orders_near(&orders.core.batches, drivers, &terms).await?;
    for (driver, secs) in near.cooling {
        let delay = Duration::try_from_secs_f64(secs).unwrap_or_default();
        freed_drivers::record_freed_in(&orders.core, &[driver], delay).await;
    }
    let (mut open, mut again) = (near.pairs, BTreeSet::new());
    // Drivers whose order cannot be written are dealt what is left: an order that never can be keeps no driver from the others.
    while !open.is_empty() {
        let dealt = deal_drivers(open.clone());
        let mut without = HashSet::new();
        for pairs in dealt.chunks(AT_ONCE) {
            for (driver, offered) in offer_orders(orders, pairs).await? {
                match offered {
                    OfferAttemptEnd::Settled => {}
                    OfferAttemptEnd::LookAgain => {
                        again.insert(driver);
                    }
                    OfferAttemptEnd::NotWritable => {
                        without.insert(driver);
                    }
                }
            }
            report_progress();
        }
        let orders: HashSet<OrderId> = dealt.into_iter().map(|pair| pair.order_id).collect();
        open.retain(|pair| without.contains(&pair.driver_id) && !orders.contains(&pair.order_id));
    }
    let again: Vec<DriverId> = again.into_iter().collect();
    freed_drivers::record_freed(&orders.core, &again).await;
    Ok(())
}

/// What came of asking a driver for an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfferAttemptEnd {
    /// The driver is asked as often as one may be, or is free no more.
    Settled,
    /// One of the two has changed, or the driver may be asked for another order as well.
    LookAgain,
    /// The order alone cannot be written. It is left to its own search.
    NotWritable,
}

/// Asks these drivers for their orders at the same time. Fails if none fares better, because Postgres takes no writes, say.
async fn offer_orders(orders: &Orders, pairs: &[OpenPair]) -> Result<Vec<(DriverId, OfferAttemptEnd)>, sqlx::Error> {
    let mut offers = JoinSet::new();
    for pair in pairs {
        offers.spawn(offer_order(orders.clone(), pair.clone()));
    }
    let (mut ends, mut failure) = (Vec::with_capacity(pairs.len()), None);
    while let Some(offered) = offers.join_next().await {
        match offered {
            Ok(Ok(end)) => ends.push(end),
            Ok(Err(error)) => failure = Some(error),
            Err(error) => tracing::error!(%error, "An offer to a driver who is free panicked."),
        }
    }
    failure.map_or(Ok(ends), Err)
}

/// Asks the driver for the order, if both are still as they were seen.
async fn offer_order(orders: Orders, pair: OpenPair) -> Result<(DriverId, OfferAttemptEnd), sqlx::Error> {
    let end = match try_offer_order(&orders, &pair).await {
        Ok(end) => end,
        Err(ApplyError::Database(error)) if db::ends_the_pass(&error) => return Err(error),
        Err(error) => {
            tracing::debug!(order.id = %pair.order_id, %error, "A driver who is free could not be asked; searches go on.");
            OfferAttemptEnd::NotWritable
        }
    };
    Ok((pair.driver_id, end))
}

async fn try_offer_order(orders: &Orders, pair: &OpenPair) -> Result<OfferAttemptEnd, ApplyError> {
    let Some(s) = orders.rows.load_order(&pair.order_id).await? else { return Ok(OfferAttemptEnd::LookAgain) };
    if !decide::awaits_driver(&s) {
        return Ok(OfferAttemptEnd::LookAgain);
    }
    let policy = orders.areas.policy_for_order(&s.order);
    let ranking = candidates::rank_driver(&orders.core, &s, &policy, &pair.driver_id).await?;
    if ranking.ranked.is_empty() {
        // Whatever took the driver meanwhile notes the driver again when it is over.
        return Ok(OfferAttemptEnd::Settled);
    }
    match commit::apply_change(orders, &s, decide::offer_to_freed(&s, ranking, &policy)).await {
        Ok(after) => {
            let superseded = superseded_timers(&s, &after);
            update::send_jobs(orders, &pair.order_id, timers::derive_jobs(&after), superseded).await;
            Ok(if policy.offers_per_driver > 1 { OfferAttemptEnd::LookAgain } else { OfferAttemptEnd::Settled })
        }
        // The order has changed, or the driver is taken: the next look knows.
        Err(ApplyError::Conflict) => Ok(OfferAttemptEnd::LookAgain),
        Err(error) => Err(error),
    }
}
