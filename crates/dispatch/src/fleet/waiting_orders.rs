//! Orders that wait for a driver, and drivers who come to be free.
//!
//! An order that found no driver has its timer, which is the truth: its search is repeated after the pause, together with those of
//! other orders, and while it finds none nothing is written (`wait_on`). A driver who may be free again does not wait for such a
//! search: every worker process looks four times a second at the drivers of `orders::freed_drivers` and asks them for the oldest orders near
//! them ([`match_freed_drivers`]). The offer is made as every other: on the row's version, so that the order's own search and this one
//! may meet, and under the driver's lock. A process that dies with drivers it has taken leaves them to the searches.

use std::{collections::BTreeSet, time::Duration};

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
use workers::{Outcome, store::Takeable};

use crate::{
    admission::check,
    app::App,
    db,
    error::ServiceError,
    fleet::candidates,
    loops::report_progress,
    offers::free_drivers::{self, SearchTerms},
    orders::{commit, freed_drivers, store::write::ApplyError, update},
};

/// How often freed drivers are looked at. With what the look and the offer take it bounds how long a driver waits.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Drivers of one look.
const MOST_DRIVERS: usize = 100;
/// Offers made at the same time: jobs need the connections, too.
const AT_ONCE: usize = 8;

/// Returns for how long the order waits on: it waits for a driver, there is still none, and nothing is to be written. `None`: it is
/// to be searched for in full.
pub(crate) async fn wait_on(app: &App, s: &Snapshot) -> Result<Option<Duration>, Outcome> {
    if s.order.search_pause().is_none() {
        return Ok(None);
    }
    let policy = check::policy_for_pause(app, &s.order).await;
    let Some(next) = decide::next_unwritten_search(s, &policy) else { return Ok(None) };
    let has_driver = app.free_drivers.has_driver(&s.order.id, SearchTerms::from(&policy)).await;
    let has_driver = has_driver.map_err(|error| db::database_failed(&*app.rng, &error))?;
    Ok((!has_driver).then(|| timers::time_until(next, s.now)))
}

/// Looks at freed drivers until told to stop.
pub async fn run(app: App, stop: CancellationToken) {
    let turns = app.loops.register_loop("waiting orders");
    let mut failing = false;
    loop {
        let pause = match turns.run_turn(match_freed_drivers(&app)).await {
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
pub async fn match_freed_drivers(app: &App) -> Result<usize, ServiceError> {
    if !freed_drivers::is_any_freed(app).await?
        || app.store.takeable().await? == Takeable::Nothing
        || app.store.is_queue_paused(jobs::queues::DISPATCH).await?
    {
        return Ok(0);
    }
    let drivers = freed_drivers::take_freed(app, MOST_DRIVERS).await?;
    if drivers.is_empty() {
        return Ok(0);
    }
    match offer_waiting_orders(app, &drivers).await {
        Ok(()) => Ok(drivers.len()),
        Err(error) => {
            freed_drivers::record_freed(app, &drivers).await;
            Err(error.into())
        }
    }
}

async fn offer_waiting_orders(app: &App, drivers: &[DriverId]) -> Result<(), sqlx::Error> {
    let terms: Vec<_> = app
        .config
        .service_types
        .keys()
        .map(|name| (name.clone(), SearchTerms::from(&app.config.policy_for_type(name))))
        .collect();
    let near = free_drivers::orders_near(&app.db, drivers, &terms).await?;
    for (driver, secs) in near.cooling {
        let delay = Duration::try_from_secs_f64(secs).unwrap_or_default();
        freed_drivers::record_freed_in(app, &[driver], delay).await;
    }
    let mut again = BTreeSet::new();
    for pairs in deal_drivers(near.pairs).chunks(AT_ONCE) {
        let mut offers = JoinSet::new();
        for pair in pairs {
            offers.spawn(offer_order(app.clone(), pair.clone()));
        }
        let mut failure = None;
        while let Some(offered) = offers.join_next().await {
            match offered {
                Ok(Ok(driver)) => again.extend(driver),
                Ok(Err(error)) => failure = Some(error),
                Err(error) => tracing::error!(%error, "An offer to a driver who is free panicked."),
            }
        }
        // Postgres takes no writes, say: the others would fare no better.
        if let Some(error) = failure {
            return Err(error);
        }
        report_progress();
    }
    let again: Vec<DriverId> = again.into_iter().collect();
    freed_drivers::record_freed(app, &again).await;
    Ok(())
}

/// Asks the driver for the order, if both are still as they were seen. Returns the driver if there may be more orders to ask for. An
/// order that cannot be written is left to its own search, and its driver to the searches: the next look would deal it first again.
async fn offer_order(app: App, pair: OpenPair) -> Result<Option<DriverId>, sqlx::Error> {
    match try_offer_order(&app, &pair).await {
        Ok(is_open) => Ok(is_open.then_some(pair.driver_id)),
        Err(ApplyError::Database(error)) if db::ends_the_pass(&error) => Err(error),
        Err(error) => {
            tracing::debug!(order.id = %pair.order_id, %error, "A driver who is free could not be asked; searches go on.");
            Ok(None)
        }
    }
}

async fn try_offer_order(app: &App, pair: &OpenPair) -> Result<bool, ApplyError> {
    let Some(s) = app.orders.load_order(&pair.order_id).await? else { return Ok(true) };
    if !decide::awaits_driver(&s) {
        return Ok(true);
    }
    let policy = app.policy_for_order(&s.order);
    let ranking = candidates::rank_driver(app, &s, &policy, &pair.driver_id).await?;
    if ranking.ranked.is_empty() {
        return Ok(false);
    }
    match commit::apply_change(app, &s, decide::start_attempt(&s, ranking, &policy)).await {
        Ok(after) => {
            let superseded = superseded_timers(&s, &after);
            update::send_jobs(app, &pair.order_id, timers::derive_jobs(&after), superseded).await;
            Ok(policy.offers_per_driver > 1)
        }
        // The order has changed, or the driver is taken: the next look knows.
        Err(ApplyError::Conflict) => Ok(true),
        Err(error) => Err(error),
    }
}
