//! Reading things to import: one JSON object per line, all good or none taken.

use std::{io::Read, path::Path};

use anyhow::{Context, bail};
use model::json_words::plain_error;
use serde::de::DeserializeOwned;

/// Problems shown before the rest is only counted.
const MOST_PROBLEMS: usize = 10;

/// Reads a file of JSON lines ("-" is stdin). Every bad line is named; then nothing is imported.
pub(super) fn read_json_lines<T: DeserializeOwned>(
    file: &Path,
    problem: impl Fn(&T) -> Option<String>,
) -> anyhow::Result<Vec<T>> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str::<T>(line) {
            Ok(item) => match problem(&item) {
                None => good.push(item),
                Some(what) => bad.push(format!("line {}: {what}", number + 1)),
            },
            Err(e) => bad.push(format!("line {}: {}", number + 1, plain_error(&e.to_string()))),
        }
    }
    if bad.is_empty() {
        return Ok(good);
    }
    let more = bad.len().saturating_sub(MOST_PROBLEMS);
    bad.truncate(MOST_PROBLEMS);
    if more > 0 {
        bad.push(format!("and {more} more"));
    }
    bail!("nothing was imported; correct these and run it again:\n  {}", bad.join("\n  "))
}
