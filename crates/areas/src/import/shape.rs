//! Conversion of geometries to polygons with valid borders.

use geo::{Area as _, LinesIter, MultiPolygon};
use geojson::{Feature, Geometry, GeometryValue};
use model::area::borders::check_borders;
use serde_json::Value;

use super::{ImportError, refuse};

/// Maximum number of corners in one area, and in all areas of one file.
const MOST_CORNERS: usize = 10_000;
const MOST_CORNERS_IN_ALL: usize = 200_000;
/// Maximum number of parts and holes in one area.
const MOST_RINGS: usize = 500;
/// Maximum degrees of longitude that an edge may span. A longer edge was probably meant to cross the 180th meridian
/// (RFC 7946, section 3.1.9).
const WIDEST_EDGE: f64 = 180.0;

/// Resources that the import of one file has used.
#[derive(Debug, Default)]
pub(super) struct Budget {
    corners: usize,
    /// Number of comparisons made by the border checks.
    work: u64,
}

impl Budget {
    #[cfg(test)]
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Counts the corners of a feature. Fails if this feature has too many, or if the file has too many so far.
    pub(super) fn count_corners(&mut self, feature: &Feature) -> Result<(), ImportError> {
        let Some(geometry) = &feature.geometry else { return Ok(()) };
        let rings = match &geometry.value {
            GeometryValue::Polygon { coordinates } => coordinates.iter().collect::<Vec<_>>(),
            GeometryValue::MultiPolygon { coordinates } => coordinates.iter().flatten().collect(),
            _ => Vec::new(),
        };
        if rings.len() > MOST_RINGS {
            refuse!("its geometry has {} parts and holes; the maximum is {MOST_RINGS}", rings.len());
        }
        let corners: usize = rings.iter().map(|ring| ring.len()).sum();
        if corners > MOST_CORNERS {
            refuse!("its geometry has {corners} corners; the maximum is {MOST_CORNERS}: simplify it");
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

/// Checks a geometry. Returns it both as polygons and as GeoJSON with closed rings for storage.
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
        refuse!("its polygon has no area");
    }
    let value = match (&geometry.value, &polygons.0[..]) {
        (GeometryValue::Polygon { .. }, [polygon]) => GeometryValue::from(polygon),
        _ => GeometryValue::from(&polygons),
    };
    let kept = serde_json::to_value(Geometry::new(value)).map_err(|error| ImportError::new(error.to_string()))?;
    Ok((polygons, kept))
}

pub fn read_stored(geometry: Value) -> Result<MultiPolygon, ImportError> {
    let geometry: Geometry = serde_json::from_value(geometry).map_err(|error| ImportError::new(error.to_string()))?;
    to_polygons(&geometry)
}

/// Converts a geometry to polygons. Checks the coordinates but not the borders.
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
        _ => refuse!("its geometry is not a polygon"),
    };
    for coordinate in geo::CoordsIter::coords_iter(&polygons) {
        if !(-180.0..=180.0).contains(&coordinate.x) {
            let (lng, lat) = (coordinate.x, coordinate.y);
            refuse!(
                "{lng}, {lat} is not a longitude and latitude: a longitude is -180 to 180; cut a polygon that crosses 180° there"
            );
        }
        if !(-90.0..=90.0).contains(&coordinate.y) {
            refuse!("{}, {} is not a longitude and latitude: a latitude is -90 to 90", coordinate.x, coordinate.y);
        }
    }
    Ok(polygons)
}
