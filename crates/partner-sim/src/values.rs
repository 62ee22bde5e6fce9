//! Value types of knobs: rates, distributions of durations, and time windows. Pure.

use std::{fmt, str::FromStr, time::Duration};

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Maximum duration in a knob.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// A share of all cases, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct EventRate(f64);

impl EventRate {
    pub const NEVER: Self = Self(0.0);
    pub const ALWAYS: Self = Self(1.0);

    /// Returns whether the event happens this time.
    pub fn draw_outcome(self, rng: &mut impl Rng) -> bool {
        rng.random::<f64>() < self.0
    }
}

impl From<EventRate> for f64 {
    fn from(rate: EventRate) -> Self {
        rate.0
    }
}

impl TryFrom<f64> for EventRate {
    type Error = String;

    fn try_from(rate: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&rate) { Ok(Self(rate)) } else { Err(format!("{rate} is not a rate from 0 to 1")) }
    }
}

impl FromStr for EventRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number: f64 = text.parse().map_err(|_| "expected a number from 0 to 1, such as 0.05".to_owned())?;
        number.try_into()
    }
}

/// Distribution of a duration: "3s", "500ms-2s" (uniform), or a mixture: "50% 1s-2s, 50% 10m-15m".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DurationSpread(Vec<SpreadPart>);

#[derive(Debug, Clone, PartialEq)]
struct SpreadPart {
    percent: f64,
    least: Duration,
    most: Duration,
}

impl DurationSpread {
    pub fn draw_duration(&self, rng: &mut impl Rng) -> Duration {
        let mut point = rng.random::<f64>() * 100.0;
        let part = self.0.iter().find(|part| {
            point -= part.percent;
            point < 0.0
        });
        // Because of rounding, the percentages may sum to less than 100. The last part then takes the rest.
        let Some(part) = part.or(self.0.last()) else { return Duration::ZERO };
        part.least + (part.most - part.least).mul_f64(rng.random())
    }
}

impl fmt::Display for DurationSpread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, part) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(", ")?;
            }
            if self.0.len() > 1 {
                write!(f, "{}% ", part.percent)?;
            }
            write!(f, "{}", humantime::format_duration(part.least))?;
            if part.most > part.least {
                write!(f, "-{}", humantime::format_duration(part.most))?;
            }
        }
        Ok(())
    }
}

impl FromStr for DurationSpread {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::parse).collect::<Result<Vec<SpreadPart>, _>>()?;
        let total: f64 = parts.iter().map(|part| part.percent).sum();
        if (total - 100.0).abs() > 0.01 {
            return Err(format!("the parts of '{text}' are {total} %, not 100 %"));
        }
        Ok(Self(parts))
    }
}

impl FromStr for SpreadPart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (percent, range) = match text.split_once('%') {
            Some((percent, range)) => (percent.trim().parse().ok(), range),
            None => (Some(100.0), text),
        };
        let percent = percent
            .filter(|percent| (0.0..=100.0).contains(percent))
            .ok_or_else(|| format!("'{}' does not start with a percentage from 0 to 100", text.trim()))?;
        let (least, most) = range.split_once('-').unwrap_or((range, range));
        let (least, most) = (parse_duration(least)?, parse_duration(most)?);
        if least > most {
            return Err(format!("'{}' starts above its end", range.trim()));
        }
        Ok(Self { percent, least, most })
    }
}

impl TryFrom<String> for DurationSpread {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DurationSpread> for String {
    fn from(spread: DurationSpread) -> Self {
        spread.to_string()
    }
}

/// Time window, counted from the start of the simulation: "60s+10m" starts after a minute and lasts ten.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OutageWindow {
    from: Duration,
    lasts: Duration,
}

impl OutageWindow {
    pub(super) fn contains(&self, at: Duration) -> bool {
        (self.from..self.from + self.lasts).contains(&at)
    }

    /// Returns the start and the end.
    pub(super) fn outage_edges(&self) -> [Duration; 2] {
        [self.from, self.from + self.lasts]
    }
}

impl FromStr for OutageWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, lasts) = text
            .split_once('+')
            .ok_or("expected start and length, such as 60s+10m (after a minute, for ten minutes)")?;
        Ok(Self { from: parse_duration(from)?, lasts: parse_duration(lasts)? })
    }
}

impl fmt::Display for OutageWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", humantime::format_duration(self.from), humantime::format_duration(self.lasts))
    }
}

impl TryFrom<String> for OutageWindow {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<OutageWindow> for String {
    fn from(window: OutageWindow) -> Self {
        window.to_string()
    }
}

/// Returns `knobs` with some fields changed by name.
pub fn merge_fields<K: Serialize + DeserializeOwned>(knobs: &K, changes: Map<String, Value>) -> Result<K, String> {
    let mut all = match serde_json::to_value(knobs) {
        Ok(Value::Object(all)) => all,
        other => return Err(format!("the knobs are not an object: {other:?}")),
    };
    all.extend(changes);
    serde_json::from_value(Value::Object(all)).map_err(|e| e.to_string())
}

/// Parses a duration such as "400ms", "15s" or "2m 30s", a week at most.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text.trim())
        .map_err(|e| format!("'{}' is not a duration ({e}); write 400ms, 15s or 2m", text.trim()))?;
    if duration > LONGEST { Err(format!("'{}' is more than a week", text.trim())) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded_rng::ChoiceSeed;

    fn draws(text: &str) -> Vec<Duration> {
        let mut rng = ChoiceSeed::new(1, &["spread"]).into_rng();
        let spread: DurationSpread = text.parse().unwrap();
        (0..2000).map(|_| spread.draw_duration(&mut rng)).collect()
    }

    #[test]
    fn spread_draws_match_ranges_and_weights() {
        let secs = Duration::from_secs;
        assert!(draws("3s").iter().all(|d| *d == secs(3)));
        assert!(draws("500ms - 2s").iter().all(|d| (Duration::from_millis(500)..=secs(2)).contains(d)));
        let mixture = draws("25% 1s-2s, 75% 10m-15m");
        let quick = mixture.iter().filter(|&d| (secs(1)..=secs(2)).contains(d)).count();
        let slow = mixture.iter().filter(|&d| (secs(600)..=secs(900)).contains(d)).count();
        assert_eq!(quick + slow, 2000);
        assert!((400..600).contains(&quick), "{quick}");
    }

    #[test]
    fn values_round_trip_as_text() {
        for text in ["3s", "500ms-2s", "50% 0s-2s, 50% 10m-15m", "99.5% 1m 30s, 0.5% 1h"] {
            assert_eq!(text.parse::<DurationSpread>().unwrap().to_string(), text);
        }
        assert_eq!("60s+10m".parse::<OutageWindow>().unwrap().to_string(), "1m+10m");
    }

    #[test]
    fn invalid_values_are_refused() {
        for bad in ["", "2s-1s", "50% 1s", "50% 1s, 60% 2s", "1s-", "-1s", "fast", "200% 1s", "NaN% 1s", "8d"] {
            assert!(bad.parse::<DurationSpread>().is_err(), "{bad}");
        }
        for bad in ["", "60s", "60s+", "+", "60s-10m"] {
            assert!(bad.parse::<OutageWindow>().is_err(), "{bad}");
        }
        for bad in ["", "-0.1", "1.1", "NaN", "50%"] {
            assert!(bad.parse::<EventRate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn window_excludes_its_end() {
        let window: OutageWindow = "60s+10s".parse().unwrap();
        let at = |secs| window.contains(Duration::from_secs(secs));
        assert_eq!([at(59), at(60), at(69), at(70)], [false, true, true, false]);
    }
}
