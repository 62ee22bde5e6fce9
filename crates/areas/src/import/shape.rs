//! Geometries as polygons whose borders are sound.

use geo::{Area as _, LinesIter, MultiPolygon};
use geojson::{Feature, Geometry, GeometryValue};
use model::area::borders::check_borders;
use serde_json::Value;

use super::{ImportError, refuse};

/// Corners of one area, and of all in one file.
const MOST_CORNERS: usize = 10_000;
const MOST_CORNERS_IN_ALL: usize = 200_000;
/// Parts and holes of one area.
const MOST_RINGS: usize = 500;
/// Degrees of longitude that an edge may span. A longer one is meant to cross the 180th meridian (RFC 7946, section 3.1.9).
const WIDEST_EDGE: f64 = 180.0;

/// What one file may cost.
#[derive(Debug, Default)]
pub(super) struct Budget {
    corners: usize,
    /// Work of the checks of borders.
    work: u64,
}

impl Budget {
    #[cfg(test)]
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Counts the corners of a feature. Fails when the feature, or the file up to it, has too many.
    pub(super) fn count_corners(&mut self, feature: &Feature) -> Result<(), ImportError> {
        let Some(geometry) = &feature.geometry else { return Ok(()) };
        let rings = match &geometry.value {
            GeometryValue::Polygon { coordinates } => coordinates.iter().collect::<Vec<_>>(),
            GeometryValue::MultiPolygon { coordinates } => coordinates.iter().flatten().collect(),
            _ => Vec::new(),
        };
        if rings.len() > MOST_RINGS {
            refuse!("its geometry has {} parts and holes; {MOST_RINGS} is the most", rings.len());
        }
        let corners: usize = rings.iter().map(|ring| ring.len()).sum();
        if corners > MOST_CORNERS {
            refuse!("its geometry has {corners} corners; {MOST_CORNERS} is the most: simplify it");
        }
        self.corners += corners;
        if self.corners > MOST_CORNERS_IN_ALL {
            refuse!(
                "the file has more than {MOST_CORNERS_IN_ALL} corners up to here: simplify it, or import it in parts"
            );
        }
        Ok(())
    }
}

/// Returns a geometry as polygons whose borders are sound, and as it is kept: its rings are closed.
pub(super) fn checked(geometry: &Geometry, budget: &mut Budget) -> Result<(MultiPolygon, Value), ImportError> {
    let polygons = to_polygons(geometry)?;
    if let Some(edge) = polygons.lines_iter().find(|edge| edge.dx().abs() > WIDEST_EDGE) {
        refuse!(
            "its edge from {}, {} to {}, {} spans {}° of longitude: cut it at 180° into two polygons, one on each side",
            edge.start.x,
            edge.start.y,
            edge.end.x,
            edge.end.y,
            edge.dx().abs()
        );
    }
    match check_borders(&polygons, budget.work) {
        Ok(work) => budget.work += work,
        Err(problem) => refuse!("its polygon is not valid: {problem}"),
    }
    let has_area = polygons.unsigned_area() > 0.0;
    if !has_area {
        refuse!("its polygon holds no area");
    }
    let value = match (&geometry.value, &polygons.0[..]) {
        (GeometryValue::Polygon { .. }, [polygon]) => GeometryValue::from(polygon),
        _ => GeometryValue::from(&polygons),
    };
    let kept = serde_json::to_value(Geometry::new(value)).map_err(|error| ImportError::new(error.to_string()))?;
    Ok((polygons, kept))
}

/// Reads a geometry that was imported, as it is kept.
pub fn read_stored(geometry: Value) -> Result<MultiPolygon, ImportError> {
    let geometry: Geometry = serde_json::from_value(geometry).map_err(|error| ImportError::new(error.to_string()))?;
    to_polygons(&geometry)
}

/// Returns a geometry as polygons that can be looked up in. Whether their borders are sound is not checked.
fn to_polygons(geometry: &Geometry) -> Result<MultiPolygon, ImportError> {
    let shape = match &geometry.value {
        GeometryValue::Polygon { .. } | GeometryValue::MultiPolygon { .. } => {
            geo::Geometry::<f64>::try_from(geometry).map_err(|error| ImportError::new(error.to_string()))?
        }
        other => refuse!("its geometry is a {}; Polygon or MultiPolygon is needed", other.type_name()),
    };
    let polygons = match shape {
        geo::Geometry::Polygon(polygon) => MultiPolygon::new(vec![polygon]),
        geo::Geometry::MultiPolygon(polygons) => polygons,
        _ => refuse!("its geometry is no polygon"),
    };
    for coordinate in geo::CoordsIter::coords_iter(&polygons) {
        if !(-180.0..=180.0).contains(&coordinate.x) {
            let (lng, lat) = (coordinate.x, coordinate.y);
            refuse!(
                "{lng}, {lat} is no longitude and latitude: a longitude is -180 to 180; what crosses 180° is cut there"
            );
        }
        if !(-90.0..=90.0).contains(&coordinate.y) {
            refuse!("{}, {} is no longitude and latitude: a latitude is -90 to 90", coordinate.x, coordinate.y);
        }
    }
    Ok(polygons)
}
