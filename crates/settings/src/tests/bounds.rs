//! Every number and duration has bounds, wherever it is declared.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{Config, DEFAULTS, PartnerConfig};

/// Returns the defaults, with a partner and a channel that have numbers.
fn complete() -> Value {
    let mut tree = serde_json::to_value(Config::defaults()).unwrap();
    let partner = PartnerConfig::with_url("https://partner.example.com");
    tree["partners"]["bbd"] = serde_json::to_value(partner).unwrap();
    tree["channels"]["mail"] = serde_json::json!({ "type": "email", "from": "a@b.c", "to": ["a@b.c"], "host": "h",
                                                  "tls": "starttls", "port": 587 });
    tree["service_types"]["RIDE"] = tree["dispatch"].clone();
    // Service types do not override these.
    let own = tree["service_types"]["RIDE"].as_object_mut().unwrap();
    own.retain(|name, _| !["warn_before", "max_days_ahead"].contains(&name.as_str()));
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

/// Checks this value. Returns the error text if it is refused.
fn check_value(complete: &Value, path: &str, value: &Value) -> Result<(), String> {
    let mut tree = complete.clone();
    let leaf = tree.pointer_mut(path).unwrap();
    *leaf = if leaf.is_array() { json!([value]) } else { value.clone() };
    let config: Config = serde_json::from_value(tree).map_err(|error| error.to_string())?;
    config.check_settings().map_err(|error| error.to_string())
}

fn setting_name(path: &str) -> String {
    path.trim_start_matches('/').replace('/', ".")
}

/// Returns the minimum and maximum from an error text.
fn read_bounds(complete: &Value, path: &str) -> (String, String) {
    let name = setting_name(path);
    let absurd = [json!(i64::MAX), json!(u32::MAX), json!(u16::MAX), json!(u8::MAX), json!(0), json!("1000years")];
    let place = format!("{name} must be ");
    let said = absurd.iter().find_map(|value| {
        let refusal = check_value(complete, path, value).err()?;
        refusal.lines().find_map(|line| line.trim_start().strip_prefix(&place).map(str::to_owned))
    });
    let said = said.unwrap_or_else(|| panic!("{path} has no bounds; declare them where the setting is"));
    let bounds = said.split_once(", not ");
    let (least, most) = bounds.and_then(|(bounds, _)| bounds.split_once(" to ")).unwrap_or_else(|| panic!("{said}"));
    (least.to_owned(), most.to_owned())
}

// Fault S20i
#[test]
fn every_number_and_duration_has_bounds() {
    let complete = complete();
    serde_json::from_value::<Config>(complete.clone()).unwrap().check_settings().unwrap();
    for path in numbers_and_durations() {
        let bounds = read_bounds(&complete, &path);
        if let Some(of_all_types) = path.strip_prefix("/service_types/RIDE") {
            assert_eq!(bounds, read_bounds(&complete, &format!("/dispatch{of_all_types}")), "{path}");
        }
    }
    assert!(DEFAULTS.contains("[retention]"));
}

// Fault S20i
#[test]
fn values_out_of_bounds_are_refused() {
    let complete = complete();
    for path in numbers_and_durations() {
        let (name, (least, most)) = (setting_name(&path), read_bounds(&complete, &path));
        let assert_refused = |value: Value| {
            let refusal = check_value(&complete, &path, &value).expect_err(&format!("{path} = {value} is accepted"));
            // A number outside its type is refused earlier.
            let is_told = refusal.contains(&format!("{name} must be")) || refusal.contains("invalid value");
            assert!(is_told, "{path} = {value}: {refusal}");
        };
        let assert_accepted = |value: Value| {
            let refusal = check_value(&complete, &path, &value).err().unwrap_or_default();
            assert!(!refusal.contains(&format!("{name} must be")), "{path} = {value}: {refusal}");
        };
        match (least.parse::<f64>(), most.parse::<f64>()) {
            (Ok(least), Ok(most)) => {
                let is_whole = !["jitter", "_m", "multiplier"].iter().any(|end| path.ends_with(end));
                #[expect(clippy::cast_possible_truncation, reason = "both are small")]
                let number = |value: f64| if is_whole { json!(value as i64) } else { json!(value) };
                [least, most].into_iter().map(number).for_each(assert_accepted);
                [least - 1.0, most + 1.0, most * 1e6].into_iter().map(number).for_each(assert_refused);
            }
            _ => {
                let [least, most] = [least, most].map(|text| humantime::parse_duration(&text).unwrap());
                let duration = |value: Duration| json!(humantime::format_duration(value).to_string());
                [least, most].into_iter().map(duration).for_each(assert_accepted);
                let beyond = [most + Duration::from_secs(1), most * 100].into_iter();
                beyond.chain(least.checked_sub(Duration::from_nanos(1))).map(duration).for_each(assert_refused);
            }
        }
    }
}

// Fault S20i
#[test]
fn non_finite_radius_is_refused() {
    let mut config = Config::defaults();
    for value in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        config.dispatch.radius_m = value;
        let error = config.check_settings().unwrap_err().to_string();
        assert!(error.contains("dispatch.radius_m must be 1 to 20100000"), "{error}");
    }
}
