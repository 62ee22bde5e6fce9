//! Durations as people write them: "400ms", "15s", "2m 30s".

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

fn parse<E: Error>(text: &str) -> Result<Duration, E> {
    humantime::parse_duration(text)
        .map_err(|e| E::custom(format!("'{text}' is no duration ({e}); write \"400ms\", \"15s\" or \"2m\"")))
}

pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    parse(&String::deserialize(d)?)
}

pub fn serialize<S: Serializer>(duration: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&humantime::format_duration(*duration))
}

pub mod list {
    use super::*;

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Duration>, D::Error> {
        Vec::<String>::deserialize(d)?.iter().map(|text| parse(text)).collect()
    }

    pub fn serialize<S: Serializer>(durations: &[Duration], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(durations.iter().map(|d| humantime::format_duration(*d).to_string()))
    }
}

pub mod option {
    use super::*;

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Option::<String>::deserialize(d)?.map(|text| parse(&text)).transpose()
    }

    pub fn serialize<S: Serializer>(duration: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, s),
            None => s.serialize_none(),
        }
    }
}

pub mod option_list {
    use super::*;

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<Duration>>, D::Error> {
        Option::<Vec<String>>::deserialize(d)?.map(|texts| texts.iter().map(|t| parse(t)).collect()).transpose()
    }

    pub fn serialize<S: Serializer>(durations: &Option<Vec<Duration>>, s: S) -> Result<S::Ok, S::Error> {
        match durations {
            Some(durations) => super::list::serialize(durations, s),
            None => s.serialize_none(),
        }
    }
}
