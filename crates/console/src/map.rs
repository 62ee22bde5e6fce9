//! Maps without tiles: outlines of areas, positions around a pickup, and the whole fleet, as SVG from coordinates alone.
//! The load of an area is shown by a pattern and a number, and the kind of a position by a shape and a word. Colour is
//! never the only difference.
//!
//! * [`fleet`]: drivers on duty and orders. [`view`]: the part of the earth that it shows. [`labels`]: space for labels.
//! * [`measure`]: lengths, and the rectangle around places.

mod fleet;
mod labels;
pub(crate) mod measure;
mod view;

use std::fmt::Write as _;

use self::{
    labels::{Extent, LabelRoom},
    measure::{METRES_PER_DEGREE, bounds_of, round_step},
};
use crate::{
    catalogue::{Words, fill, tr},
    shown::{describe_distance, describe_share, escape},
};
pub(crate) use fleet::{FleetMark, MarkKind, MarkText, draw_fleet};
use model::ids::LatLng;
pub(crate) use view::MapView;

const WIDTH: f64 = 640.0;
const HEIGHTS: (f64, f64) = (200.0, 520.0);
const MARGIN: f64 = 14.0;
/// Minimum distance of drawn points of an outline. Closer points are merged.
const NEAREST: f64 = 0.7;
/// Maximum number of drawn areas, the fullest first. A browser is slow with more.
const MOST_AREAS: usize = 400;

/// Load of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AreaShade {
    /// Less than half full.
    Calm,
    /// Less than four fifths full.
    Filling,
    /// Nearly full.
    Near,
    Full,
    /// A person has closed the area.
    Closed,
}

impl AreaShade {
    const ALL: [Self; 5] = [Self::Calm, Self::Filling, Self::Near, Self::Full, Self::Closed];

    pub(crate) fn new(is_closed: bool, utilization: f64) -> Self {
        match utilization {
            _ if is_closed => Self::Closed,
            1.0.. => Self::Full,
            0.8.. => Self::Near,
            0.5.. => Self::Filling,
            _ => Self::Calm,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Filling => "filling",
            Self::Near => "near",
            Self::Full => "full",
            Self::Closed => "closed",
        }
    }

    fn words(self) -> Words {
        match self {
            Self::Calm => tr("map.less_than_half_full"),
            Self::Filling => tr("map.at_least_half_full"),
            Self::Near => tr("map.nearly_full"),
            Self::Full => tr("common.full"),
            Self::Closed => tr("map.closed_staff"),
        }
    }

    /// Returns the path that the pattern draws in its square of 8 by 8.
    fn strokes(self) -> &'static str {
        match self {
            Self::Calm => "",
            Self::Filling => "M4 4h.01",
            Self::Near => "M0 8L8 0",
            Self::Full => "M0 8L8 0M0 0L8 8",
            Self::Closed => "M0 4H8",
        }
    }
}

/// An area to draw.
pub(crate) struct AreaShape<'a> {
    pub(crate) id: &'a str,
    pub(crate) outlines: Vec<Vec<LatLng>>,
    pub(crate) load: AreaShade,
    pub(crate) utilization: f64,
    /// Full description of the area.
    pub(crate) told: String,
}

/// Projection of degrees to points of the drawing. North is up, and a kilometre has the same length in all directions.
struct Projection {
    west: f64,
    north: f64,
    /// Points per degree of latitude and of longitude.
    per_lat: f64,
    per_lng: f64,
    height: f64,
}

impl Projection {
    /// Returns the projection that fits all positions into the drawing; `None` if there are none.
    fn fit<'a>(places: impl Iterator<Item = &'a LatLng>) -> Option<Self> {
        let (low, high) = bounds_of(places)?;
        let shrink = f64::midpoint(low.lat, high.lat).to_radians().cos().max(0.01);
        // A single position is drawn in a box of several metres.
        let tall = (high.lat - low.lat).max(0.0001);
        let wide = ((high.lng - low.lng) * shrink).max(0.0001);
        let (inner, most) = (WIDTH - 2.0 * MARGIN, HEIGHTS.1 - 2.0 * MARGIN);
        let per_lat = (inner / wide).min(most / tall);
        let height = (tall * per_lat + 2.0 * MARGIN).max(HEIGHTS.0);
        let per_lng = per_lat * shrink;
        // Centres the drawing in the remaining space.
        let west = low.lng - (WIDTH / per_lng - (high.lng - low.lng)) / 2.0;
        let north = high.lat + (height / per_lat - (high.lat - low.lat)) / 2.0;
        Some(Self { west, north, per_lat, per_lng, height })
    }

    fn point(&self, place: LatLng) -> (f64, f64) {
        ((place.lng - self.west) * self.per_lng, (self.north - place.lat) * self.per_lat)
    }

    /// Returns the points of a ring, without points that are too close to distinguish.
    fn ring(&self, places: &[LatLng]) -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for place in places.iter().filter(|place| place.is_on_earth()) {
            let (x, y) = self.point(*place);
            if points.last().is_none_or(|(a, b)| (x - a).hypot(y - b) >= NEAREST) {
                points.push((x, y));
            }
        }
        points
    }
}

/// Returns twice the size of a ring, and its centre.
fn measure_ring(points: &[(f64, f64)]) -> (f64, (f64, f64)) {
    let Some(first) = points.first() else { return (0.0, (0.0, 0.0)) };
    let next = points.iter().skip(1).chain([first]);
    let (mut size, mut x, mut y) = (0.0_f64, 0.0_f64, 0.0_f64);
    for ((ax, ay), (bx, by)) in points.iter().zip(next) {
        let cross = ax * by - bx * ay;
        size += cross;
        x += (ax + bx) * cross;
        y += (ay + by) * cross;
    }
    if size.abs() < 1.0 { (0.0, *first) } else { (size.abs(), (x / (3.0 * size), y / (3.0 * size))) }
}

/// Draws areas with their load. Returns an empty text if none has an outline.
pub(crate) fn draw_areas(mut areas: Vec<AreaShape<'_>>) -> String {
    areas.sort_by(|one, other| other.utilization.total_cmp(&one.utilization));
    areas.truncate(MOST_AREAS);
    let Some(projection) = Projection::fit(areas.iter().flat_map(|area| &area.outlines).flatten()) else {
        return String::new();
    };
    let mut drawn: Vec<DrawnArea<'_>> = areas.iter().filter_map(|area| draw_area(&projection, area)).collect();
    place_labels(&mut drawn, projection.height);
    // Draws small areas on top of large ones, such as an airport in its city.
    drawn.sort_by(|one, other| other.size.total_cmp(&one.size));
    let count = drawn.len();
    let label = fill!("map.map_areas_utilization_table", count);
    let mut svg = format!(
        "<figure class=\"areas\"><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><svg class=\"map\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{label}\"><defs>",
        tr("common.map"),
        projection.height
    );
    for load in AreaShade::ALL {
        let _ = write!(
            svg,
            "<pattern id=\"load-{}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><path d=\"{}\"/></pattern>",
            load.class(),
            load.strokes()
        );
    }
    svg.push_str("</defs>");
    svg.extend(drawn.iter().map(|area| area.shape.as_str()));
    // Labels are drawn on top of all shapes.
    svg.push_str("<g class=\"area\">");
    svg.extend(drawn.iter().map(|area| area.label.as_str()));
    svg.push_str("</g></svg></div><figcaption class=\"legend small\">");
    for load in AreaShade::ALL {
        let (class, words) = (load.class(), load.words());
        let _ = write!(
            svg,
            "<span><svg class=\"map\" viewBox=\"0 0 24 14\" aria-hidden=\"true\"><g class=\"area {class}\"><path d=\"M1 1H23V13H1Z\"/>\
             <path fill=\"url(#load-{class})\" d=\"M1 1H23V13H1Z\"/></g></svg> {words}</span> "
        );
    }
    svg.push_str("</figcaption></figure>");
    svg
}

/// An area with its drawing.
struct DrawnArea<'a> {
    area: &'a AreaShape<'a>,
    size: f64,
    middle: (f64, f64),
    /// Extent of the largest ring.
    extent: Extent,
    shape: String,
    /// Empty if there is no room for the label. The table and the title of the shape also contain the text.
    label: String,
}

impl DrawnArea<'_> {
    fn is_closed(&self) -> bool {
        self.area.load == AreaShade::Closed
    }
}

/// Draws one area without its label. Returns `None` if it has no outline.
fn draw_area<'a>(projection: &Projection, area: &'a AreaShape<'a>) -> Option<DrawnArea<'a>> {
    let rings: Vec<_> =
        area.outlines.iter().map(|ring| projection.ring(ring)).filter(|ring| !ring.is_empty()).collect();
    let measured = rings.iter().map(|ring| (measure_ring(ring), ring));
    let ((size, middle), largest) = measured.max_by(|((a, _), _), ((b, _), _)| a.total_cmp(b))?;
    let extent = Extent::of_points(largest)?;
    let mut line = String::new();
    for ring in &rings {
        if let [(x, y)] = ring.as_slice() {
            // The ring is too small to have a shape.
            let _ = write!(line, "M{:.1} {:.1}h4v4h-4Z", x - 2.0, y - 2.0);
            continue;
        }
        for (i, (x, y)) in ring.iter().enumerate() {
            let _ = write!(line, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
        }
        line.push('Z');
    }
    let (class, told) = (area.load.class(), escape(&area.told));
    let shape = format!(
        "<g class=\"area {class}\"><title>{told}</title><path d=\"{line}\"/><path fill=\"url(#load-{class})\" d=\"{line}\"/></g>"
    );
    Some(DrawnArea { area, size, middle, extent, shape, label: String::new() })
}

/// Places the labels, starting with areas that need attention. A label contains the id and the load, or only the load,
/// and does not cover another label.
fn place_labels(drawn: &mut [DrawnArea<'_>], height: f64) {
    let mut by_need: Vec<&mut DrawnArea<'_>> = drawn.iter_mut().collect();
    by_need.sort_by(|one, other| {
        let by_load = other.area.utilization.total_cmp(&one.area.utilization);
        other.is_closed().cmp(&one.is_closed()).then(by_load).then(other.size.total_cmp(&one.size))
    });
    let mut room = LabelRoom::new(WIDTH, height);
    for drawn in by_need {
        let share = describe_share(drawn.area.utilization);
        let (x, y) = drawn.middle;
        let letters = drawn.area.id.chars().count().max(share.len());
        // In the centre, or elsewhere inside the area.
        let mut find_place = |letters: usize, lines: u8| {
            let baselines = [(y, true), (y + 26.0, false), (y - 26.0, false)];
            let free = baselines.into_iter().find(|(baseline, is_middle)| {
                let wanted = Extent::of_centred_text((x, *baseline), letters, lines);
                (*is_middle || drawn.extent.contains(&wanted)) && room.take_free(wanted)
            });
            free.map(|(baseline, _)| baseline)
        };
        drawn.label = if let Some(y) = find_place(letters, 2) {
            let id = escape(drawn.area.id);
            format!("<text x=\"{x:.1}\" y=\"{y:.1}\">{id}<tspan x=\"{x:.1}\" dy=\"1.15em\">{share}</tspan></text>")
        } else if let Some(y) = find_place(share.len(), 1) {
            format!("<text x=\"{x:.1}\" y=\"{y:.1}\">{share}</text>")
        } else {
            String::new()
        };
    }
}

/// Relation of a driver to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriverPart {
    /// The driver carries out the order.
    Has,
    /// The driver has a live offer.
    Asked,
    /// The driver had an offer.
    WasAsked,
}

/// A driver on the map of an order.
pub(crate) struct DriverMark {
    pub(crate) id: String,
    pub(crate) place: LatLng,
    pub(crate) part: DriverPart,
}

impl DriverMark {
    fn describe(&self) -> (&'static str, Words) {
        match self.part {
            DriverPart::Has => ("driver", tr("map.order")),
            DriverPart::Asked => ("driver", tr("map.offer")),
            DriverPart::WasAsked => ("out", tr("map.had_offer")),
        }
    }
}

const ORDER_HEIGHT: f64 = 300.0;
/// Points from the pickup to the farthest driver.
const REACH: f64 = 120.0;

/// The drawing of an order for one kind of screen. The text of the wide drawing would be unreadable on a phone.
struct OrderSheet {
    class: &'static str,
    width: f64,
    /// Maximum letters of an id. The titles and the page have the complete ids.
    most_letters: usize,
}

const ORDER_SHEETS: [OrderSheet; 2] = [
    OrderSheet { class: "map wide", width: WIDTH, most_letters: 24 },
    OrderSheet { class: "map narrow", width: 340.0, most_letters: 13 },
];

/// Draws the pickup with the drivers around it and their distances, for wide and narrow screens. `is_trip`: the
/// customer is on the way with the driver of the order.
pub(crate) fn draw_order(pickup: LatLng, drivers: &[DriverMark], is_trip: bool) -> String {
    ORDER_SHEETS.iter().map(|sheet| draw_order_on(sheet, pickup, drivers, is_trip)).collect()
}

fn draw_order_on(sheet: &OrderSheet, pickup: LatLng, drivers: &[DriverMark], is_trip: bool) -> String {
    let OrderSheet { class, width, most_letters } = *sheet;
    let (middle_x, middle_y) = (width / 2.0, ORDER_HEIGHT / 2.0);
    let offset = |place: LatLng| offset_m(pickup, place);
    let mut drivers: Vec<_> = drivers.iter().filter(|driver| driver.place.is_on_earth()).collect();
    let farthest = drivers
        .iter()
        .map(|driver| {
            let (x, y) = offset(driver.place);
            x.hypot(y)
        })
        .fold(200.0, f64::max);
    let scale = REACH / farthest;
    let (count, far) = (drivers.len(), describe_distance(farthest));
    let label = fill!("map.map_pickup_drivers_farthest", count, far);
    let mut svg =
        format!("<svg class=\"{class}\" viewBox=\"0 0 {width} {ORDER_HEIGHT}\" role=\"img\" aria-label=\"{label}\">");
    let ring = round_step(farthest / 2.0);
    for n in [1.0, 2.0] {
        let (radius, metres) = (ring * n * scale, describe_distance(ring * n));
        let y = middle_y - radius - 3.0;
        let _ = write!(
            svg,
            "<circle class=\"ring\" cx=\"{middle_x}\" cy=\"{middle_y}\" r=\"{radius:.1}\"/><text class=\"far\" x=\"{middle_x}\" y=\"{y:.1}\">{metres}</text>"
        );
    }
    let mut room = LabelRoom::new(width, ORDER_HEIGHT);
    let pickup_words = tr("common.pickup");
    let pickup_at = (middle_x + 12.0, middle_y + 16.0);
    room.take(Extent::of_text(pickup_at, pickup_words.get().len(), 1));
    // The driver of the order and drivers with live offers always get a label.
    drivers.sort_by_key(|driver| driver.part == DriverPart::WasAsked);
    for driver in drivers {
        let (east, north) = offset(driver.place);
        let (x, y) = (middle_x + east * scale, middle_y - north * scale);
        let (class, words) = driver.describe();
        let words = if is_trip && driver.part == DriverPart::Has { tr("map.on_trip") } else { words };
        if driver.part == DriverPart::Has {
            let _ = write!(svg, "<path class=\"trip\" d=\"M{middle_x} {middle_y}L{x:.1} {y:.1}\"/>");
        }
        let id: String = driver.id.chars().take(most_letters).collect();
        let told = format!("{id} {words}, {}", describe_distance(east.hypot(north)));
        let letters = told.chars().count();
        let told = escape(&told);
        let _ =
            write!(svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"><title>{told}</title></circle>");
        // To the right of the dot, or to its left.
        let baselines = || [y + 4.0, y + 16.0, y - 8.0].into_iter();
        let after = baselines().find(|at| room.take_free(Extent::of_text((x + 9.0, *at), letters, 1)));
        let place = match after {
            Some(at) => Some(("after", x + 9.0, at)),
            None => baselines()
                .find(|at| room.take_free(Extent::of_text_before((x - 9.0, *at), letters, 1)))
                .map(|at| ("before", x - 9.0, at)),
        };
        let is_told = driver.part != DriverPart::WasAsked;
        if let Some((side, label_x, label_y)) = place.or_else(|| is_told.then_some(("after", x + 9.0, y + 4.0))) {
            let _ = write!(svg, "<text class=\"{side}\" x=\"{label_x:.1}\" y=\"{label_y:.1}\">{told}</text>");
        }
    }
    let _ = write!(
        svg,
        "<path class=\"pickup\" d=\"M{middle_x} {:.1}l8 8l-8 8l-8 -8Z\"/><text x=\"{:.1}\" y=\"{:.1}\">{pickup_words}</text></svg>",
        middle_y - 8.0,
        pickup_at.0,
        pickup_at.1,
    );
    svg
}

/// Returns how many metres `place` is east and north of `centre`. Takes the shorter way across the date line.
pub(crate) fn offset_m(centre: LatLng, place: LatLng) -> (f64, f64) {
    let shrink = centre.lat.to_radians().cos().max(0.01);
    let degrees = (place.lng - centre.lng + 540.0).rem_euclid(360.0) - 180.0;
    (degrees * shrink * METRES_PER_DEGREE, (place.lat - centre.lat) * METRES_PER_DEGREE)
}

#[cfg(test)]
mod tests;
