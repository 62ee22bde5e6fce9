//! Map of an order: its pickup and the drivers around it.

use std::collections::BTreeMap;

use crate::{
    map::{DriverMark, DriverPart, draw_order},
    page_error::PageError,
};
use desk::explain::OrderExplanation;
use foundation::core::Core;
use model::{
    ids::DriverId,
    order::{OfferState, OrderStatus},
};
use orders::fleet::drivers;

/// Maximum number of offers whose drivers are on the map, the latest first.
const MAPPED_OFFERS: usize = 30;

/// Draws the pickup, own drivers with an offer, and a line to the driver of the order.
pub(super) async fn draw_map(core: &Core, explained: &OrderExplanation) -> Result<String, PageError> {
    let has_it = explained.order.driver_id.as_ref();
    // The latest offer to a driver decides.
    let mut parts: BTreeMap<&DriverId, DriverPart> = BTreeMap::new();
    for offer in explained.offers.iter().rev().take(MAPPED_OFFERS) {
        let part = if offer.state == OfferState::Offered { DriverPart::Asked } else { DriverPart::WasAsked };
        parts.entry(&offer.driver_id).or_insert(part);
    }
    parts.extend(has_it.map(|driver| (driver, DriverPart::Has)));
    let ids: Vec<DriverId> = parts.keys().copied().cloned().collect();
    let places = if ids.is_empty() { Vec::new() } else { drivers::list_places(&core.db, &ids).await? };
    let marks = places.into_iter().filter_map(|(id, place)| {
        let part = parts.get(&id).copied()?;
        Some(DriverMark { id: id.into_string(), place, part })
    });
    let marks: Vec<_> = marks.collect();
    Ok(draw_order(explained.pickup, &marks, explained.order.status == OrderStatus::PickedUp))
}
