//! Imports of JSON lines.

use std::path::Path;

use reqwest::Method;
use serde_json::Value;

use super::{ApiClient, CallError, source::ImportSource};
use crate::cli::output::ErrorList;

/// Imports a file of JSON lines. If a line is invalid, nothing is imported and the error lists every invalid line.
pub(in crate::cli) async fn import_lines(
    api: &ApiClient,
    path: &[&str],
    file: &Path,
    reason: Option<String>,
) -> anyhow::Result<Value> {
    let source = ImportSource::open(file)?;
    let query: Vec<_> = reason.map(|reason| ("reason", reason)).into_iter().collect();
    let name = source.name.clone();
    let imported = api.import((Method::POST, path), &query, source, "application/jsonl").await;
    imported.map(|(answer, _)| answer).map_err(|error| match error {
        CallError::Refused { code, body, .. } if code == "INVALID" && body["errors"].is_array() => {
            let errors = body["errors"].as_array().into_iter().flatten();
            let problems = errors.filter_map(|error| error["detail"].as_str()).map(str::to_owned).collect();
            ErrorList::new(
                format!("{name}: nothing was imported; correct these problems and import the file again:"),
                problems,
            )
            .into()
        }
        other => anyhow::Error::new(other).context(format!("{name} cannot be imported")),
    })
}
