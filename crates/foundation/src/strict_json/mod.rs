//! Strict parser for JSON from outside: HTTP bodies and import files. A struct must be an object, not a list, and no
//! object may repeat a member.

mod objects;

use std::{collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor},
};

pub use objects::Objects;

/// Reason why JSON cannot be parsed, and the path of the value.
pub type ReadError = serde_path_to_error::Error<serde_json::Error>;

/// Parses JSON. Refuses objects with repeated members.
pub fn read_unique<T: DeserializeOwned>(json: &[u8]) -> Result<T, ReadError> {
    let UniqueNames = read(json)?;
    read(json)
}

/// Parses JSON. Structs must be objects.
pub fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, ReadError> {
    let mut track = serde_path_to_error::Track::new();
    let mut json = serde_json::Deserializer::from_slice(json);
    let value = T::deserialize(serde_path_to_error::Deserializer::new(Objects(&mut json), &mut track));
    let value = value.and_then(|value| json.end().map(|()| value));
    value.map_err(|error| serde_path_to_error::Error::new(track.path(), error))
}

/// Any JSON without repeated members. Some parsers take the first of two members and others the last, so they would
/// disagree.
#[derive(Debug)]
pub struct UniqueNames;

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueNamesVisitor)
    }
}

struct UniqueNamesVisitor;

impl<'de> Visitor<'de> for UniqueNamesVisitor {
    type Value = UniqueNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_i64<E>(self, _: i64) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_u64<E>(self, _: u64) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_f64<E>(self, _: f64) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_str<E>(self, _: &str) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_unit<E>(self) -> Result<UniqueNames, E> {
        Ok(UniqueNames)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueNames, A::Error> {
        while items.next_element::<UniqueNames>()?.is_some() {}
        Ok(UniqueNames)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<UniqueNames, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            names.insert(name);
            members.next_value::<UniqueNames>()?;
        }
        Ok(UniqueNames)
    }
}
