//! Places, notes and contact of an order, as the page shows them.

use model::{details::OrderPlace, ids::LatLng, view::OrderView};
use orders::offers::live::LiveOffer;

use crate::shown::{Moment, describe_place};

/// A place with its link to the map of the device.
pub(super) struct ShownPlace {
    /// Address, or the coordinates if the producer sent none.
    pub(super) text: String,
    /// Address of RFC 5870.
    pub(super) map: String,
}

impl ShownPlace {
    fn new(place: OrderPlace) -> Self {
        let OrderPlace { latitude, longitude, address } = place;
        let text = address.unwrap_or_else(|| describe_place(LatLng::new(latitude, longitude)));
        Self { text, map: format!("geo:{latitude},{longitude}?q={latitude},{longitude}") }
    }
}

/// Contents of an order that its driver sees.
pub(super) struct ShownContents {
    pub(super) pickup: Option<ShownPlace>,
    pub(super) dropoff: Option<ShownPlace>,
    pub(super) pickup_at: Option<Moment>,
    pub(super) notes: Option<String>,
    /// Required labels, separated by commas; empty if there are none.
    pub(super) requires: String,
}

impl ShownContents {
    pub(super) fn of_offer(offer: LiveOffer) -> Self {
        Self {
            pickup: Some(ShownPlace::new(offer.pickup)),
            dropoff: offer.dropoff.map(ShownPlace::new),
            pickup_at: None,
            notes: offer.notes,
            requires: offer.requires.join(", "),
        }
    }

    pub(super) fn of_order(order: OrderView) -> Self {
        Self {
            pickup: order.pickup.map(ShownPlace::new),
            dropoff: order.dropoff.map(ShownPlace::new),
            pickup_at: order.pickup_at.map(Moment),
            notes: order.notes,
            requires: order.requires.into_iter().collect::<Vec<_>>().join(", "),
        }
    }
}
