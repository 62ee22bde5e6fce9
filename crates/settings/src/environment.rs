//! Settings from the environment: `DISPATCHQ_REDIS__URL`, with two underscores between the levels.
//!
//! Only names with two underscores are settings. Kubernetes sets variables for each Service of a namespace. Those of a
//! Service named `dispatchq` have the same prefix (`DISPATCHQ_PORT`, `DISPATCHQ_SERVICE_HOST`).

use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsString,
    path::Path,
};

use foundation::config::error::ConfigError;

pub(super) const PREFIX: &str = "DISPATCHQ_";

/// Variables that commands read themselves: the address of the API and the key for it.
const OF_COMMANDS: [&str; 2] = ["DISPATCHQ_API", "DISPATCHQ_KEY_FILE"];

const SECTIONS: [&str; 25] = [
    "REDIS",
    "DATABASE",
    "IDS",
    "HTTP",
    "WORKER",
    "DISPATCH",
    "SERVICE_TYPES",
    "ADMISSION",
    "NOTIFICATIONS",
    "PUSH",
    "CHANNELS",
    "PARTNERS",
    "PRODUCERS",
    "PROOF",
    "BINDINGS",
    "PROVIDERS",
    "PLANS",
    "SCHEDULES",
    "RETENTION",
    "LOG",
    "CONSOLE",
    "PAYMENTS",
    "SCALE",
    "TEXTS",
    "TRACES",
];

/// Variables with our prefix.
#[derive(Debug, Default)]
pub(super) struct EnvironmentVariables {
    pub(super) settings: HashMap<String, String>,
    /// Sorted names of the variables that are not settings.
    pub(super) others: Vec<String>,
}

impl EnvironmentVariables {
    pub(super) fn new(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, ConfigError> {
        let mut environment = Self::default();
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
            if name[PREFIX.len()..].contains("__") {
                let value = value.into_string().map_err(|_| ConfigError::NotUtf8 { variable: name.to_owned() })?;
                environment.settings.insert(name.to_owned(), value);
            } else if !OF_COMMANDS.contains(&name) {
                environment.others.push(name.to_owned());
            }
        }
        environment.others.sort();
        Ok(environment)
    }
}

/// Returns the source of a setting: a variable of the environment, or the file.
pub(super) fn find_place(path: &str, variables: &BTreeSet<String>, file: Option<&Path>) -> Option<String> {
    let variable = format!("{PREFIX}{}", path.to_uppercase().replace('.', "__"));
    if variables.contains(&variable) {
        return Some(format!("{variable} in the environment"));
    }
    file.map(|file| format!("in {}", file.display()))
}

/// Returns the setting that a variable without two underscores probably meant.
pub(super) fn suggest_setting(name: &str) -> Option<String> {
    let rest = name.strip_prefix(PREFIX).filter(|_| looks_like_a_setting(name))?;
    let section = SECTIONS.iter().find(|section| rest.starts_with(**section))?;
    let setting = rest.strip_prefix(section)?.strip_prefix('_')?;
    Some(format!("{PREFIX}{section}__{setting}"))
}

/// Returns whether a variable looks like a misspelt setting: it names a section and is not set by Kubernetes.
pub(super) fn looks_like_a_setting(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).unwrap_or(name);
    let section =
        SECTIONS.iter().any(|s| rest.strip_prefix(s).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')));
    let service = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"].iter().any(|part| rest.contains(part));
    section && !service
}
