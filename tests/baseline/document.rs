//! The API document as lines that can be compared: one for each value, without the texts for people.

use serde_json::Value;

/// Texts for people. They may change without changing what a client can rely on.
const TEXTS: [&str; 3] = ["description", "summary", "title"];

/// Returns the document with sorted keys, as it is recorded.
pub fn sorted(document: &str) -> String {
    let document: Value = serde_json::from_str(document).expect("the document is JSON");
    serde_json::to_string_pretty(&sort(&document)).expect("JSON can be written")
}

fn sort(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().map(|(name, value)| (name.clone(), sort(value))).collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(sorted.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sort).collect()),
        other => other.clone(),
    }
}

/// Returns what the document means, as sorted lines of `path = value`.
pub fn meaning(document: &str) -> String {
    let document: Value = serde_json::from_str(document).expect("the document is JSON");
    let mut lines = Vec::new();
    flatten(&document, "", &mut lines);
    lines.sort();
    lines.join("\n") + "\n"
}

fn flatten(value: &Value, path: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let has_names = path.ends_with("/properties") || path.ends_with("/headers") || path.ends_with("/schemas");
            for (name, value) in fields {
                if has_names || !(TEXTS.contains(&name.as_str()) && value.is_string()) {
                    flatten(value, &format!("{path}/{name}"), lines);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                // Parameters are known by their names; the order of all other lists means nothing either.
                let name = item["name"].as_str().map_or_else(|| place(item), str::to_owned);
                flatten(item, &format!("{path}[{name}]"), lines);
            }
            if items.is_empty() {
                lines.push(format!("{path} = []"));
            }
        }
        scalar => lines.push(format!("{path} = {scalar}")),
    }
}

/// Returns what tells an item of a list from its neighbours: what it refers to, or its type.
fn place(item: &Value) -> String {
    let name = item["$ref"].as_str().or(item["type"].as_str());
    name.map(|name| name.rsplit('/').next().unwrap_or(name).to_owned()).unwrap_or_default()
}
