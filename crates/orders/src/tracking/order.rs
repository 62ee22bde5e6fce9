//! The part of an order that the page of a tracking link shows.

use model::{ids::LatLng, order::OrderStatus};
use sqlx::{FromRow, Row, postgres::PgRow};

use super::token::TokenOrder;
use foundation::db::Pool;

/// Size of the grid on which the page shows a driver, in metres.
pub const GRID_M: f64 = 50.0;
/// Metres of one degree of latitude.
const METRES_PER_DEGREE: f64 = 111_195.0;

/// An open order.
#[expect(missing_debug_implementations, reason = "the driver's name appears in no log")]
pub struct TrackedOrder {
    pub status: OrderStatus,
    pub pickup: LatLng,
    /// Driver of your own fleet who carries out the order.
    pub driver: Option<TrackedDriver>,
}

/// The driver of a tracked order.
#[expect(missing_debug_implementations, reason = "the driver's name appears in no log")]
pub struct TrackedDriver {
    pub first_name: Option<String>,
    /// Last known place, on the grid.
    pub place: LatLng,
}

impl TrackedDriver {
    fn new(name: Option<&str>, place: LatLng) -> Self {
        let first_name = name.and_then(|name| name.split_whitespace().next()).map(str::to_owned);
        Self { first_name, place: snap_to_grid(place) }
    }
}

impl FromRow<'_, PgRow> for TrackedOrder {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let place = row.try_get::<Option<f64>, _>("lat")?.zip(row.try_get("lng")?);
        let name: Option<String> = row.try_get("name")?;
        Ok(Self {
            status: row.try_get("status")?,
            pickup: LatLng::new(row.try_get("pickup_lat")?, row.try_get("pickup_lng")?),
            driver: place.map(|(lat, lng)| TrackedDriver::new(name.as_deref(), LatLng::new(lat, lng))),
        })
    }
}

/// Returns the order of a token; `None` if it has ended or does not exist. A driver of a partner has no row, so the
/// page shows none.
pub async fn find_tracked(db: &Pool, order: &TokenOrder) -> Result<Option<TrackedOrder>, sqlx::Error> {
    sqlx::query_as(
        "-- tracked order
         SELECT o.status, o.pickup_lat, o.pickup_lng, d.name, d.lat, d.lng
         FROM orders o LEFT JOIN drivers d ON d.id = o.driver_id AND o.on_trip AND o.partner IS NULL
         WHERE o.id = $1 AND o.created_at = $2 AND o.closed_at IS NULL",
    )
    .bind(order.id.as_str())
    .bind(order.created_at)
    .fetch_optional(db)
    .await
}

/// Returns the nearest point of a grid of [`GRID_M`] metres.
fn snap_to_grid(place: LatLng) -> LatLng {
    let snap = |degrees: f64, step: f64, most: f64| ((degrees / step).round() * step).clamp(-most, most);
    let step = GRID_M / METRES_PER_DEGREE;
    let lat = snap(place.lat, step, 90.0);
    // Depends only on the row of the grid, so all places of a cell have one point.
    let shrink = lat.to_radians().cos().max(0.01);
    LatLng::new(lat, snap(place.lng, step / shrink, 180.0))
}

#[cfg(test)]
mod tests {
    use geo::{Distance, Haversine};

    use super::*;

    fn distance_m(one: LatLng, other: LatLng) -> f64 {
        Haversine.distance(one.as_point(), other.as_point())
    }

    #[test]
    fn snapped_place_is_near_the_place() {
        for lat in [-90.0, -66.6, -6.2088, 0.0, 51.477_928, 89.99] {
            for lng in [-180.0, -0.0001, 0.0, 106.8456, 179.999_99] {
                let (place, snapped) = (LatLng::new(lat, lng), snap_to_grid(LatLng::new(lat, lng)));
                assert!(snapped.is_on_earth() && distance_m(place, snapped) < 36.0, "{place:?} {snapped:?}");
            }
        }
    }

    #[test]
    fn places_of_one_cell_have_one_point() {
        let middle = snap_to_grid(LatLng::new(-6.2088, 106.8456));
        let tenth = 5.0 / METRES_PER_DEGREE;
        for (up, right) in [(4.0, 4.0), (-4.0, 4.0), (4.0, -4.0), (-4.0, -4.0), (0.0, 0.0)] {
            assert_eq!(snap_to_grid(LatLng::new(middle.lat + up * tenth, middle.lng + right * tenth)), middle);
        }
        let next = snap_to_grid(LatLng::new(middle.lat + 6.0 * tenth, middle.lng));
        assert!(((next.lat - middle.lat) * METRES_PER_DEGREE - GRID_M).abs() < 0.1, "{next:?}");
    }

    #[test]
    fn only_the_first_name_is_shown() {
        let place = LatLng::new(0.0, 0.0);
        for (name, shown) in [(Some(" Ana  Maria Santos"), Some("Ana")), (Some("Budi"), Some("Budi")), (None, None)] {
            assert_eq!(TrackedDriver::new(name, place).first_name.as_deref(), shown);
        }
    }
}
