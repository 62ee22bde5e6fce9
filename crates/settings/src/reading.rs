//! Deserializes the settings and collects all values of the wrong kind, so that an operator can correct them at once.
//!
//! A wrong value is replaced by its default or removed, and the settings are deserialized again. Errors never show a
//! value, because it may be a secret. The exception is an unknown word for a setting with a fixed list of words.

use std::collections::BTreeSet;

use model::plain_text;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::Config;
use foundation::config::error::ConfigError;

const MOST_PROBLEMS: usize = 100;

/// Valid settings, and the problems of the others.
#[derive(Debug)]
pub struct ReadSettings {
    /// Settings with defaults in the place of wrong values.
    pub config: Config,
    pub(crate) problems: Vec<ConfigError>,
    /// Paths of settings and tables that were removed.
    left_out: BTreeSet<Vec<String>>,
}

impl ReadSettings {
    /// Adds rule violations, except those that only follow from a removed setting: they are about it or name it.
    pub fn add_problems(&mut self, found: impl IntoIterator<Item = ConfigError>) {
        let follows = |error: &ConfigError| {
            let text = error.to_string();
            self.left_out.iter().any(|path| {
                let is_named = path.last().is_some_and(|name| text.contains(&format!("'{name}'")));
                is_named || matches!(error, ConfigError::Setting { path: about, .. } if *about == path.join("."))
            })
        };
        let kept: Vec<_> =
            found.into_iter().flat_map(ConfigError::into_problems).filter(|error| !follows(error)).collect();
        self.problems.extend(kept);
    }

    /// Returns the settings, or all their problems.
    pub fn finish(self) -> Result<Config, ConfigError> {
        ConfigError::refuse_problems(self.problems).map(|()| self.config)
    }
}

/// Deserializes settings. Fails if no default can replace a wrong value.
pub(super) fn read_settings(mut tree: Value, defaults: &Value) -> Result<ReadSettings, ConfigError> {
    let (mut problems, mut left_out, mut converted) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut reported = BTreeSet::new();
    loop {
        let error = match serde_path_to_error::deserialize::<_, Config>(&tree) {
            Ok(config) => return Ok(ReadSettings { config, problems, left_out }),
            Err(error) => error,
        };
        let (mut path, text) = (path_of(error.path()), error.inner().to_string());
        if converted.insert(path.clone()) && convert_scalar(&mut tree, &path) {
            continue;
        }
        if let Some(field) = field_below(&tree, &path, &text) {
            path.push(field);
        }
        if reported.insert(path.clone()) {
            problems.push(describe_problem(&path, &text, find(&tree, &path)));
        } else if path.len() > 1 {
            // The setting has no default there, or an invalid one, so the whole table is removed.
            path.pop();
        }
        if let Some((_, list)) = path.split_last()
            && find(&tree, list).is_some_and(Value::is_array)
        {
            // The list is removed as a whole.
            reported.insert(list.to_vec());
        }
        let is_mended = problems.len() < MOST_PROBLEMS && mend(&mut tree, defaults, &path, &mut left_out);
        if !is_mended {
            return Err(ConfigError::refuse_problems(problems).err().unwrap_or_else(|| ConfigError::new(text)));
        }
    }
}

/// Returns the field that an error is about, if the path ends at its table. The path of an unknown field usually ends
/// at the field.
fn field_below(tree: &Value, path: &[String], text: &str) -> Option<String> {
    if let Some(field) = quoted_after(text, "missing field `") {
        return Some(field.to_owned());
    }
    let field = quoted_after(text, "unknown field `")?;
    let is_table = find(tree, path).is_some_and(|value| value.get(field).is_some());
    is_table.then(|| field.to_owned())
}

/// Replaces the value at this path by its default, or removes the value. Returns whether the settings changed.
fn mend(tree: &mut Value, defaults: &Value, path: &[String], left_out: &mut BTreeSet<Vec<String>>) -> bool {
    let Some((name, table)) = path.split_last() else { return false };
    let default = find(defaults, path).cloned();
    match find_mut(tree, table) {
        Some(Value::Object(members)) => match default {
            Some(default) if members.get(name) != Some(&default) => {
                members.insert(name.clone(), default);
                true
            }
            _ => {
                left_out.insert(path.to_vec());
                members.shift_remove(name).is_some() || (!table.is_empty() && mend(tree, defaults, table, left_out))
            }
        },
        Some(Value::Array(_)) => mend(tree, defaults, table, left_out),
        _ => false,
    }
}

fn path_of(path: &serde_path_to_error::Path) -> Vec<String> {
    let names = path.iter().map_while(|segment| match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Unknown => None,
    });
    names.collect()
}

fn find<'a>(tree: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(tree, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    })
}

fn find_mut<'a>(tree: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(tree, |value, name| match value {
        Value::Array(items) => items.get_mut(name.parse::<usize>().ok()?),
        other => other.get_mut(name),
    })
}

/// Converts a scalar to the kind that its setting expects, if possible. All values from the environment are texts.
fn convert_scalar(tree: &mut Value, path: &[String]) -> bool {
    let Some(value) = find(tree, path).cloned() else { return false };
    let others: Vec<Value> = match &value {
        Value::String(text) => {
            let word = match text.trim().to_ascii_lowercase().as_str() {
                "1" | "true" | "on" | "yes" => Some(true),
                "0" | "false" | "off" | "no" => Some(false),
                _ => None,
            };
            let number = serde_json::from_str::<Value>(text.trim()).ok().filter(Value::is_number);
            number.into_iter().chain(word.map(Value::from)).collect()
        }
        Value::Number(number) => {
            #[expect(clippy::cast_possible_truncation, reason = "whole and far below 2^53")]
            let whole = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 1e15).map(|n| Value::from(n as i64));
            whole.into_iter().chain([Value::from(number.to_string())]).collect()
        }
        Value::Bool(is) => vec![Value::from(is.to_string())],
        _ => Vec::new(),
    };
    for other in others {
        if let Some(place) = find_mut(tree, path) {
            *place = other;
        }
        match serde_path_to_error::deserialize::<_, Config>(&*tree) {
            Err(error) if path_of(error.path()) == path && error.inner().to_string().starts_with("invalid type") => {}
            _ => return true,
        }
    }
    if let Some(place) = find_mut(tree, path) {
        *place = value;
    }
    false
}

fn describe_problem(path: &[String], text: &str, value: Option<&Value>) -> ConfigError {
    let setting = path.join(".");
    let words_after = |start: &str| {
        let list = text.split_once(start).map(|(_, list)| list.replace('`', "").replace(" or ", ", "));
        list.map(|list| list.trim_start_matches("one of ").to_owned())
    };
    let problem = if text.contains("unknown field `") {
        let known = words_after(", expected ").map(|known| format!("; known are {known}")).unwrap_or_default();
        format!("no such setting{known}")
    } else if text.contains("missing field `") {
        "is missing".to_owned()
    } else if let Some(word) = quoted_after(text, "unknown variant `") {
        let known = words_after(", expected ").unwrap_or_default();
        format!("must be one of {known}, not '{}'", plain_text::excerpt(word))
    } else if let Some((found, wanted)) =
        text.strip_prefix("invalid type: ").and_then(|rest| rest.rsplit_once(", expected "))
    {
        let found = if value.is_some_and(Value::is_object) && !found.starts_with("map") {
            "holds a value of another kind".to_owned()
        } else {
            format!("not {}", kind_in_words(found))
        };
        format!("must be {}, {found}", wanted_in_words(wanted))
    } else if let Some((_, wanted)) =
        text.strip_prefix("invalid value: ").and_then(|rest| rest.rsplit_once(", expected "))
    {
        format!("must be {}", wanted_in_words(wanted))
    } else {
        text.to_owned()
    };
    ConfigError::new(problem).within(&setting)
}

fn quoted_after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    rest.split('`').next()
}

/// Returns the kind of a value found by serde, without the value.
fn kind_in_words(found: &str) -> &'static str {
    for (start, words) in [
        ("string", "a text"),
        ("integer", "a whole number"),
        ("floating point", "a fraction"),
        ("boolean", "true or false"),
        ("sequence", "a list"),
        ("map", "a table"),
    ] {
        if found.starts_with(start) {
            return words;
        }
    }
    "a value of another kind"
}

fn wanted_in_words(wanted: &str) -> String {
    let words = match wanted {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" | "string" | "str" | "a borrowed string" | "path string" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        "string or map" | "variant identifier" => "one of its words",
        other if other.starts_with("struct ") => "a table",
        other if other.contains("enum ") => "one of its words",
        other => other,
    };
    words.to_owned()
}
