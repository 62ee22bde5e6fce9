//! Validation of a feature's properties, with the same rules as the limits API.

use std::collections::HashSet;

use geojson::JsonObject;
use model::{admission::schedule::AreaTimeZone, ids::ServiceType, input, plain_text};
use serde_json::Value;

use super::{ImportError, refuse};

/// Properties that are read. The names come from the requirement.
const KNOWN: [&str; 6] = ["area_id", "name", "priority", "geohashes", "service_type", "time_zone"];

/// Maximum number of characters in a name.
const MOST_NAME: usize = 200;
const MOST_SERVICE_TYPES: usize = 64;
const MOST_GEOHASHES: usize = 10_000;

/// Properties of a feature before validation.
pub(super) struct Properties(pub(super) JsonObject);

pub(super) struct AreaProperties {
    pub(super) name: String,
    pub(super) priority: i32,
    pub(super) geohashes: Vec<String>,
    /// Empty: all service types.
    pub(super) service_types: Vec<ServiceType>,
    pub(super) time_zone: Option<AreaTimeZone>,
}

impl Properties {
    /// Returns the names of properties that are ignored.
    pub(super) fn unknown_names(&self) -> impl Iterator<Item = String> {
        self.0.keys().filter(|name| !KNOWN.contains(&name.as_str())).cloned()
    }

    /// Returns a property, or `None` if it is absent or null.
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn read_text(&self, name: &str) -> Result<Option<&str>, ImportError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text =
            value.as_str().ok_or_else(|| ImportError::new(format!("{name} must be a text, not {}", kind_of(value))));
        text.map(Some)
    }

    pub(super) fn read_id(&self) -> Result<String, ImportError> {
        let read = || {
            let Some(id) = self.read_text("area_id")? else { refuse!("area_id is missing among its properties") };
            match input::ID.find_problem(id) {
                Some(problem) => refuse!("area_id '{}' {problem}", plain_text::excerpt(id)),
                None => Ok(id.to_owned()),
            }
        };
        read().map_err(|error: ImportError| error.within("properties/area_id"))
    }

    /// Reads all properties except the id. If an area has no name, its id becomes its name.
    pub(super) fn read(
        &self,
        id: &str,
        unknown: impl Fn(&ServiceType) -> Option<String>,
    ) -> Result<AreaProperties, ImportError> {
        let at = |name: &'static str| move |error: ImportError| error.within(name).within("properties");
        Ok(AreaProperties {
            name: self.read_name(id).map_err(at("name"))?,
            priority: self.read_priority().map_err(at("priority"))?,
            geohashes: self.read_geohashes().map_err(at("geohashes"))?,
            service_types: self.read_service_types(unknown).map_err(at("service_type"))?,
            time_zone: self.read_time_zone().map_err(at("time_zone"))?,
        })
    }

    fn read_name(&self, id: &str) -> Result<String, ImportError> {
        let name = self.read_text("name")?.unwrap_or(id);
        if plain_text::is_blank(name) {
            refuse!("name must not be empty; leave it out to call the area by its id");
        }
        match plain_text::find_problem(name, MOST_NAME) {
            Some(problem) => refuse!("name {problem}"),
            None => Ok(name.to_owned()),
        }
    }

    fn read_priority(&self) -> Result<i32, ImportError> {
        let Some(value) = self.get("priority") else { return Ok(0) };
        // JSON has only one number type: 1.0 equals 1.
        let whole = value.as_f64().filter(|number| number.fract() == 0.0);
        #[expect(clippy::cast_possible_truncation, reason = "the number is within the range of the type")]
        match whole.filter(|number| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(number)) {
            Some(number) => Ok(number as i32),
            None => refuse!("priority must be a whole number from {} to {}, not {}", i32::MIN, i32::MAX, shown(value)),
        }
    }

    /// Reads a list of strings. An absent list is empty.
    fn read_list(&self, name: &str, most: usize) -> Result<Vec<&str>, ImportError> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let Some(list) = value.as_array() else { refuse!("{name} must be a list of texts, not {}", kind_of(value)) };
        if list.len() > most {
            refuse!("{name} has {} entries; the maximum is {most}", list.len());
        }
        if let Some((n, other)) = list.iter().enumerate().find(|(_, item)| !item.is_string()) {
            let text = format!("{name} must be a list of texts, but contains {}", kind_of(other));
            return Err(ImportError::new(text).within(n));
        }
        Ok(list.iter().filter_map(Value::as_str).collect())
    }

    fn read_geohashes(&self) -> Result<Vec<String>, ImportError> {
        let mut geohashes: Vec<String> = Vec::new();
        let mut known = HashSet::new();
        for (n, item) in self.read_list("geohashes", MOST_GEOHASHES)?.into_iter().enumerate() {
            let prefix = item.to_ascii_lowercase();
            if !(1..=9).contains(&prefix.len()) || geohash::decode(&prefix).is_err() {
                let text = format!("'{}' is not a geohash of 1 to 9 characters", plain_text::excerpt(item));
                return Err(ImportError::new(text).within(n));
            }
            if known.insert(prefix.clone()) {
                geohashes.push(prefix);
            }
        }
        Ok(geohashes)
    }

    fn read_service_types(
        &self,
        unknown: impl Fn(&ServiceType) -> Option<String>,
    ) -> Result<Vec<ServiceType>, ImportError> {
        let mut service_types: Vec<ServiceType> = Vec::new();
        for (n, name) in self.read_list("service_type", MOST_SERVICE_TYPES)?.into_iter().enumerate() {
            let service_type = ServiceType::from(name);
            if !(1..=64).contains(&name.len()) {
                let text = format!("service_type '{}' must be 1 to 64 characters", plain_text::excerpt(name));
                return Err(ImportError::new(text).within(n));
            }
            if let Some(problem) = unknown(&service_type) {
                return Err(ImportError::new(problem).within(n));
            }
            if !service_types.contains(&service_type) {
                service_types.push(service_type);
            }
        }
        Ok(service_types)
    }

    fn read_time_zone(&self) -> Result<Option<AreaTimeZone>, ImportError> {
        let Some(name) = self.read_text("time_zone")? else { return Ok(None) };
        name.parse::<AreaTimeZone>().map(Some).map_err(|error| ImportError::new(error.to_string()))
    }
}

/// Returns a JSON value as text for an error message.
fn shown(value: &Value) -> String {
    if value.is_number() { value.to_string() } else { kind_of(value).to_owned() }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
