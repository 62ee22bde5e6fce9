//! Distances as people write them: "800m", "2km", "1.5km".

use serde::{Deserialize, Deserializer, Serializer, de::Error};

use crate::plain_text;

/// Parses a distance. Returns metres.
pub fn parse_text(text: &str) -> Result<f64, String> {
    let refuse = || format!("'{}' is not a distance; write \"800m\" or \"2km\"", plain_text::excerpt(text));
    let (number, factor) = match text.strip_suffix("km") {
        Some(number) => (number, 1_000.0),
        None => (text.strip_suffix('m').ok_or_else(refuse)?, 1.0),
    };
    let is_plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let metres = number.parse::<f64>().ok().filter(|_| is_plain).map(|number| number * factor);
    metres.filter(|metres| metres.is_finite()).ok_or_else(refuse)
}

/// Formats metres as people write them. Whole kilometres are shown in kilometres.
pub fn show_metres(metres: f64) -> String {
    if metres >= 1_000.0 && metres % 1_000.0 == 0.0 { format!("{}km", metres / 1_000.0) } else { format!("{metres}m") }
}

pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    parse_text(&String::deserialize(d)?).map_err(D::Error::custom)
}

pub fn serialize<S: Serializer>(metres: &f64, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&show_metres(*metres))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_have_a_unit() {
        for (text, metres) in [("800m", 800.0), ("2km", 2_000.0), ("1.5km", 1_500.0), ("0.5m", 0.5)] {
            assert_eq!(parse_text(text), Ok(metres), "{text}");
            assert_eq!(parse_text(&show_metres(metres)), Ok(metres), "{text}");
        }
        assert_eq!((show_metres(2_000.0), show_metres(1_500.0)), ("2km".to_owned(), "1500m".to_owned()));
        for wrong in ["2", "km", "2 km", "-1km", "2miles", "1e3m", "NaNm", "infkm", "1..5km", ""] {
            assert!(parse_text(wrong).unwrap_err().contains("is not a distance"), "{wrong}");
        }
    }
}
