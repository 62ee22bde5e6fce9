//! Files to import: they are streamed to the API in this process.

use std::{
    fs::File,
    io::{Read, stdin},
    path::Path,
};

use anyhow::Context;
use reqwest::Method;
use serde_json::Value;

use super::{ApiClient, CallError};
use crate::cli::output::ErrorList;

/// A file to import.
pub(in crate::cli) struct ImportSource {
    pub(super) name: String,
    pub(super) reader: Box<dyn Read + Send>,
}

impl ImportSource {
    /// Opens a file; "-" is standard input.
    pub(in crate::cli) fn open(file: &Path) -> anyhow::Result<Self> {
        let name = file.display().to_string();
        if file == Path::new("-") {
            return Ok(Self { name, reader: Box::new(stdin()) });
        }
        let opened = File::open(file).with_context(|| format!("cannot read {name}"))?;
        Ok(Self { name, reader: Box::new(opened) })
    }
}

/// Imports a file of JSON lines. Prints every line that is wrong; then nothing is imported.
pub(in crate::cli) async fn import_lines(
    api: &ApiClient,
    path: &[&str],
    file: &Path,
    reason: Option<String>,
) -> anyhow::Result<Value> {
    let source = ImportSource::open(file)?;
    let query: Vec<_> = reason.map(|reason| ("reason", reason)).into_iter().collect();
    let imported = api.import((Method::POST, path), &query, source, "application/jsonl").await;
    imported.map(|(answer, _)| answer).map_err(|error| match error {
        CallError::Refused { code, body, .. } if code == "INVALID" => {
            let errors = body["errors"].as_array().into_iter().flatten();
            let problems = errors.filter_map(|error| error["detail"].as_str()).map(str::to_owned).collect();
            ErrorList::new("nothing was imported; correct these and run it again:", problems).into()
        }
        other => other.into(),
    })
}
