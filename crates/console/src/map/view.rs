//! The part of the earth that the map of the fleet shows, and its address.

use desk::reports::fleet_map::MapBounds;
use model::ids::LatLng;

use super::measure::{METRES_PER_DEGREE, bounds_of};
use crate::form::write_query;

pub(super) const WIDTH: f64 = 960.0;
pub(super) const HEIGHT: f64 = 540.0;
/// Smallest and largest width of a view, in metres.
const WIDTHS: (f64, f64) = (200.0, 40_000_000.0);
/// Width of a view that was fitted to places close to each other, in metres.
const NARROWEST_FIT: f64 = 2_000.0;
/// Space around fitted places.
const SPACE: f64 = 1.15;
/// A view near a pole would have a degree of longitude of almost no length.
const LAST_LATITUDE: f64 = 85.0;

/// A part of the earth. North is up, and a kilometre has the same length in all directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MapView {
    pub(super) centre: LatLng,
    /// Metres from the west edge to the east edge.
    pub(super) width_m: f64,
}

impl MapView {
    /// Returns a view. Values outside their ranges become the nearest allowed ones.
    fn new(centre: LatLng, width_m: f64) -> Self {
        let lat = centre.lat.clamp(-LAST_LATITUDE, LAST_LATITUDE);
        let is_on_earth = (-180.0..=180.0).contains(&centre.lng);
        let lng = if is_on_earth { centre.lng } else { (centre.lng + 540.0).rem_euclid(360.0) - 180.0 };
        Self { centre: LatLng::new(lat, lng), width_m: width_m.clamp(WIDTHS.0, WIDTHS.1) }
    }

    /// Parses the centre, such as `-6.2, 106.8`, and the width in kilometres. Returns `None` if one of them is invalid.
    pub(crate) fn parse(centre: &str, width_km: &str) -> Option<Self> {
        let (lat, lng) = centre.split_once(',')?;
        let centre = LatLng::new(lat.trim().parse().ok()?, lng.trim().parse().ok()?);
        let width_m = width_km.trim().parse::<f64>().ok().filter(|km| km.is_finite() && *km > 0.0)? * 1_000.0;
        centre.is_on_earth().then(|| Self::new(centre, width_m))
    }

    /// Returns the view that shows all places; `None` if there are none.
    pub(crate) fn fit<'a>(places: impl Iterator<Item = &'a LatLng>) -> Option<Self> {
        let (low, high) = bounds_of(places)?;
        let centre = LatLng::new(f64::midpoint(low.lat, high.lat), f64::midpoint(low.lng, high.lng));
        let tall = (high.lat - low.lat) * METRES_PER_DEGREE;
        let wide = (high.lng - low.lng) * METRES_PER_DEGREE * shrink(centre);
        Some(Self::new(centre, (wide.max(tall * WIDTH / HEIGHT) * SPACE).max(NARROWEST_FIT)))
    }

    /// Returns the corners of the view. A view across the date line shows only the side of its centre.
    pub(crate) fn bounds(&self) -> MapBounds {
        let half_lng = self.width_m / 2.0 / METRES_PER_DEGREE / shrink(self.centre);
        let half_lat = self.width_m * HEIGHT / WIDTH / 2.0 / METRES_PER_DEGREE;
        MapBounds {
            south: (self.centre.lat - half_lat).max(-90.0),
            west: (self.centre.lng - half_lng).max(-180.0),
            north: (self.centre.lat + half_lat).min(90.0),
            east: (self.centre.lng + half_lng).min(180.0),
        }
    }

    /// Returns the position of a place in the drawing.
    pub(super) fn point(&self, place: LatLng) -> (f64, f64) {
        let per_metre = WIDTH / self.width_m;
        let east = (place.lng - self.centre.lng) * METRES_PER_DEGREE * shrink(self.centre);
        let north = (place.lat - self.centre.lat) * METRES_PER_DEGREE;
        (WIDTH / 2.0 + east * per_metre, HEIGHT / 2.0 - north * per_metre)
    }

    /// Returns the place at a position of the drawing.
    pub(super) fn place(&self, (x, y): (f64, f64)) -> LatLng {
        let degrees = self.width_m / WIDTH / METRES_PER_DEGREE;
        let lng = self.centre.lng + (x - WIDTH / 2.0) * degrees / shrink(self.centre);
        LatLng::new(self.centre.lat - (y - HEIGHT / 2.0) * degrees, lng)
    }

    /// Returns a view with the same centre and this multiple of the width.
    pub(crate) fn zoomed(&self, factor: f64) -> Self {
        Self::new(self.centre, self.width_m * factor)
    }

    /// Returns the view that is moved by these shares of its width and height.
    pub(crate) fn moved(&self, east: f64, south: f64) -> Self {
        self.centred_at((WIDTH * (0.5 + east), HEIGHT * (0.5 + south)))
    }

    /// Returns the view whose centre is at this position of the drawing.
    pub(super) fn centred_at(&self, point: (f64, f64)) -> Self {
        Self::new(self.place(point), self.width_m)
    }

    /// Returns the centre and the width in kilometres, as [`parse`](Self::parse) reads them.
    pub(crate) fn texts(&self) -> (String, String) {
        let LatLng { lat, lng } = self.centre;
        (format!("{lat:.5},{lng:.5}"), format!("{:.3}", self.width_m / 1_000.0))
    }

    /// Returns the query of its address.
    pub(crate) fn query(&self) -> String {
        let (centre, width_km) = self.texts();
        write_query(&[("at", &centre), ("km", &width_km)])
    }
}

/// Returns the length of a degree of longitude relative to one of latitude.
fn shrink(place: LatLng) -> f64 {
    place.lat.to_radians().cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONAS: LatLng = LatLng::new(-6.1754, 106.8272);

    #[test]
    fn view_reads_its_own_address() {
        let view = MapView::parse(" -6.1754 , 106.8272", "12.5").unwrap();
        assert_eq!(view, MapView { centre: MONAS, width_m: 12_500.0 });
        assert_eq!(view.query(), "?at=-6.17540%2C106.82720&km=12.500");
        let (centre, width) = view.texts();
        assert_eq!(MapView::parse(&centre, &width), Some(view));
        for (centre, width) in
            [("-6.2", "1"), ("91,0", "1"), ("0,181", "1"), ("0,0", "0"), ("0,0", "NaN"), ("a,b", "1")]
        {
            assert_eq!(MapView::parse(centre, width), None, "{centre} {width}");
        }
    }

    #[test]
    fn fitted_view_contains_all_places() {
        let places = [MONAS, LatLng::new(-6.3, 106.9), LatLng::new(-6.1, 106.7)];
        let view = MapView::fit(places.iter()).unwrap();
        for place in places {
            let (x, y) = view.point(place);
            assert!((0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "{x} {y}");
        }
        assert_eq!(MapView::fit([MONAS].iter()).unwrap().width_m, NARROWEST_FIT);
        assert_eq!(MapView::fit([].iter()), None);
    }

    #[test]
    fn place_and_point_are_inverse() {
        let view = MapView { centre: MONAS, width_m: 5_000.0 };
        let place = view.place((100.0, 50.0));
        let (x, y) = view.point(place);
        assert!((x - 100.0).abs() < 1e-6 && (y - 50.0).abs() < 1e-6, "{x} {y}");
        let bounds = view.bounds();
        assert!((bounds.west - view.place((0.0, 0.0)).lng).abs() < 1e-9);
        assert!((bounds.south - view.place((0.0, HEIGHT)).lat).abs() < 1e-9);
    }

    #[test]
    fn view_moves_and_zooms_within_limits() {
        let view = MapView { centre: MONAS, width_m: 1_000.0 };
        assert!(view.moved(0.5, 0.0).centre.lng > MONAS.lng && view.moved(0.0, 0.5).centre.lat < MONAS.lat);
        assert_eq!(view.zoomed(0.001).width_m, WIDTHS.0);
        assert_eq!(view.zoomed(1e9).width_m, WIDTHS.1);
        let east = MapView { centre: LatLng::new(0.0, 179.9), width_m: 100_000.0 }.moved(0.5, 0.0);
        assert!(east.centre.lng < -179.0, "{east:?}");
        assert_eq!(east.bounds().west, -180.0);
    }
}
