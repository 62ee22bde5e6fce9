//! Configured service types in the document.

use serde_json::{Map, Value, json};

use super::operations_of;
use settings::Config;

/// Inserts the configured service types into the bodies, queries and examples of requests.
pub(super) fn name_service_types(document: &mut Value, config: &Config) {
    let known: Vec<Value> = config.service_types.keys().map(|name| json!(name)).collect();
    let mut bodies = Vec::new();
    for operation in operations_of(document) {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten().filter(|parameter| parameter["name"] == "service_type") {
            if let Some(schema) = parameter.get_mut("schema") {
                schema["enum"] = json!(known);
            }
            if let Some(example) = parameter.get_mut("example") {
                replace_unknown(example, &known);
            }
        }
        let contents = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut);
        for content in contents.into_iter().flat_map(Map::values_mut) {
            if let Some(example) = content.get_mut("example") {
                replace_in_example(example, &known);
            }
            bodies.extend(content["schema"]["$ref"].as_str().map(str::to_owned));
        }
    }
    for reference in bodies {
        let properties = document.pointer_mut(&format!("{}/properties", reference.trim_start_matches('#')));
        let Some(properties) = properties.and_then(Value::as_object_mut) else { continue };
        if let Some(one) = properties.get_mut("service_type") {
            one["enum"] = json!(known);
        }
        if let Some(several) = properties.get_mut("service_types") {
            several["items"]["enum"] = json!(known);
        }
    }
}

fn replace_in_example(example: &mut Value, known: &[Value]) {
    let Some(members) = example.as_object_mut() else { return };
    if let Some(one) = members.get_mut("service_type") {
        replace_unknown(one, known);
    }
    if let Some(several) = members.get_mut("service_types") {
        let fits = several.as_array().is_some_and(|names| names.iter().all(|name| known.contains(name)));
        if !fits && let Some(first) = known.first() {
            *several = json!([first]);
        }
    }
}

/// Replaces a service type that is not configured by the first configured one.
fn replace_unknown(example: &mut Value, known: &[Value]) {
    if example.is_string()
        && !known.contains(example)
        && let Some(first) = known.first()
    {
        *example = first.clone();
    }
}
