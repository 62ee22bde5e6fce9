//! Values of every wrong kind, and whether a schema allows a value.

use std::collections::BTreeMap;

use chrono::DateTime;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Probe;
use test_support::TestApp;

/// Blanks, zero-width, bidirectional and control characters, and a byte-order mark.
const ODD_TEXTS: [&str; 10] =
    ["", " ", "\u{200b}", "a\u{200b}b", "a\u{202e}b", "a\u{1b}[31mb", "\u{feff}a", "a\nb", "é", "__binding__"];
const ODD_TIMES: [&str; 6] = [
    "-9999-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59Z",
    "+262142-12-31T23:59:59Z",
    "2026-11-27T00:00:00 07:00",
    "soon",
];

fn odd_numbers() -> Vec<Value> {
    vec![
        json!(0),
        json!(-1),
        json!(1.5),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(9_007_199_254_740_992_i64),
        json!(2_147_483_648_i64),
        json!(1e300),
    ]
}

fn long_texts() -> [String; 3] {
    // Too many characters, and few characters with too many bytes.
    ["x".repeat(65), "x".repeat(3_000), "ก".repeat(50)]
}

/// Resolves a reference. For a nullable value, returns the schema of the value.
pub(super) fn resolve<'a>(spec: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(reference) = schema["$ref"].as_str() {
        return resolve(spec, spec.pointer(reference.trim_start_matches('#')).unwrap());
    }
    match schema["oneOf"].as_array() {
        Some(choices) => choices.iter().find(|one| one["type"] != "null").map_or(schema, |one| resolve(spec, one)),
        None => schema,
    }
}

fn types_of(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => Vec::from_iter(one.as_str()),
    }
}

/// Collects the fields of a schema, including nested ones.
pub(super) fn collect_members<'a>(
    spec: &'a Value,
    schema: &'a Value,
    path: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, &'a Value)>,
) {
    for (name, member) in resolve(spec, schema)["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        found.push((path.clone(), member));
        collect_members(spec, member, path, found);
        path.pop();
    }
}

/// Returns invalid values of a body field, and extreme valid ones.
pub(super) fn wrong_values(spec: &Value, schema: &Value) -> Vec<Value> {
    let resolved = resolve(spec, schema);
    let types = types_of(resolved);
    let mut values =
        vec![Value::Null, json!(true), json!(7), json!("text"), json!([]), json!(["x"]), json!({}), json!({ "x": 1 })];
    if types.contains(&"integer") || types.contains(&"number") {
        values.extend(odd_numbers());
    }
    if types.contains(&"string") && !resolved["enum"].is_array() {
        values.extend(ODD_TEXTS.iter().map(|text| json!(text)));
        values.extend(long_texts().iter().map(|text| json!(text)));
    }
    if resolved["format"] == "date-time" {
        values.extend(ODD_TIMES.iter().map(|text| json!(text)));
    }
    if types.contains(&"array") {
        values.extend([json!([null]), json!([5]), json!([""]), json!(["x", "x"]), json!(vec!["x"; 3_000])]);
    }
    values
}

/// Returns invalid texts of a parameter, and extreme valid ones.
pub(super) fn wrong_texts(schema: &Value) -> Vec<String> {
    let types = types_of(schema);
    let mut texts: Vec<String> = ["", "text", "null", "-1"].map(str::to_owned).into();
    if types.contains(&"integer") {
        texts.extend(odd_numbers().iter().map(Value::to_string));
    } else if types.contains(&"string") && !schema["enum"].is_array() {
        texts.extend(ODD_TEXTS.iter().map(|text| (*text).to_owned()));
        texts.extend(long_texts());
        if schema["format"] == "date-time" {
            texts.extend(ODD_TIMES.iter().map(|text| (*text).to_owned()));
        }
    }
    texts
}

/// Converts the text of a parameter to its value.
pub(super) fn read_text(spec: &Value, schema: &Value, text: &str) -> Value {
    let types = types_of(resolve(spec, schema));
    let is_text = types.is_empty() || types.contains(&"string");
    let read = || serde_json::from_str::<Value>(text).ok().filter(|value| value.is_number() || value.is_boolean());
    if is_text { json!(text) } else { read().unwrap_or_else(|| json!(text)) }
}

/// Results of matching texts with patterns, computed by Postgres.
pub(super) struct Patterns(BTreeMap<(String, String), bool>);

impl Patterns {
    pub(super) async fn ask(t: &TestApp, probes: &[Probe<'_>]) -> Self {
        let mut patterns = Vec::new();
        let mut texts = Vec::new();
        let all_texts: Vec<_> = probes.iter().filter_map(|probe| probe.value.as_str()).collect();
        let mut distinct: Vec<&str> = all_texts;
        distinct.sort_unstable();
        distinct.dedup();
        let mut seen: Vec<String> = Vec::new();
        for probe in probes {
            collect_patterns(probe.schema, &mut seen);
        }
        for pattern in &seen {
            for text in &distinct {
                // Postgres limits repetitions to 255. No text of this test has a length between that and a higher
                // limit.
                patterns.push(pattern.replace(",300}", ",255}"));
                texts.push((*text).to_owned());
            }
        }
        let fits: Vec<bool> = sqlx::query_scalar(
            "SELECT t.text ~ t.pattern FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS t (pattern, text, n) ORDER BY n",
        )
        .bind(&patterns)
        .bind(&texts)
        .fetch_all(&t.app.core.db)
        .await
        .unwrap();
        Self(patterns.into_iter().zip(texts).zip(fits).collect())
    }

    fn allow(&self, pattern: &str, text: &str) -> bool {
        self.0.get(&(pattern.replace(",300}", ",255}"), text.to_owned())).copied().unwrap_or(true)
    }
}

/// Collects the patterns of a schema. A pattern with U+0000, which Postgres does not support, accepts all texts of this
/// test.
fn collect_patterns(schema: &Value, found: &mut Vec<String>) {
    if let Some(pattern) = schema["pattern"].as_str().filter(|pattern| !pattern.contains("\\u0000"))
        && !found.iter().any(|known| known == pattern)
    {
        found.push(pattern.to_owned());
    }
}

/// Returns the reason why a schema does not allow a value.
pub(super) fn find_misfit(spec: &Value, schema: &Value, value: &Value, patterns: &Patterns) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return find_misfit(spec, spec.pointer(reference.trim_start_matches('#')).unwrap(), value, patterns);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let misfits: Option<Vec<_>> = choices.iter().map(|choice| find_misfit(spec, choice, value, patterns)).collect();
        return misfits.map(|all| all.join("; "));
    }
    let types = types_of(schema);
    let is_of_type = types.is_empty()
        || types.iter().any(|one| match *one {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            _ => value.is_object(),
        });
    if !is_of_type {
        return Some(format!("it is no {types:?}"));
    }
    if value.is_null() {
        return None;
    }
    if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
        return Some("it is none of the words".to_owned());
    }
    match value {
        Value::String(text) => find_text_misfit(schema, text, patterns),
        Value::Number(_) => find_number_misfit(schema, value),
        Value::Array(items) => {
            let count = items.len() as u64;
            let is_counted = schema["minItems"].as_u64().is_none_or(|least| count >= least)
                && schema["maxItems"].as_u64().is_none_or(|most| count <= most);
            let of_items = || items.iter().find_map(|item| find_misfit(spec, schema.get("items")?, item, patterns));
            if is_counted { of_items() } else { Some("it has too few or too many items".to_owned()) }
        }
        Value::Object(members) => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let missing = required.into_iter().find(|name| !members.contains_key(*name));
            missing.map(|name| format!("it lacks {name}"))
        }
        _ => None,
    }
}

fn find_text_misfit(schema: &Value, text: &str, patterns: &Patterns) -> Option<String> {
    let length = text.chars().count() as u64;
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        return Some("it is too short".to_owned());
    }
    if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
        return Some("it is too long".to_owned());
    }
    let is_formed = match schema["format"].as_str() {
        Some("uuid") => text.parse::<Uuid>().is_ok(),
        Some("date-time") => DateTime::parse_from_rfc3339(text).is_ok(),
        _ => true,
    };
    let fits = schema["pattern"].as_str().is_none_or(|pattern| patterns.allow(pattern, text));
    (!is_formed || !fits).then(|| "it does not fit the pattern".to_owned())
}

fn find_number_misfit(schema: &Value, value: &Value) -> Option<String> {
    let number = value.as_f64().unwrap();
    let (least, most) = match schema["format"].as_str() {
        Some("int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
        _ => (f64::MIN, f64::MAX),
    };
    let least = schema["minimum"].as_f64().unwrap_or(least);
    let most = schema["maximum"].as_f64().unwrap_or(most);
    (!(least..=most).contains(&number)).then(|| format!("it is not {least} to {most}"))
}
