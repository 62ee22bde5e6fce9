//! Lengths on a map, and the rectangle around places.

use model::ids::LatLng;

pub(super) const METRES_PER_DEGREE: f64 = 111_195.0;

/// Returns the south-west and north-east corners of the rectangle around places; `None` if there are none.
pub(super) fn bounds_of<'a>(places: impl Iterator<Item = &'a LatLng>) -> Option<(LatLng, LatLng)> {
    let mut bounds: Option<(LatLng, LatLng)> = None;
    for place in places.filter(|place| place.is_on_earth()) {
        let (low, high) = bounds.get_or_insert((*place, *place));
        *low = LatLng::new(low.lat.min(place.lat), low.lng.min(place.lng));
        *high = LatLng::new(high.lat.max(place.lat), high.lng.max(place.lng));
    }
    bounds
}

/// Returns the largest number of the form 1, 2 or 5 times a power of ten that is not greater than `metres`.
pub(crate) fn round_step(metres: f64) -> f64 {
    let base = 10_f64.powf(metres.max(1.0).log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|step| step * base).find(|step| *step <= metres * 1.000_001).unwrap_or(base)
}
