//! Fields of a body that say nothing here. Readers are tolerant: a producer of a later version may send more than this one
//! reads. A misspelled optional field looks the same, so the answer names what was not read: `X-Ignored-Fields`.

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
/// Names that are shown, and how long each may be.
const MOST_NAMES: usize = 16;
const LONGEST_NAME: usize = 64;

/// What one request brought that was not read; travels with it from the extractor to the middleware.
#[derive(Debug, Clone, Default)]
pub(super) struct IgnoredFields(Arc<Mutex<BTreeSet<String>>>);

impl IgnoredFields {
    /// Compares the fields of a body, which is JSON, with those that `T` reads. Fields within fields are not looked at.
    pub(super) fn compare<T: DeserializeOwned>(&self, body: &[u8]) {
        let known = field_names::<T>();
        if known.is_empty() {
            return;
        }
        let Ok(brought) = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body) else { return };
        let unread = brought.into_keys().filter(|name| !known.contains(&name.as_str()));
        self.0.lock().extend(unread);
    }

    /// Adds names of members that a reader of its own did not read.
    pub(super) fn add(&self, names: impl IntoIterator<Item = String>) {
        self.0.lock().extend(names);
    }

    /// Names that a header and a log can show; `None`: all was read.
    pub(super) fn names(&self) -> Option<String> {
        let names = self.0.lock();
        if names.is_empty() {
            return None;
        }
        let shown: Vec<&str> = names.iter().take(MOST_NAMES).map(|name| printable_name(name)).collect();
        Some(shown.join(", "))
    }
}

/// A name as programs give them to fields, or a mark in its place: what else stands there may be anything.
fn printable_name(name: &str) -> &str {
    let fits = (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if fits { name } else { "?" }
}

pub(super) fn header_value(names: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(names).ok()
}

/// The fields a struct reads from JSON; none for other types.
fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // It always fails: nothing is read but the names.
    let _ = <T as serde::Deserialize<'_>>::deserialize(FieldNames(&mut names));
    names
}

/// Learns the names of a struct's fields, and reads nothing.
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
        Err(de::value::Error::custom("the names alone"))
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
    fn fields_that_are_not_read_are_named_and_only_they() {
        assert_eq!(unread::<Ride>(r#"{"place":"here","loyalty_level":"ELITE"}"#), None);
        assert_eq!(unread::<Ride>(r#"{"place":"here","loyalty":"ELITE","colour":1}"#).unwrap(), "colour, loyalty");
        assert_eq!(unread::<Ride>("{}"), None);
        assert_eq!(unread::<BTreeMap<String, String>>(r#"{"any":"thing"}"#), None);
    }

    #[test]
    fn a_name_that_a_header_cannot_show_is_marked() {
        let told = unread::<Ride>("{\"+62 812\":1,\"a\\r\\nb\":1,\"good\":1}").unwrap();
        assert_eq!(told, "?, ?, good");
        assert!(header_value(&told).is_some());
    }
}
