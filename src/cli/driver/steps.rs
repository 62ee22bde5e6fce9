//! `dispatchq driver offers|accept|complete`: the actions of a driver's app, to try an installation by hand. Also the output
//! of `driver sign-in`.

use anyhow::bail;
use jobs::OrderId;
use serde_json::Value;

use crate::cli::{
    output,
    remote::fields::{show_field, show_time},
};
use model::ids::DriverId;

/// Longest wait for an offer, in seconds. The API has the same limit.
pub(super) const LONGEST_WAIT_SEC: u64 = 50;

const OFFER_HEADINGS: [&str; 6] = ["ORDER", "SERVICE", "PICKUP", "DISTANCE", "EXPIRES", "OFFER"];

/// Prints offers in the format of the API.
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

/// Prints a sign-in link in the format of the API.
pub(super) fn print_link(link: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(link);
    }
    for (label, value) in [
        ("Link", show_field(link, "url")),
        ("Code", show_field(link, "code")),
        ("Expires", show_time(link, "expires_at")),
    ] {
        output::print_escaped(&format!("{label:<9} {value}"));
    }
    Ok(())
}

/// Returns the given order, or the driver's active order.
pub(super) fn named_order(driver: &DriverId, named: Option<&OrderId>, active: Option<&str>) -> anyhow::Result<OrderId> {
    match (named, active) {
        (Some(order), _) => Ok(order.clone()),
        (None, Some(active)) => Ok(active.parse()?),
        (None, None) => bail!("{driver} has no order; accept one first: dispatchq driver accept {driver}"),
    }
}

/// Returns the error for an accept without an offer.
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
