//! The least and the greatest value of every number and duration. A test holds that none is missing.

use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;

use super::Config;

#[derive(Debug, Clone, Copy)]
enum ValueBounds {
    Number(f64, f64),
    Time(Duration, Duration),
}

use ValueBounds::{Number, Time};

const NONE: Duration = Duration::ZERO;
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// By path; `*` is any name. What a service type sets for itself has the bounds of `dispatch`.
const ALL: &[(&str, ValueBounds)] = &[
    ("database.max_connections", Number(2.0, 10_000.0)),
    ("database.statement_timeout", Time(MS, HOUR)),
    ("http.keep_alive", Time(MS, HOUR)),
    ("http.first_head", Time(MS, HOUR)),
    ("http.write", Time(MS, HOUR)),
    ("http.max_connections", Number(0.0, 10_000_000.0)),
    ("http.max_connections_per_address", Number(0.0, 10_000_000.0)),
    ("http.requests_per_s_per_key", Number(0.0, 10_000_000.0)),
    ("http.failures_per_min_per_address", Number(0.0, 10_000_000.0)),
    ("worker.drain", Time(NONE, HOUR)),
    ("worker.concurrency.*", Number(1.0, 100_000.0)),
    ("dispatch.attempt", Time(MS, YEAR)),
    ("dispatch.retry", Time(MS, YEAR)),
    ("dispatch.lifetime", Time(MS, YEAR)),
    ("dispatch.radius_m", Number(1.0, 20_100_000.0)),
    ("dispatch.candidates", Number(1.0, 10_000.0)),
    ("dispatch.ask_at_once", Number(1.0, 500.0)),
    ("dispatch.offers_per_driver", Number(1.0, 100.0)),
    ("dispatch.cool_down", Time(NONE, YEAR)),
    ("dispatch.pickup_within", Time(NONE, YEAR)),
    ("dispatch.completion_within", Time(NONE, YEAR)),
    ("dispatch.idle_minute_m", Number(0.0, 20_100_000.0)),
    ("dispatch.live_offer_m", Number(0.0, 20_100_000.0)),
    ("admission.max_waiting_orders", Number(0.0, 1_000_000.0)),
    ("admission.cooldown", Time(NONE, YEAR)),
    ("admission.low_water_percentage", Number(1.0, 100.0)),
    ("admission.busy_retry", Time(MS, YEAR)),
    ("admission.max_bypass_percentage", Number(0.0, 1_000.0)),
    ("notifications.*.after", Time(MS, YEAR)),
    ("notifications.*.every", Time(MS, YEAR)),
    ("notifications.*.times", Number(0.0, 10_000.0)),
    ("channels.*.port", Number(1.0, 65_535.0)),
    // A job must have time left to say how its call went.
    ("partners.*.timeout", Time(MS, Duration::from_secs(15))),
    ("partners.*.rate_per_s", Number(1.0, 1_000_000.0)),
    ("partners.*.max_concurrent", Number(1.0, 1_000_000.0)),
    ("partners.*.max_concurrent_per_process", Number(1.0, 1_000_000.0)),
    ("partners.*.poll.percent", Number(0.0, 100.0)),
    ("partners.*.poll.first", Time(NONE, DAY)),
    ("partners.*.poll.initial", Time(MS, DAY)),
    ("partners.*.poll.multiplier", Number(1.0, 100.0)),
    ("partners.*.poll.max", Time(MS, DAY)),
    ("partners.*.poll.jitter", Number(0.0, 0.99)),
    ("partners.*.poll.budget", Time(NONE, YEAR)),
    ("partners.*.poll.not_found_grace", Time(NONE, DAY)),
    ("partners.*.poll.follow", Time(MS, YEAR)),
    ("partners.*.breaker.failures", Number(1.0, 1_000_000.0)),
    ("partners.*.breaker.open", Time(MS, DAY)),
    ("partners.*.breaker.max_open", Time(MS, DAY)),
    ("partners.*.breaker.ramp_up", Time(NONE, DAY)),
    ("schedules.*.every", Time(SECOND, YEAR)),
    // Anything shorter is a mistake in a unit, and would remove everything at once.
    ("retention.*", Time(DAY, CENTURY)),
];

/// Refuses the first number or duration that is out of its bounds.
pub(super) fn check_bounds(config: &Config) -> anyhow::Result<()> {
    check_tree(&serde_json::to_value(config)?, &mut Vec::new())
}

fn check_tree<'a>(value: &'a Value, path: &mut Vec<&'a str>) -> anyhow::Result<()> {
    match value {
        Value::Object(table) => {
            for (name, value) in table {
                path.push(name);
                check_tree(value, path)?;
                path.pop();
            }
            Ok(())
        }
        Value::Array(values) => values.iter().try_for_each(|value| check_tree(value, path)),
        leaf => bounds_of(path).map_or(Ok(()), |bounds| check_leaf(&path.join("."), leaf, bounds)),
    }
}

fn bounds_of(path: &[&str]) -> Option<ValueBounds> {
    let own: Vec<_> = match path {
        ["service_types", _, rest @ ..] => ["dispatch"].iter().chain(rest).copied().collect(),
        path => path.to_vec(),
    };
    let fits = |pattern: &str| {
        let names: Vec<_> = pattern.split('.').collect();
        names.len() == own.len() && names.iter().zip(&own).all(|(name, own)| *name == "*" || name == own)
    };
    ALL.iter().find(|(pattern, _)| fits(pattern)).map(|(_, bounds)| *bounds)
}

fn check_leaf(path: &str, leaf: &Value, bounds: ValueBounds) -> anyhow::Result<()> {
    match bounds {
        Number(least, most) => {
            // What is no finite number is `null` here.
            let fits = leaf.as_f64().is_some_and(|number| (least..=most).contains(&number));
            ensure!(fits, "{path} must be {least} to {most}, not {leaf}");
        }
        Time(least, most) => {
            let given = leaf.as_str().and_then(|text| humantime::parse_duration(text).ok());
            let shown = humantime::format_duration;
            let fits = given.is_some_and(|given| (least..=most).contains(&given));
            ensure!(fits, "{path} must be {} to {}, not {leaf}", shown(least), shown(most));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEFAULTS;

    /// The defaults, with a partner and a channel that have numbers.
    fn complete() -> Value {
        let mut tree = serde_json::to_value(Config::defaults()).unwrap();
        let partner = crate::config::PartnerConfig::with_url("https://partner.example.com");
        tree["partners"]["bbd"] = serde_json::to_value(partner).unwrap();
        tree["channels"]["mail"] = serde_json::json!({ "type": "email", "from": "a@b.c", "to": ["a@b.c"], "host": "h",
                                                      "tls": "starttls", "port": 587 });
        tree["service_types"]["RIDE"]["attempt"] = "2m".into();
        tree
    }

    fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(table) => {
                table.iter().for_each(|(name, value)| leaves(value, &format!("{path}/{name}"), found));
            }
            Value::Array(values) => values.iter().for_each(|value| leaves(value, path, found)),
            Value::Number(_) => found.push(path.to_owned()),
            Value::String(text) if humantime::parse_duration(text).is_ok() => found.push(path.to_owned()),
            _ => {}
        }
    }

    fn numbers_and_durations() -> Vec<String> {
        let mut found = Vec::new();
        leaves(&complete(), "", &mut found);
        assert!(found.len() > 45, "{found:?}");
        found
    }

    fn refused(complete: &Value, path: &str, value: Value) -> String {
        let mut tree = complete.clone();
        let leaf = tree.pointer_mut(path).unwrap();
        *leaf = if leaf.is_array() { Value::Array(vec![value.clone()]) } else { value.clone() };
        match serde_json::from_value::<Config>(tree) {
            Ok(config) => match check_bounds(&config) {
                Ok(()) => panic!("{path} = {value} is accepted"),
                Err(error) => format!("{error:#}"),
            },
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn s20i_every_number_and_duration_has_bounds_and_the_defaults_keep_them() {
        check_bounds(&serde_json::from_value(complete()).unwrap()).unwrap();
        for path in numbers_and_durations() {
            let names: Vec<_> = path.trim_start_matches('/').split('/').collect();
            assert!(
                bounds_of(&names).is_some(),
                "{path} has no bounds; add them to crates/dispatch/src/config/bounds.rs"
            );
        }
        assert!(DEFAULTS.contains("[retention]"));
    }

    #[test]
    fn s20i_values_out_of_bounds_are_refused_with_their_place() {
        let complete = complete();
        for path in numbers_and_durations() {
            let names: Vec<_> = path.trim_start_matches('/').split('/').collect();
            let name = names.join(".");
            match bounds_of(&names).unwrap() {
                Number(least, most) => {
                    for value in [least - 1.0, most + 1.0, most * 1e6] {
                        #[expect(clippy::cast_possible_truncation, reason = "both are small")]
                        let value = if path.ends_with("jitter") || path.ends_with("_m") || path.ends_with("multiplier")
                        {
                            Value::from(value)
                        } else {
                            Value::from(value as i64)
                        };
                        let error = refused(&complete, &path, value);
                        // A number the type cannot hold is refused earlier.
                        assert!(error.contains(&name) || error.contains("invalid value"), "{path}: {error}");
                    }
                }
                Time(least, most) => {
                    let mut values = vec![most + SECOND, most * 100];
                    values.extend(least.checked_sub(Duration::from_nanos(1)));
                    for value in values {
                        let error = refused(&complete, &path, humantime::format_duration(value).to_string().into());
                        assert!(error.contains(&name) && error.contains("must be"), "{path}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn s20i_no_number_is_no_number_of_metres() {
        let mut config = Config::defaults();
        for value in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            config.dispatch.radius_m = value;
            let error = check_bounds(&config).unwrap_err().to_string();
            assert!(error.contains("dispatch.radius_m must be 1 to 20100000"), "{error}");
        }
    }
}
