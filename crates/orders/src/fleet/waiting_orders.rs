//! Matching of orders that wait for a driver with drivers who become free. Design: docs/design/offers-and-search.md.
//!
//! An order without a driver has a timer, which is authoritative: its search is repeated after the pause, in a batch
//! with other searches. A search that finds no driver writes nothing (`wait_on`).
//!
//! Drivers who may be free again do not wait for such a search. Four times a second every worker process takes drivers
//! from `orders::freed_drivers` and offers them the oldest orders near them ([`match_freed_drivers`]). Such an offer is
//! made like any other, conditional on the row's version and under the driver's lock. It may therefore overlap with the
//! order's own search. If the process dies, the searches handle the drivers it has taken.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use jobs::OrderId;
use model::{
    decide::timers,
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
    change::{ChangeError, decided},
    fleet::candidates,
    freed_drivers,
    offers::free_drivers::{self, SearchTerms},
    seen::{Basis, SeenOrder},
};
use areas::admission::check;
use foundation::{db, error::ServiceError, loops::report_progress};
use queue::store::Takeable;

/// Interval of the checks for freed drivers. Together with the check and the offer it bounds a driver's wait.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Maximum drivers per check. Each driver may need as many orders as there are drivers, so the cost grows
/// quadratically. The next check follows immediately for the remaining drivers.
const MOST_DRIVERS: usize = 25;
/// Maximum concurrent offers. Jobs need connections, too.
const AT_ONCE: usize = 8;

/// Returns the time until the order's next search if it waits for a driver, there is none, and nothing needs to be
/// written. Returns `None` if a full search is required.
pub async fn wait_on(orders: &Orders, s: &Snapshot) -> Result<Option<Duration>, sqlx::Error> {
    if s.order.search_pause().is_none() {
        return Ok(None);
    }
    let policy = check::policy_for_pause(&orders.areas, &s.order).await;
    let Some(next) = decide::next_unwritten_search(s, &policy) else { return Ok(None) };
    let has_driver = orders.free_drivers.has_driver(&s.order.id, SearchTerms::from(&policy)).await?;
    Ok((!has_driver).then(|| timers::time_until(next, s.now)))
}

/// Matches freed drivers until `stop`.
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
                    tracing::warn!(%error, "Freed drivers could not be matched; orders continue to search.");
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

/// Offers freed drivers the oldest orders that wait near them. Returns the number of drivers checked: 0 while an
/// operator has paused the searches. A Redis that lost its data has lost the pause too, but the rebuild restores it
/// before workers may take a job.
pub async fn match_freed_drivers(orders: &Orders) -> Result<usize, ServiceError> {
    if !freed_drivers::is_any_freed(&orders.core).await?
        || orders.core.store.takeable().await? == Takeable::Nothing
        || orders.core.store.is_queue_paused(jobs::queues::DISPATCH).await?
        // Orders whose attempt has ended are matched too. They are the work of this queue, so its pause counts.
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
            freed_drivers::record_freed(&orders.core, &drivers, Duration::ZERO).await;
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
        freed_drivers::record_freed(&orders.core, &[driver], delay).await;
    }
    let (mut open, mut again) = (near.pairs, BTreeSet::new());
    // If an order cannot be written, its driver is matched with the remaining orders. An order that can never be
    // written thus does not block the driver.
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
    freed_drivers::record_freed(&orders.core, &again, Duration::ZERO).await;
    Ok(())
}

/// Result of an offer to a freed driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfferAttemptEnd {
    /// The driver has the maximum number of offers, or is no longer free.
    Settled,
    /// The order or the driver has changed, or the driver may get a further offer.
    LookAgain,
    /// Only this order cannot be written. It is left to its own search.
    NotWritable,
}

/// Offers the orders to these drivers concurrently. Returns an error that would affect every offer, for example if
/// Postgres accepts no writes.
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
            Err(error) => tracing::error!(%error, "An offer to a freed driver panicked."),
        }
    }
    failure.map_or(Ok(ends), Err)
}

/// Offers the order to the driver if neither has changed.
async fn offer_order(orders: Orders, pair: OpenPair) -> Result<(DriverId, OfferAttemptEnd), sqlx::Error> {
    let end = match try_offer_order(&orders, &pair).await {
        Ok(end) => end,
        Err(ChangeError::Database(error)) if db::ends_the_pass(&error) => return Err(error),
        Err(error) => {
            tracing::debug!(order.id = %pair.order_id, %error, "A freed driver could not get an offer; orders continue to search.");
            OfferAttemptEnd::NotWritable
        }
    };
    Ok((pair.driver_id, end))
}

async fn try_offer_order(orders: &Orders, pair: &OpenPair) -> Result<OfferAttemptEnd, ChangeError> {
    let Some(s) = orders.rows.load_order(&pair.order_id).await? else { return Ok(OfferAttemptEnd::LookAgain) };
    if !decide::awaits_driver(&s) {
        return Ok(OfferAttemptEnd::LookAgain);
    }
    let policy = orders.areas.policy_for_order(&s.order);
    let ranking = candidates::rank_driver(&orders.candidates, &s, &policy, &pair.driver_id).await?;
    if ranking.ranked.is_empty() {
        // The driver is recorded as freed again when the current order or offer ends.
        return Ok(OfferAttemptEnd::Settled);
    }
    let offer = decided(decide::offer_to_freed(&s, ranking, &policy));
    let changed = orders.change(&pair.order_id, Basis::Seen(Box::new(SeenOrder::new(s))), offer).await?;
    if !changed.is_written() {
        // The order has changed or the driver is taken; the next check decides.
        return Ok(OfferAttemptEnd::LookAgain);
    }
    changed.effects.run(orders).await;
    Ok(if policy.offers_per_driver > 1 { OfferAttemptEnd::LookAgain } else { OfferAttemptEnd::Settled })
}
