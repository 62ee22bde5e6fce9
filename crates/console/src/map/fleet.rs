//! Map of the fleet: drivers on duty at their last location, and waiting and running orders at their pickup. Each mark is
//! a link. If there are many marks, those of one cell of the drawing become one mark with their number, which leads to a
//! closer view. So the drawing is bounded.

use std::{collections::BTreeMap, fmt::Write as _};

use model::ids::LatLng;

use super::{
    labels::{Extent, LabelRoom},
    measure::round_step,
    view::{HEIGHT, MapView, WIDTH},
};
use crate::{
    catalogue::{Words, fill, tr},
    shown::{describe_distance, escape, group_digits},
};

/// Marks that are drawn one by one. With more, marks of the same cell are drawn as one.
const MOST_MARKS: usize = 250;
/// Marks up to which each may have its id next to it.
const MOST_LABELS: usize = 80;
/// Width and height of a cell.
const CELL: (f64, f64) = (48.0, 45.0);
/// Part of a view that the view of a cell shows.
const CELL_ZOOM: f64 = 0.2;
/// Maximum number of points of all outlines in a drawing. With more, browsers become slow.
const MOST_POINTS: usize = 8_000;
/// Half the size of a mark, and of a mark of a cell.
const MARK: f64 = 6.0;
const CROWD: f64 = 13.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// A driver without an order.
    FreeDriver,
    /// A driver with an order.
    BusyDriver,
    WaitingOrder,
    /// An order with a driver.
    RunningOrder,
}

impl MarkKind {
    pub(crate) const ALL: [Self; 4] = [Self::FreeDriver, Self::BusyDriver, Self::WaitingOrder, Self::RunningOrder];

    fn class(self) -> &'static str {
        match self {
            Self::FreeDriver => "free",
            Self::BusyDriver => "taken",
            Self::WaitingOrder => "waits",
            Self::RunningOrder => "runs",
        }
    }

    fn is_order(self) -> bool {
        matches!(self, Self::WaitingOrder | Self::RunningOrder)
    }

    fn words(self) -> Words {
        match self {
            Self::FreeDriver => tr("fleet_map.free_drivers"),
            Self::BusyDriver => tr("fleet_map.drivers_with_order"),
            Self::WaitingOrder => tr("fleet_map.waiting_orders"),
            Self::RunningOrder => tr("fleet_map.running_orders"),
        }
    }

    /// Draws the shape: a circle for drivers, a diamond for orders.
    fn draw(self, (x, y): (f64, f64), size: f64) -> String {
        let class = self.class();
        if self.is_order() {
            let top = y - size;
            return format!(
                "<path class=\"{class}\" d=\"M{x:.1} {top:.1}l{size} {size}l-{size} {size}l-{size} -{size}Z\"/>"
            );
        }
        format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size}\"/>")
    }
}

/// A driver or an order on the map.
#[derive(Debug, Clone)]
pub(crate) struct FleetMark {
    pub(crate) kind: MarkKind,
    pub(crate) place: LatLng,
    /// Index among the drivers, or among the orders.
    pub(crate) row: usize,
    /// Location of the order's driver, if the mark is an order and its driver is on the map.
    pub(crate) driver_at: Option<LatLng>,
}

/// Texts of a mark.
#[derive(Debug, Clone)]
pub(crate) struct MarkText {
    pub(crate) id: String,
    /// Address of its page.
    pub(crate) href: String,
    /// Full description.
    pub(crate) told: String,
}

/// Draws the marks with the outlines of areas, degrees and a scale, and a legend with the number of marks of each kind.
/// `page` is the address of the map. `describe` is called only for marks that are drawn one by one: most of 20,000 are not.
pub(crate) fn draw_fleet(
    page: &str,
    view: &MapView,
    marks: &[FleetMark],
    areas: &[Vec<LatLng>],
    describe: &dyn Fn(&FleetMark) -> MarkText,
) -> String {
    let counts = MarkKind::ALL.map(|kind| marks.iter().filter(|mark| mark.kind == kind).count());
    let [free, taken, waiting, running] = counts.map(|count| group_digits(count as u64));
    let label = fill!("fleet_map.label", free, taken, waiting, running);
    let map = tr("common.map");
    let mut svg = format!(
        "<figure class=\"fleet\"><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{map}\">\
         <svg class=\"map\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"group\" aria-label=\"{label}\">"
    );
    draw_outlines(&mut svg, view, areas);
    draw_degrees(&mut svg, view);
    if marks.len() > MOST_MARKS {
        draw_cells(&mut svg, page, view, marks, describe);
    } else {
        draw_marks(&mut svg, view, marks, describe);
    }
    draw_scale(&mut svg, view);
    svg.push_str("</svg></div><figcaption class=\"legend\">");
    for (kind, count) in MarkKind::ALL.into_iter().zip(counts) {
        let (shape, words, count) = (kind.draw((8.0, 8.0), MARK), kind.words(), group_digits(count as u64));
        let _ = write!(
            svg,
            "<span><svg class=\"map\" viewBox=\"0 0 16 16\" aria-hidden=\"true\">{shape}</svg> {words}: <b>{count}</b></span> "
        );
    }
    svg.push_str("</figcaption></figure>");
    svg
}

/// Draws the rings that overlap the drawing, up to [`MOST_POINTS`].
fn draw_outlines(svg: &mut String, view: &MapView, areas: &[Vec<LatLng>]) {
    let drawing = Extent { left: 0.0, top: 0.0, right: WIDTH, bottom: HEIGHT };
    let mut left = MOST_POINTS;
    let mut line = String::new();
    for ring in areas {
        let points: Vec<_> = ring.iter().map(|place| view.point(*place)).collect();
        let is_seen = Extent::of_points(&points).is_some_and(|extent| extent.overlaps(&drawing));
        if !is_seen || points.len() > left {
            continue;
        }
        left -= points.len();
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(line, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
        }
        line.push('Z');
    }
    if !line.is_empty() {
        let _ = write!(svg, "<path class=\"outline\" d=\"{line}\"/>");
    }
}

/// Draws lines of latitude and longitude with their degrees, about five in each direction.
fn draw_degrees(svg: &mut String, view: &MapView) {
    let (top_left, bottom_right) = (view.place((0.0, 0.0)), view.place((WIDTH, HEIGHT)));
    let step = round_step((bottom_right.lng - top_left.lng) / 5.0 * 1e6) / 1e6;
    let digits = digits_of(step);
    for lng in steps(top_left.lng, bottom_right.lng, step) {
        let (x, _) = view.point(LatLng::new(0.0, lng));
        let _ = write!(
            svg,
            "<path class=\"degree\" d=\"M{x:.1} 0V{HEIGHT}\"/><text class=\"degree\" x=\"{:.1}\" y=\"{}\">{lng:.digits$}</text>",
            x + 3.0,
            HEIGHT - 5.0
        );
    }
    for lat in steps(bottom_right.lat, top_left.lat, step) {
        let (_, y) = view.point(LatLng::new(lat, 0.0));
        let _ = write!(
            svg,
            "<path class=\"degree\" d=\"M0 {y:.1}H{WIDTH}\"/><text class=\"degree\" x=\"4\" y=\"{:.1}\">{lat:.digits$}</text>",
            y - 3.0
        );
    }
}

/// Returns the number of decimals of a step in degrees.
fn digits_of(step: f64) -> usize {
    (0..6).find(|digits| step >= 10_f64.powi(-*digits) * 0.999).and_then(|digits| digits.try_into().ok()).unwrap_or(6)
}

/// Returns the multiples of `step` between two numbers.
fn steps(from: f64, to: f64, step: f64) -> impl Iterator<Item = f64> {
    let first = (from / step).ceil();
    (0..40_u32).map(move |n| (first + f64::from(n)) * step).take_while(move |at| *at <= to)
}

/// Draws a bar with its length at the bottom right.
fn draw_scale(svg: &mut String, view: &MapView) {
    let metres = round_step(view.width_m / 6.0);
    let length = metres / view.width_m * WIDTH;
    let (left, y) = (WIDTH - 14.0 - length, HEIGHT - 30.0);
    let _ = write!(
        svg,
        "<path class=\"scale\" d=\"M{left:.1} {:.1}v5h{length:.1}v-5\"/><text class=\"far\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        y - 5.0,
        left + length / 2.0,
        y - 5.0,
        describe_distance(metres)
    );
}

/// Draws each mark. If there are few, those with room have their id.
fn draw_marks(svg: &mut String, view: &MapView, marks: &[FleetMark], describe: &dyn Fn(&FleetMark) -> MarkText) {
    for mark in marks {
        if let Some(driver) = mark.driver_at {
            let ((x, y), (to_x, to_y)) = (view.point(mark.place), view.point(driver));
            let _ = write!(svg, "<path class=\"trip\" d=\"M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}\"/>");
        }
    }
    let mut room = LabelRoom::new(WIDTH, HEIGHT);
    for mark in marks {
        let (x, y) = view.point(mark.place);
        room.take(Extent { left: x - MARK, top: y - MARK, right: x + MARK, bottom: y + MARK });
    }
    for mark in marks {
        let at = view.point(mark.place);
        let MarkText { id, href, told } = describe(mark);
        draw_link(svg, &href, &told, &mark.kind.draw(at, MARK));
        let baseline = (at.0 + MARK + 3.0, at.1 + 4.0);
        let wanted = Extent::of_text(baseline, id.chars().count(), 1);
        if marks.len() <= MOST_LABELS && room.take_free(wanted) {
            let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", baseline.0, baseline.1, escape(&id));
        }
    }
}

fn draw_link(svg: &mut String, href: &str, told: &str, shape: &str) {
    let (href, told) = (escape(href), escape(told));
    let _ = write!(svg, "<a href=\"{href}\" aria-label=\"{told}\"><title>{told}</title>{shape}</a>");
}

/// Draws the drivers of each cell as one mark, and its orders as another. A mark alone in its cell is drawn at its place.
fn draw_cells(
    svg: &mut String,
    page: &str,
    view: &MapView,
    marks: &[FleetMark],
    describe: &dyn Fn(&FleetMark) -> MarkText,
) {
    let mut cells: BTreeMap<(u32, u32, bool), Vec<&FleetMark>> = BTreeMap::new();
    for mark in marks {
        let (x, y) = view.point(mark.place);
        cells.entry((index(y / CELL.1), index(x / CELL.0), mark.kind.is_order())).or_default().push(mark);
    }
    for ((row, column, is_order), marks) in &cells {
        if let [mark] = marks.as_slice() {
            let MarkText { href, told, .. } = describe(mark);
            draw_link(svg, &href, &told, &mark.kind.draw(view.point(mark.place), MARK));
            continue;
        }
        let middle = ((f64::from(*column) + 0.5) * CELL.0, (f64::from(*row) + 0.5) * CELL.1);
        let is_shared = cells.contains_key(&(*row, *column, !is_order));
        let side = if *is_order { 11.0 } else { -11.0 };
        let at = if is_shared { (middle.0 + side, middle.1) } else { middle };
        let closer = format!("{page}{}", view.centred_at(middle).zoomed(CELL_ZOOM).query());
        draw_crowd(svg, &closer, at, marks);
    }
}

/// Returns the number of the cell that a position, in cells, is in. Positions before the first cell are in the first.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a drawing has few cells")]
fn index(cells: f64) -> u32 {
    cells.max(0.0) as u32
}

/// Draws several drivers, or several orders, as one mark with their number. It has the shape of those that dispatchers
/// look for: free drivers and waiting orders, if there are any.
fn draw_crowd(svg: &mut String, closer: &str, (x, y): (f64, f64), marks: &[&FleetMark]) {
    let all = group_digits(marks.len() as u64);
    let wanted = marks.iter().filter(|mark| matches!(mark.kind, MarkKind::FreeDriver | MarkKind::WaitingOrder)).count();
    let part = group_digits(wanted as u64);
    let is_order = marks.first().is_some_and(|mark| mark.kind.is_order());
    let (told, kinds) = if is_order {
        (fill!("fleet_map.orders_here", all, part), [MarkKind::WaitingOrder, MarkKind::RunningOrder])
    } else {
        (fill!("fleet_map.drivers_here", all, part), [MarkKind::FreeDriver, MarkKind::BusyDriver])
    };
    let kind = if wanted > 0 { kinds[0] } else { kinds[1] };
    let size = if is_order { CROWD + 2.0 } else { CROWD };
    let number = if marks.len() < 1_000 { all } else { format!("{}k", marks.len() / 1_000) };
    let class = if wanted > 0 { "number" } else { "number hollow" };
    let shape =
        format!("{}<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\">{number}</text>", kind.draw((x, y), size), y + 4.0);
    draw_link(svg, closer, &told, &shape);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(count: u32, kind: MarkKind) -> Vec<FleetMark> {
        let place = |n: u32| LatLng::new(-6.2 + f64::from(n % 100) / 1_000.0, 106.8 + f64::from(n / 100) / 1_000.0);
        let mark = |n| FleetMark { kind, place: place(n), row: n as usize, driver_at: None };
        (0..count).map(mark).collect()
    }

    fn draw(marks: &[FleetMark]) -> String {
        let view = MapView::fit(marks.iter().map(|mark| &mark.place)).unwrap();
        let describe = |FleetMark { row, .. }: &FleetMark| MarkText {
            id: format!("M{row}"),
            href: format!("/console/drivers/M{row}"),
            told: if *row == 1 { "<b>".to_owned() } else { format!("mark {row}") },
        };
        draw_fleet("/console/map", &view, marks, &[], &describe)
    }

    #[test]
    fn few_marks_link_to_their_pages() {
        let drawn = draw(&marks(2, MarkKind::FreeDriver));
        assert!(
            drawn.contains("<a href=\"/console/drivers/M0\" aria-label=\"mark 0\"><title>mark 0</title>"),
            "{drawn}"
        );
        assert!(drawn.contains(">M0</text>") && drawn.contains("&lt;b&gt;"), "{drawn}");
        assert!(drawn.contains("Drivers without an order: <b>2</b>") && !drawn.contains("Zoom in"), "{drawn}");
    }

    #[test]
    fn many_marks_become_a_bounded_drawing() {
        let mut many = marks(5_000, MarkKind::BusyDriver);
        many.extend(marks(5_000, MarkKind::WaitingOrder));
        let drawn = draw(&many);
        let links = drawn.matches("<a href").count();
        assert!((20..=480).contains(&links) && drawn.len() < 250_000, "{links} links, {} bytes", drawn.len());
        assert!(drawn.contains("Orders: ") && drawn.contains(", without an order: 0. Zoom in"), "{drawn}");
        assert!(drawn.contains("<a href=\"/console/map?at="), "{drawn}");
        assert!(drawn.contains("Waiting orders: <b>5,000</b>"), "{drawn}");
    }

    #[test]
    fn degrees_have_the_decimals_of_their_step() {
        assert_eq!([5.0, 1.0, 0.5, 0.02, 0.001].map(digits_of), [0, 0, 1, 2, 3]);
        assert_eq!(
            steps(-0.1, 0.25, 0.1).map(|at| format!("{at:.1}")).collect::<Vec<_>>(),
            ["-0.1", "0.0", "0.1", "0.2"]
        );
    }
}
