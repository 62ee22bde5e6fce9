//! The API document as comparable lines: one per value, without texts for readers.

use serde_json::Value;

/// Fields with text for readers. A change of them does not affect clients.
const TEXTS: [&str; 3] = ["description", "summary", "title"];

/// Returns the document with sorted keys, as recorded.
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

/// Returns the content of the document as sorted lines of `path = value`.
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
                // Parameters are identified by name. The order of other lists has no meaning.
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

/// Returns the reference or type that identifies an item within its list.
fn place(item: &Value) -> String {
    let name = item["$ref"].as_str().or(item["type"].as_str());
    name.map(|name| name.rsplit('/').next().unwrap_or(name).to_owned()).unwrap_or_default()
}
