//! `dispatchq driver offers|accept|complete`: what a driver's app does, for trying an installation out by hand.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use jobs::OrderId;
use serde_json::Value;

use crate::cli::{
    order::{cli_operator, print_change},
    output,
    remote::fields::{show_field, show_time},
};
use app::App;
use model::{decide::actions, ids::DriverId, order::OrderStatus};
use orders::{
    accept,
    fleet::drivers::{self, DriverRecord},
    offers::{
        board::WaitOutcome,
        live::{self, LiveOffer},
    },
    store,
    update::update_order,
};

/// Longest wait for an offer, in seconds; the API waits no longer either.
pub(super) const LONGEST_WAIT_SEC: u64 = 50;

const OFFER_HEADINGS: [&str; 6] = ["ORDER", "SERVICE", "PICKUP", "DISTANCE", "EXPIRES", "OFFER"];

/// Prints a driver's live offers. Waits up to `wait` for the first.
pub(super) async fn print_live_offers(app: &App, driver: &DriverId, wait: Duration, json: bool) -> anyhow::Result<()> {
    find_driver(app, driver).await?;
    let known = std::collections::BTreeSet::new();
    let found = app.orders.offers.wait_for_offers((&app.core.db, &app.core.loops), driver, &known, wait).await?;
    let WaitOutcome::Offers(offers) = found else { bail!("two other requests of {driver} wait for offers; try again") };
    print_offers(&serde_json::to_value(offers)?, driver, json)
}

/// Prints offers as the API writes them.
pub(super) fn print_offers(offers: &Value, driver: &DriverId, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(offers);
    }
    let rows = offers.as_array().into_iter().flatten().map(|offer| {
        let metres = offer["distance_m"].as_f64().map_or_else(|| "-".to_owned(), |metres| format!("{metres:.0} m"));
        [
            show_field(offer, "order_id"),
            show_field(offer, "service_type"),
            output::format_place(&offer["pickup"]),
            metres,
            show_time(offer, "expires_at"),
            show_field(offer, "offer_id"),
        ]
    });
    output::print_rows(&OFFER_HEADINGS, rows, &no_offers(driver));
    Ok(())
}

/// Takes an order for its driver: the oldest offer, or the offer of `order`.
pub(super) async fn accept_order(app: &App, driver: &DriverId, order: Option<&OrderId>) -> anyhow::Result<()> {
    find_driver(app, driver).await?;
    let offers = live::live_offers(&app.core.db, driver).await?;
    let wanted = offers.into_iter().find(|offer| order.is_none_or(|order| offer.order_id == order.as_str()));
    let LiveOffer { offer_id, order_id, .. } = wanted.with_context(|| no_offer(driver, order))?;
    let id: OrderId = order_id.parse()?;
    let taken = accept::accept_offer(&app.orders, &id, driver, offer_id, &cli_operator()).await;
    print_change(&id, &taken.with_context(|| format!("{id} was not accepted"))?);
    Ok(())
}

/// Completes the trip of a driver. Records the pickup first where that is still to be done.
pub(super) async fn complete_order(app: &App, driver: &DriverId, order: Option<&OrderId>) -> anyhow::Result<()> {
    let active = find_driver(app, driver).await?.active_order;
    let id = named_order(driver, order, active.as_deref())?;
    let loaded =
        store::load_order(&app.core.db, &id).await?.with_context(|| super::super::order::no_such_order(&id))?;
    let by = cli_operator();
    if loaded.order.status == OrderStatus::DriverAssigned {
        let picked_up = update_order(&app.orders, &id, |s| actions::record_pickup(s, driver).signed_by(&by)).await;
        print_change(&id, &picked_up.with_context(|| format!("{id} was not changed"))?);
    }
    let completed = update_order(&app.orders, &id, |s| actions::complete_trip(s, driver).signed_by(&by)).await;
    print_change(&id, &completed.with_context(|| format!("{id} was not changed"))?);
    Ok(())
}

/// Returns the order that is named, or the one that the driver has.
pub(super) fn named_order(driver: &DriverId, named: Option<&OrderId>, active: Option<&str>) -> anyhow::Result<OrderId> {
    match (named, active) {
        (Some(order), _) => Ok(order.clone()),
        (None, Some(active)) => Ok(active.parse()?),
        (None, None) => bail!("{driver} has no order; accept one first: dispatchq driver accept {driver}"),
    }
}

async fn find_driver(app: &App, driver: &DriverId) -> anyhow::Result<DriverRecord> {
    let found = drivers::find_driver(&app.core.db, driver).await?;
    let found = found.with_context(|| super::no_such_driver(driver))?;
    ensure!(found.disabled_at.is_none(), "{driver} is disabled; see: dispatchq driver enable {driver}");
    Ok(found)
}

/// The refusal to accept what is not offered.
pub(super) fn no_offer(driver: &DriverId, order: Option<&OrderId>) -> String {
    let offers = format!("see: dispatchq driver offers {driver} --wait 30");
    match order {
        Some(order) => format!("{driver} has no offer of {order}; {offers}"),
        None => format!("{driver} has no offer; {offers}"),
    }
}

fn no_offers(driver: &DriverId) -> String {
    format!("No offers for {driver}. Wait for one: dispatchq driver offers {driver} --wait 30")
}
