//! Checks the borders of an area's polygons with bounded work.
//!
//! The validation in `geo` compares every pair of edges of a ring, which takes seconds for a ring of 10,000 corners.
//! This check sweeps along one axis and compares only edges whose bounding boxes meet. Every comparison counts toward a
//! limit.

use std::collections::BTreeSet;

use geo::{
    BoundingRect, Coord, Intersects, Line, LineString, MultiPolygon, Polygon, Rect, Relate, RemoveRepeatedPoints,
    coordinate_position::{CoordPos, coord_pos_relative_to_ring},
    dimensions::Dimensions,
    line_intersection::{LineIntersection, line_intersection},
};

/// Maximum work of a check, in steps of about a nanosecond. Maps of real areas need less than a hundredth of it.
pub const MOST_WORK: u64 = 3_000_000_000;

/// Cost of an exact comparison of two edges, in the unit of [`MOST_WORK`].
const COMPARISON: u64 = 20;
/// Cost of relating two shapes that touch, for each of their edges.
const RELATION: u64 = 1_000;
/// Edges of the smallest ring.
const LEAST_EDGES: usize = 3;

/// Reason why polygons are invalid as an area.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BorderError {
    #[error("a ring has fewer than 3 distinct corners")]
    TooFewCorners,
    #[error("a ring crosses or touches itself near {}, {}", .0.x, .0.y)]
    SelfIntersection(Coord),
    #[error("two rings cross near {}, {}", .0.x, .0.y)]
    Crossing(Coord),
    #[error("two rings share a line near {}, {}", .0.x, .0.y)]
    SharedLine(Coord),
    #[error("a hole is not within its part")]
    HoleOutside,
    #[error("two holes overlap")]
    HolesOverlap,
    #[error("two parts overlap")]
    PartsOverlap,
    #[error("its border is too intricate to be checked: simplify it")]
    TooIntricate,
}

/// Returns the work of the check in the unit of [`MOST_WORK`]. `spent` is earlier work that counts toward the maximum.
///
/// A valid ring does not cross itself and touches other rings only in points. Holes lie within their part. Holes do not
/// overlap each other, nor do parts.
pub fn check_borders(polygons: &MultiPolygon, spent: u64) -> Result<u64, BorderError> {
    let mut check = Check::new(polygons, spent)?;
    check.compare_edges()?;
    check.compare_holes()?;
    check.compare_parts()?;
    Ok(check.work - spent)
}

#[derive(Debug)]
struct Ring {
    part: usize,
    shape: LineString,
    bounds: Rect,
    edges: usize,
}

impl Ring {
    fn new(part: usize, ring: &LineString) -> Result<Self, BorderError> {
        let shape = ring.remove_repeated_points();
        let edges = shape.0.len().saturating_sub(1);
        let bounds = shape.bounding_rect().filter(|_| edges >= LEAST_EDGES).ok_or(BorderError::TooFewCorners)?;
        Ok(Self { part, shape, bounds, edges })
    }

    fn first_corner(&self) -> Coord {
        self.shape.0[0]
    }
}

/// An edge of a ring, with its extent along the sweep axis and across it.
#[derive(Debug)]
struct Edge {
    line: Line,
    ring: usize,
    /// Number of the edge in the ring.
    n: usize,
    along: (f64, f64),
    across: (f64, f64),
}

#[derive(Debug)]
struct Check {
    rings: Vec<Ring>,
    /// For each part: the number of its outer ring, then those of its holes.
    parts: Vec<Vec<usize>>,
    /// Pairs of rings that touch in a point.
    touching: BTreeSet<(usize, usize)>,
    work: u64,
}

impl Check {
    fn new(polygons: &MultiPolygon, work: u64) -> Result<Self, BorderError> {
        let (mut rings, mut parts) = (Vec::new(), Vec::new());
        for (part, polygon) in polygons.iter().enumerate() {
            let first = rings.len();
            rings.push(Ring::new(part, polygon.exterior())?);
            for hole in polygon.interiors() {
                rings.push(Ring::new(part, hole)?);
            }
            parts.push((first..rings.len()).collect());
        }
        Ok(Self { rings, parts, touching: BTreeSet::new(), work })
    }

    fn spend(&mut self, work: u64) -> Result<(), BorderError> {
        self.work = self.work.saturating_add(work);
        if self.work > MOST_WORK { Err(BorderError::TooIntricate) } else { Ok(()) }
    }

    fn compare_edges(&mut self) -> Result<(), BorderError> {
        let edges = sorted_edges(&self.rings);
        for (n, edge) in edges.iter().enumerate() {
            let mut passed = 0;
            for other in edges[n + 1..].iter().take_while(|other| other.along.0 <= edge.along.1) {
                passed += 1;
                if other.across.0 <= edge.across.1 && edge.across.0 <= other.across.1 {
                    self.spend(COMPARISON)?;
                    self.compare_pair(edge, other)?;
                }
            }
            self.spend(passed)?;
        }
        Ok(())
    }

    fn compare_pair(&mut self, one: &Edge, other: &Edge) -> Result<(), BorderError> {
        let Some(meeting) = line_intersection(one.line, other.line) else { return Ok(()) };
        let (place, is_point, is_proper) = match meeting {
            LineIntersection::SinglePoint { intersection, is_proper } => (intersection, true, is_proper),
            LineIntersection::Collinear { intersection } => (intersection.start, false, false),
        };
        if one.ring == other.ring {
            let edges = self.rings[one.ring].edges;
            let are_neighbours = (one.n + 1) % edges == other.n || (other.n + 1) % edges == one.n;
            let meet_at_corner = are_neighbours && is_point && !is_proper;
            return if meet_at_corner { Ok(()) } else { Err(BorderError::SelfIntersection(place)) };
        }
        match (is_point, is_proper) {
            (true, true) => Err(BorderError::Crossing(place)),
            (false, _) => Err(BorderError::SharedLine(place)),
            (true, false) => {
                self.touching.insert((one.ring.min(other.ring), one.ring.max(other.ring)));
                Ok(())
            }
        }
    }

    fn do_touch(&self, one: usize, other: usize) -> bool {
        self.touching.contains(&(one.min(other), one.max(other)))
    }

    /// Returns whether the ring `inner` lies within `outer`. Their borders do not touch, so testing one corner is
    /// enough.
    fn lies_within(&mut self, inner: usize, outer: usize) -> Result<bool, BorderError> {
        if !self.rings[outer].bounds.intersects(&self.rings[inner].bounds) {
            return Ok(false);
        }
        self.spend(self.rings[outer].edges as u64 * COMPARISON)?;
        let corner = self.rings[inner].first_corner();
        Ok(coord_pos_relative_to_ring(corner, &self.rings[outer].shape) == CoordPos::Inside)
    }

    /// Relates two touching shapes, given by the numbers of their rings.
    fn relate(&mut self, one: &[usize], other: &[usize]) -> Result<geo::relate::IntersectionMatrix, BorderError> {
        let edges: usize = one.iter().chain(other).map(|n| self.rings[*n].edges).sum();
        self.spend(edges as u64 * RELATION)?;
        Ok(self.polygon(one).relate(&self.polygon(other)))
    }

    fn polygon(&self, rings: &[usize]) -> Polygon {
        let mut shapes = rings.iter().map(|n| self.rings[*n].shape.clone());
        let outer = shapes.next().unwrap_or_else(|| LineString::new(Vec::new()));
        Polygon::new(outer, shapes.collect())
    }

    fn compare_holes(&mut self) -> Result<(), BorderError> {
        for part in self.parts.clone() {
            let Some((outer, holes)) = part.split_first() else { continue };
            for (n, hole) in holes.iter().enumerate() {
                let is_inside = if self.do_touch(*outer, *hole) {
                    self.relate(&[*outer], &[*hole])?.is_contains()
                } else {
                    self.lies_within(*hole, *outer)?
                };
                if !is_inside {
                    return Err(BorderError::HoleOutside);
                }
                self.spend(holes.len() as u64)?;
                for other in &holes[n + 1..] {
                    let do_overlap = if self.do_touch(*hole, *other) {
                        share_area(&self.relate(&[*hole], &[*other])?)
                    } else {
                        self.lies_within(*hole, *other)? || self.lies_within(*other, *hole)?
                    };
                    if do_overlap {
                        return Err(BorderError::HolesOverlap);
                    }
                }
            }
        }
        Ok(())
    }

    fn compare_parts(&mut self) -> Result<(), BorderError> {
        let parts = self.parts.clone();
        let touching: BTreeSet<(usize, usize)> =
            self.touching.iter().map(|(one, other)| (self.rings[*one].part, self.rings[*other].part)).collect();
        for (n, one) in parts.iter().enumerate() {
            self.spend(parts.len() as u64)?;
            for (m, other) in parts.iter().enumerate().skip(n + 1) {
                let do_overlap = if touching.contains(&(n, m)) {
                    share_area(&self.relate(one, other)?)
                } else {
                    self.covers_ring(one, other[0])? || self.covers_ring(other, one[0])?
                };
                if do_overlap {
                    return Err(BorderError::PartsOverlap);
                }
            }
        }
        Ok(())
    }

    /// Returns whether the part covers a ring that its borders do not touch.
    fn covers_ring(&mut self, part: &[usize], ring: usize) -> Result<bool, BorderError> {
        if !self.lies_within(ring, part[0])? {
            return Ok(false);
        }
        for hole in &part[1..] {
            if self.lies_within(ring, *hole)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn share_area(relation: &geo::relate::IntersectionMatrix) -> bool {
    relation.get(CoordPos::Inside, CoordPos::Inside) == Dimensions::TwoDimensional
}

/// Returns the edges of all rings, sorted by their start on the sweep axis. The sweep uses the axis on which edges are
/// shorter, so that fewer edges overlap along it.
fn sorted_edges(rings: &[Ring]) -> Vec<Edge> {
    let lines = || {
        rings
            .iter()
            .enumerate()
            .flat_map(|(ring, of)| of.shape.lines().enumerate().map(move |(n, line)| (ring, n, line)))
    };
    let extent = |of: fn(Coord) -> f64| {
        let (mut sum, mut low, mut high) = (0.0, f64::INFINITY, f64::NEG_INFINITY);
        for (.., line) in lines() {
            let (start, end) = (of(line.start), of(line.end));
            sum += (end - start).abs();
            low = start.min(low);
            high = start.max(high);
        }
        sum / (high - low)
    };
    let sweeps_x = extent(|corner| corner.x) <= extent(|corner| corner.y);
    let ordered = |a: f64, b: f64| (a.min(b), a.max(b));
    let mut edges: Vec<Edge> = lines()
        .map(|(ring, n, line)| {
            let (x, y) = (ordered(line.start.x, line.end.x), ordered(line.start.y, line.end.y));
            let (along, across) = if sweeps_x { (x, y) } else { (y, x) };
            Edge { line, ring, n, along, across }
        })
        .collect();
    edges.sort_by(|a, b| a.along.0.total_cmp(&b.along.0));
    edges
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use geo::{Area, Validation};
    use proptest::prelude::*;

    use super::*;

    /// Returns a ring of this many corners around (0, 0). `radius` gives the radius of each corner.
    fn wheel(corners: u32, radius: impl Fn(u32) -> f64) -> MultiPolygon {
        let corner = |n: u32| {
            let (sin, cos) = (f64::from(n) / f64::from(corners) * TAU).sin_cos();
            Coord { x: cos * radius(n), y: sin * radius(n) }
        };
        MultiPolygon::new(vec![Polygon::new((0..corners).map(corner).collect(), vec![])])
    }

    // Rule F48: Checking a ring of 10,000 corners compares each edge with few others, and the work of a check has a
    // fixed limit.
    #[test]
    fn check_of_large_ring_has_bounded_work() {
        let round = check_borders(&wheel(10_000, |_| 1.0), 0).unwrap();
        assert!(round < 10_000 * 200, "{round}");
        // Each tooth of the comb is as long as the area is wide, so the sweep must use the axis across the teeth.
        let tooth = |n: u32| {
            let (y, low, high) = (f64::from(n) * 0.001, 0.0, 10.0);
            let corners = [(low, y), (high, y), (high, y + 0.0004), (low, y + 0.0004)];
            corners.map(|(x, y)| Coord { x, y })
        };
        let mut comb: Vec<Coord> = (0..2_500).flat_map(tooth).collect();
        comb.push(Coord { x: -1.0, y: 2.5 });
        comb.push(Coord { x: -1.0, y: 0.0 });
        let comb = MultiPolygon::new(vec![Polygon::new(LineString::new(comb), vec![])]);
        let work = check_borders(&comb, 0).unwrap();
        assert!(work < 10_000 * 1_000, "{work}");
        let star = |n: u32| if n.is_multiple_of(2) { 0.01 } else { 1.0 };
        let spent = MOST_WORK - 1_000_000;
        assert_eq!(check_borders(&wheel(10_000, star), spent), Err(BorderError::TooIntricate));
    }

    #[test]
    fn two_parts_at_one_corner_are_valid() {
        let square =
            |w: f64, s: f64| geo::Rect::new(Coord { x: w, y: s }, Coord { x: w + 1.0, y: s + 1.0 }).to_polygon();
        let parts = |list: Vec<Polygon>| check_borders(&MultiPolygon::new(list), 0).map(drop);
        assert_eq!(parts(vec![square(0.0, 0.0), square(1.0, 1.0)]), Ok(()));
        let shared = parts(vec![square(0.0, 0.0), square(1.0, 0.0)]).unwrap_err();
        assert!(matches!(shared, BorderError::SharedLine(_)), "{shared}");
        assert_eq!(parts(vec![square(0.0, 0.0), square(0.25, 3.0), square(0.5, 6.0)]), Ok(()));
    }

    fn rings() -> impl Strategy<Value = MultiPolygon> {
        let corner = (0_u8..6, 0_u8..6).prop_map(|(x, y)| Coord { x: f64::from(x), y: f64::from(y) });
        let ring = prop::collection::vec(corner, 3..6).prop_map(LineString::new);
        let polygon =
            (ring.clone(), prop::collection::vec(ring, 0..3)).prop_map(|(outer, holes)| Polygon::new(outer, holes));
        prop::collection::vec(polygon, 1..3).prop_map(MultiPolygon::new)
    }

    /// Generates squares and triangles. They meet, contain and miss each other more often than random rings.
    fn blocks() -> impl Strategy<Value = MultiPolygon> {
        let block = (0_u8..7, 0_u8..7, 1_u8..6, 1_u8..6, any::<bool>()).prop_map(|(x, y, width, height, is_square)| {
            let (w, s) = (f64::from(x), f64::from(y));
            let (e, n) = (w + f64::from(width), s + f64::from(height));
            let mut corners = vec![Coord { x: w, y: s }, Coord { x: e, y: s }, Coord { x: e, y: n }];
            if is_square {
                corners.push(Coord { x: w, y: n });
            }
            LineString::new(corners)
        });
        let polygon =
            (block.clone(), prop::collection::vec(block, 0..3)).prop_map(|(outer, holes)| Polygon::new(outer, holes));
        prop::collection::vec(polygon, 1..3).prop_map(MultiPolygon::new)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        // Rule F48: The sweep accepts exactly the polygons that the slow validation of `geo` accepts.
        #[test]
        fn sweep_agrees_with_slow_validation(polygons in prop_oneof![rings(), blocks()]) {
            // `geo` accepts a triangle of zero area; an import refuses it.
            let rings = polygons.iter().flat_map(|polygon| std::iter::once(polygon.exterior()).chain(polygon.interiors()));
            let flat = |ring: &LineString| Polygon::new(ring.clone(), vec![]).unsigned_area() == 0.0;
            prop_assume!(!rings.into_iter().any(flat));
            let found = check_borders(&polygons, 0);
            prop_assert_eq!(found.is_ok(), polygons.is_valid(), "{:?}: {:?}", found, polygons.check_validation());
        }
    }
}
