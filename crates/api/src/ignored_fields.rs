//! Names the fields of a body that an operation did not read, in the header `X-Ignored-Fields`. Unknown fields are
//! accepted, because a producer of a later version may send more fields. A misspelled optional field looks the same;
//! the header makes it visible.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde::{
    Deserializer,
    de::{self, DeserializeOwned, Error as _, IgnoredAny, Visitor},
    forward_to_deserialize_any,
};

pub(super) const IGNORED_FIELDS: HeaderName = HeaderName::from_static("x-ignored-fields");
/// Maximum number of names in the header, and maximum length of each.
const MOST_NAMES: usize = 16;
const LONGEST_NAME: usize = 64;

/// Unread fields of one request. It travels with the request from the extractor to the middleware.
#[derive(Debug, Clone, Default)]
pub(super) struct IgnoredFields(Arc<Mutex<BTreeSet<String>>>);

impl IgnoredFields {
    /// Compares the fields of a JSON body with those that `T` reads. Nested fields are not compared.
    pub(super) fn compare<T: DeserializeOwned>(&self, body: &[u8]) {
        let known = field_names::<T>();
        if known.is_empty() {
            return;
        }
        let Ok(brought) = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body) else { return };
        let unread = brought.into_keys().filter(|name| !known.contains(&name.as_str()));
        self.0.lock().extend(unread);
    }

    /// Adds fields that another parser did not read.
    pub(super) fn add(&self, names: impl IntoIterator<Item = String>) {
        self.0.lock().extend(names);
    }

    /// Returns the names for a header or a log; `None` if all fields were read.
    pub(super) fn names(&self) -> Option<String> {
        let names = self.0.lock();
        if names.is_empty() {
            return None;
        }
        let shown: Vec<&str> = names.iter().take(MOST_NAMES).map(|name| printable_name(name)).collect();
        Some(shown.join(", "))
    }
}

/// Returns the name if it is a plain identifier, otherwise `?`. A name in a body may have any characters.
fn printable_name(name: &str) -> &str {
    let fits = (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if fits { name } else { "?" }
}

pub(super) fn header_value(names: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(names).ok()
}

/// Returns the fields that a struct reads from JSON; empty for other types.
fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // This call always fails, after it recorded the names.
    let _ = <T as serde::Deserialize<'_>>::deserialize(FieldNames(&mut names));
    names
}

/// A deserializer that records the names of a struct's fields and reads nothing.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(de::value::Error::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(de::value::Error::custom("only the names are read"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "its fields are read by name")]
    struct Ride {
        place: String,
        #[serde(default, rename = "loyalty_level")]
        loyalty: Option<String>,
    }

    fn unread<T: DeserializeOwned>(body: &str) -> Option<String> {
        let ignored = IgnoredFields::default();
        ignored.compare::<T>(body.as_bytes());
        ignored.names()
    }

    #[test]
    fn only_unread_fields_are_named() {
        assert_eq!(unread::<Ride>(r#"{"place":"here","loyalty_level":"ELITE"}"#), None);
        assert_eq!(unread::<Ride>(r#"{"place":"here","loyalty":"ELITE","colour":1}"#).unwrap(), "colour, loyalty");
        assert_eq!(unread::<Ride>("{}"), None);
        assert_eq!(unread::<BTreeMap<String, String>>(r#"{"any":"thing"}"#), None);
    }

    #[test]
    fn unprintable_field_name_is_masked() {
        let told = unread::<Ride>("{\"+62 812\":1,\"a\\r\\nb\":1,\"good\":1}").unwrap();
        assert_eq!(told, "?, ?, good");
        assert!(header_value(&told).is_some());
    }
}
