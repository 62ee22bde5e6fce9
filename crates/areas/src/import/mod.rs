//! Areas from GeoJSON: a FeatureCollection of polygons. Each feature has the property `area_id` and optionally `name`,
//! `priority`, `geohashes`, `service_type` and `time_zone`. A feature without a geometry needs geohashes.
//!
//! * [`properties`]: validates the properties of a feature.
//! * [`shape`]: converts geometries to polygons with valid borders.

mod properties;
mod shape;

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
};

use geojson::{Feature, GeoJson, JsonObject};
use model::{
    area::Area,
    ids::{AreaId, ServiceType},
    input,
    json_words::plain_error,
};
use serde_json::{Value, error::Category};
use serde_path_to_error::Segment;

use foundation::strict_json::{self, UniqueNames};
use properties::Properties;

pub use shape::read_stored;

/// Maximum number of features in one file.
const MOST_FEATURES: usize = 2_000;

/// A problem in a file of areas, with its position.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct ImportError {
    /// Path to the member: names and indices joined with slashes, such as `features/0/properties/name`. Empty for the
    /// whole file.
    path: String,
    text: String,
}

impl ImportError {
    fn new(text: impl Into<String>) -> Self {
        Self { path: String::new(), text: text.into() }
    }

    /// Returns the path of the invalid member; empty for the whole file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Prefixes the path with this member.
    fn within(self, member: impl fmt::Display) -> Self {
        let path = if self.path.is_empty() { member.to_string() } else { format!("{member}/{}", self.path) };
        Self { path, ..self }
    }

    /// Prefixes the text with a position that a person can find in the file.
    fn at(self, place: impl fmt::Display) -> Self {
        Self { text: format!("{place}: {}", self.text), ..self }
    }
}

/// Returns an [`ImportError`] with this text.
macro_rules! refuse {
    ($($text:tt)*) => {
        return Err($crate::import::ImportError::new(format!($($text)*)))
    };
}
use refuse;

/// An imported area, with its geometry as stored GeoJSON.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedArea {
    pub area: Area,
    pub geometry: Option<Value>,
}

/// Areas of a file, and the members that were ignored.
#[derive(Debug, Clone, PartialEq)]
pub struct AreaFile {
    pub areas: Vec<ImportedArea>,
    /// Names of unknown members, such as a misspelled property.
    pub ignored: BTreeSet<String>,
}

/// Parses areas without checking their service types.
pub fn parse(text: &str) -> Result<Vec<ImportedArea>, ImportError> {
    Ok(parse_file(text, |_| None)?.areas)
}

/// Parses all areas of a file, or returns its first problem. `unknown` returns a problem for a service type that the
/// installation does not have.
pub fn parse_file(text: &str, unknown: impl Fn(&ServiceType) -> Option<String>) -> Result<AreaFile, ImportError> {
    let text = input::skip_text_mark(text);
    refuse_doubled_names(text)?;
    let json: GeoJson = text.parse().map_err(|error| ImportError::new(format!("this is not GeoJSON: {error}")))?;
    let GeoJson::FeatureCollection(collection) = json else { refuse!("a FeatureCollection is needed") };
    let count = collection.features.len();
    if count == 0 {
        refuse!("it has no feature");
    }
    if count > MOST_FEATURES {
        refuse!("it has {count} features; the maximum is {MOST_FEATURES}");
    }
    let of_feature =
        |error: ImportError, n: usize| error.within(format_args!("features/{n}")).at(format_args!("feature {}", n + 1));
    // All corners are counted before the first feature is checked.
    let mut budget = shape::Budget::default();
    for (n, feature) in collection.features.iter().enumerate() {
        budget.count_corners(feature).map_err(|error| of_feature(error, n))?;
    }
    let mut ignored = BTreeSet::new();
    note_members(&mut ignored, collection.foreign_members.as_ref());
    let (mut ids, mut areas) = (HashSet::new(), Vec::new());
    for (n, feature) in collection.features.into_iter().enumerate() {
        let imported =
            read_feature(feature, &unknown, &mut budget, &mut ignored).map_err(|error| of_feature(error, n))?;
        if !ids.insert(imported.area.id.clone()) {
            let twice = ImportError::new(format!("area_id {} comes twice", imported.area.id));
            return Err(of_feature(twice.within("properties/area_id"), n));
        }
        areas.push(imported);
    }
    Ok(AreaFile { areas, ignored })
}

/// Refuses duplicate members. Accepts text that is not JSON, because the GeoJSON parser then reports the error with its
/// position.
fn refuse_doubled_names(text: &str) -> Result<(), ImportError> {
    match strict_json::read::<UniqueNames>(text.as_bytes()) {
        Err(error) if error.inner().classify() == Category::Data => {
            let said = error.inner().to_string();
            let doubled = ImportError::new(plain_error(&said)).within(said.split('`').nth(1).unwrap_or_default());
            Err(error.path().iter().rev().fold(doubled, |doubled, segment| match segment {
                Segment::Map { key } => doubled.within(key),
                Segment::Seq { index } => doubled.within(index),
                Segment::Enum { .. } | Segment::Unknown => doubled,
            }))
        }
        Ok(UniqueNames) | Err(_) => Ok(()),
    }
}

fn note_members(ignored: &mut BTreeSet<String>, members: Option<&JsonObject>) {
    ignored.extend(members.into_iter().flat_map(JsonObject::keys).cloned());
}

fn read_feature(
    feature: Feature,
    unknown: impl Fn(&ServiceType) -> Option<String>,
    budget: &mut shape::Budget,
    ignored: &mut BTreeSet<String>,
) -> Result<ImportedArea, ImportError> {
    note_members(ignored, feature.foreign_members.as_ref());
    let properties = Properties(feature.properties.unwrap_or_default());
    ignored.extend(properties.unknown_names());
    let id = properties.read_id()?;
    let (properties, shape) = (|| {
        let read = properties.read(&id, unknown)?;
        let shape = feature.geometry.as_ref().map(|geometry| shape::checked(geometry, budget)).transpose();
        Ok((read, shape.map_err(|error: ImportError| error.within("geometry"))?))
    })()
    .map_err(|error: ImportError| error.at(format_args!("area {id}")))?;
    note_members(ignored, feature.geometry.as_ref().and_then(|geometry| geometry.foreign_members.as_ref()));
    if shape.is_none() && properties.geohashes.is_empty() {
        refuse!("area {id}: it has neither a geometry nor geohashes");
    }
    let (polygons, geometry) = shape.unzip();
    let area = Area {
        id: AreaId::from(id),
        name: properties.name,
        priority: properties.priority,
        polygons,
        geohashes: properties.geohashes,
        service_types: properties.service_types,
        time_zone: properties.time_zone,
    };
    Ok(ImportedArea { area, geometry })
}

#[cfg(test)]
mod tests;
