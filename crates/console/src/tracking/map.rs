//! The pickup and the driver on the way, as SVG. The place of the driver is on the grid of the links
//! ([`orders::tracking::order::GRID_M`]), and the drawing has no coordinates of the earth.

use std::fmt::Write as _;

use model::ids::LatLng;

use crate::{
    catalogue::tr,
    map::{measure::round_step, offset_m},
    shown::{describe_distance, escape},
};

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 260.0;
/// Points from the pickup to the driver.
const REACH: f64 = 100.0;
/// Minimum distance of the drawing from the pickup to its edge, in metres.
const LEAST_REACH_M: f64 = 200.0;

/// Draws the driver around the pickup, with a circle of a round distance. `label` describes the drawing.
pub(super) fn draw_driver(pickup: LatLng, driver: LatLng, label: &str) -> String {
    let (east, north) = offset_m(pickup, driver);
    let scale = REACH / east.hypot(north).max(LEAST_REACH_M);
    let (middle_x, middle_y) = (WIDTH / 2.0, HEIGHT / 2.0);
    let (x, y) = (middle_x + east * scale, middle_y - north * scale);
    let label = escape(label);
    let mut svg = format!("<svg class=\"map\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">");
    let ring = round_step(REACH / scale);
    let (radius, far) = (ring * scale, describe_distance(ring));
    let top = middle_y - radius - 4.0;
    let _ = write!(
        svg,
        "<circle class=\"ring\" cx=\"{middle_x}\" cy=\"{middle_y}\" r=\"{radius:.1}\"/>\
         <text class=\"far\" x=\"{middle_x}\" y=\"{top:.1}\">{far}</text>\
         <path class=\"trip\" d=\"M{middle_x} {middle_y}L{x:.1} {y:.1}\"/>\
         <path class=\"pickup\" d=\"M{middle_x} {:.1}l8 8l-8 8l-8 -8Z\"/>\
         <circle class=\"driver\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"/>",
        middle_y - 8.0
    );
    // The texts are on the far sides of the line, so they do not cover each other.
    let is_driver_above = y < middle_y;
    let (driver_y, pickup_y) = if is_driver_above { (y - 12.0, middle_y + 22.0) } else { (y + 20.0, middle_y - 14.0) };
    let (driver, pickup) = (tr("tracking.driver"), tr("common.pickup"));
    let _ = write!(
        svg,
        "<text class=\"middle\" x=\"{x:.1}\" y=\"{driver_y:.1}\">{driver}</text>\
         <text class=\"middle\" x=\"{middle_x}\" y=\"{pickup_y:.1}\">{pickup}</text></svg>"
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawing_shows_direction_without_coordinates() {
        let pickup = LatLng::new(-6.2088, 106.8456);
        for (lat, lng) in [(-6.1, 106.8456), (-6.3, 106.9), (-6.2088, 106.8456), (-6.2089, 106.8451)] {
            let svg = draw_driver(pickup, LatLng::new(lat, lng), "Ana & co");
            let at = |name: &str| -> f64 {
                let circle = svg.split("class=\"driver\"").nth(1).unwrap();
                circle.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
            };
            let (x, y) = (at("cx"), at("cy"));
            assert!((30.0..310.0).contains(&x) && (20.0..240.0).contains(&y), "{svg}");
            assert_eq!((y < 130.0, x > 170.0), (lat > pickup.lat, lng > pickup.lng), "{svg}");
            assert!(svg.contains("aria-label=\"Ana &amp; co\""), "{svg}");
            assert!(!svg.contains("106.8") && !svg.contains("-6."), "{svg}");
        }
    }
}
