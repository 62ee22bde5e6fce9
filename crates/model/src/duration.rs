//! Durations as people write them: "400ms", "15s", "2m 30s".

use std::{ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Deserializer, Serializer, de::Error};

use crate::plain_text;

/// Parses a duration. Refuses "2M": humantime reads it as two months, but people usually mean two minutes.
pub fn parse_text(text: &str) -> Result<Duration, String> {
    let shown = plain_text::excerpt(text);
    if text.contains('M') {
        return Err(format!("'{shown}' is not a duration: write \"2m\" for minutes, \"60days\" for two months"));
    }
    humantime::parse_duration(text)
        .map_err(|error| format!("'{shown}' is not a duration ({error}); write \"400ms\", \"15s\" or \"2m\""))
}

/// Returns a clap value parser for durations within a range. Its error states the range.
pub fn parse_within(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text: &str| {
        let duration = parse_text(text)?;
        if range.contains(&duration) {
            return Ok(duration);
        }
        let (least, most) = (show_in_days(*range.start()), show_in_days(*range.end()));
        Err(format!("must be {least} to {most}"))
    }
}

/// Formats a duration for people. Whole days are shown in days.
fn show_in_days(duration: Duration) -> String {
    const DAY: u64 = 24 * 3_600;
    match (duration.as_secs(), duration.subsec_nanos()) {
        (secs, 0) if secs > 0 && secs.is_multiple_of(DAY) => format!("{}days", secs / DAY),
        _ => humantime::format_duration(duration).to_string(),
    }
}

fn parse<E: Error>(text: &str) -> Result<Duration, E> {
    parse_text(text).map_err(E::custom)
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

#[cfg(test)]
mod tests {
    use super::*;

    // Rule F20: Each duration on the command line has a range, which the error states.
    // Rule F31: "2M" is not read as two months.
    #[test]
    fn durations_have_a_range_and_no_months() {
        let read = parse_within(Duration::from_secs(1)..=Duration::from_secs(3_650 * 24 * 3_600));
        assert_eq!(read("90days"), Ok(Duration::from_secs(90 * 24 * 3_600)));
        for beyond in ["300000y", "0s", "999ms", "3651days"] {
            assert_eq!(read(beyond), Err("must be 1s to 3650days".to_owned()), "{beyond}");
        }
        for wrong in ["2M", "1h 2M", "soon", "", "-1s", "1", "999999999999999999999s", "18446744073709551615y"] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("is not a duration") && error.len() < 300, "{wrong}: {error}");
        }
    }
}
