//! Framework of all benchmarks. A benchmark has options, sets up servers, runs, and returns [`Figures`], which are
//! printed in the same way.

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use anyhow::bail;
use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    machine::{MachineInfo, SoftwareVersions},
    spread::round_to_digits,
};
use crate::testbed::{print, run_dir::RunDir, signals::wait_for_interrupt};

/// A benchmark with its options.
pub trait Measure {
    /// Returns whether stdout is for programs and gets one JSON object.
    fn prints_json(&self) -> bool;

    /// Sets up servers and processes, runs, and returns the figures. Dropping the future stops everything.
    fn measure(&self) -> impl Future<Output = anyhow::Result<Figures>>;
}

/// Runs a benchmark and prints its figures. Returns whether there is no violation. Missed speed goals do not count.
pub async fn run(bench: &impl Measure) -> anyhow::Result<bool> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let mut figures = tokio::select! {
        figures = bench.measure() => figures?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    figures.set("machine", machine);
    figures.set("versions", versions);
    print::print_report(&figures.to_text(), &figures.to_json(), bench.prints_json())?;
    Ok(figures.violations.is_empty())
}

/// Bound of a goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Bound {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Below(bound) => value < bound,
        }
    }

    fn to_text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least}"),
            Self::AtMost(most) => format!("<= {most}"),
            Self::Below(bound) => format!("< {bound}"),
        }
    }
}

#[derive(Debug)]
struct Goal {
    name: String,
    value: f64,
    bound: Bound,
}

/// Figures of one run. A name ends with its unit, such as `p99_ms`. A value may be an object of figures, or a list of
/// rows.
#[derive(Debug, Default)]
pub struct Figures {
    values: Map<String, Value>,
    goals: Vec<Goal>,
    pub(super) violations: Vec<String>,
    logs: Option<PathBuf>,
}

impl Figures {
    /// Creates figures from a JSON object.
    pub(super) fn new(values: Value) -> Self {
        let values = if let Value::Object(values) = values { values } else { Map::new() };
        Self { values, ..Self::default() }
    }

    pub(super) fn set(&mut self, name: &str, value: impl Serialize) {
        self.values.insert(name.to_owned(), json!(value));
    }

    /// Adds the members of a JSON object.
    pub(super) fn extend(&mut self, values: Value) {
        self.values.extend(Self::new(values).values);
    }

    /// Compares a figure with its goal. The result is reported and does not change the exit code.
    pub(super) fn goal(&mut self, name: &str, value: f64, bound: Bound) {
        self.goals.push(Goal { name: name.to_owned(), value, bound });
    }

    /// Keeps the logs of a run that has violations.
    pub(super) fn keep_logs(&mut self, dir: &mut RunDir) {
        if !self.violations.is_empty() {
            dir.keep_files();
            self.logs = Some(dir.path().to_owned());
        }
    }

    fn to_json(&self) -> Value {
        let mut json = self.values.clone();
        if !self.goals.is_empty() {
            let goal = |Goal { name, value, bound }: &Goal| {
                (name.clone(), json!({ "goal": bound.to_text(), "value": value, "met": bound.is_met(*value) }))
            };
            json.insert("goals".to_owned(), self.goals.iter().map(goal).collect::<Map<_, _>>().into());
        }
        json.insert("violations".to_owned(), json!(self.violations));
        json.extend(self.logs.as_ref().map(|dir| ("logs".to_owned(), json!(dir))));
        Value::Object(json)
    }

    fn to_text(&self) -> String {
        let mut table = table_with_header(&["figure", "value", "unit", "goal", "verdict"]);
        let mut lists = Vec::new();
        for (name, value) in &self.values {
            add_figures(&mut table, &mut lists, name, value);
        }
        for Goal { name, value, bound } in &self.goals {
            let verdict = if bound.is_met(*value) { "met" } else { "missed" };
            let value = round_to_digits(*value, 3).to_string();
            add_table_row(&mut table, &[name, &value, unit_of(name), &bound.to_text(), verdict]);
        }
        let mut parts = vec![table.to_string()];
        parts.extend(lists);
        parts.push(verdict_text(&self.violations, self.logs.as_deref()));
        parts.join("\n")
    }
}

/// Returns the violations of a run, and the directory of its logs.
pub(crate) fn verdict_text(violations: &[String], logs: Option<&Path>) -> String {
    if violations.is_empty() {
        return "No violation.".to_owned();
    }
    let mut lines = vec![format!("{} violations:", violations.len())];
    lines.extend(violations.iter().map(|violation| format!("  {violation}")));
    lines.extend(logs.map(|dir| format!("logs of the processes: {}", dir.display())));
    lines.join("\n")
}

/// Adds a row for each figure below `name`. Lists of objects become separate tables.
fn add_figures(table: &mut Table, lists: &mut Vec<String>, name: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Object(members) if members.len() > 1 && members.values().all(Value::is_object) => {
            let rows = members.iter().map(|(member, row)| {
                let mut cells = vec![(String::new(), member.clone())];
                cells.extend(flatten("", row));
                cells
            });
            lists.push(list_table(name, &rows.collect::<Vec<_>>()));
        }
        Value::Object(members) => {
            for (member, value) in members {
                add_figures(table, lists, &format!("{name}.{member}"), value);
            }
        }
        Value::Array(rows) if rows.iter().any(Value::is_object) => {
            lists.push(list_table(name, &rows.iter().map(|row| flatten("", row)).collect::<Vec<_>>()));
        }
        value => add_table_row(table, &[name, &shown(value), unit_of(name), "", ""]),
    }
}

/// Returns a table with a column for each member of any row.
fn list_table(name: &str, rows: &[Vec<(String, String)>]) -> String {
    let mut columns: Vec<String> = Vec::new();
    for (column, _) in rows.iter().flatten() {
        if !columns.contains(column) {
            columns.push(column.clone());
        }
    }
    let mut table = table_with_header(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        let cell = |column: &String| row.iter().find(|(of, _)| of == column).map_or("-", |(_, value)| value);
        add_table_row(&mut table, &columns.iter().map(cell).collect::<Vec<_>>());
    }
    format!("{name}:\n{table}")
}

fn flatten(name: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Null => Vec::new(),
        Value::Object(members) => {
            let below = |member: &str| if name.is_empty() { member.to_owned() } else { format!("{name}.{member}") };
            members.iter().flat_map(|(member, value)| flatten(&below(member), value)).collect()
        }
        value => vec![(name.to_owned(), shown(value))],
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

/// Returns the unit of a figure, from the end of its name or of a parent's name.
fn unit_of(name: &str) -> &'static str {
    const UNITS: [(&str, &str); 6] =
        [("_per_s", "1/s"), ("_ms", "ms"), ("_us", "us"), ("_s", "s"), ("_mib", "MiB"), ("_bytes", "B")];
    let unit = |part: &str| UNITS.iter().find(|(end, _)| part.ends_with(end)).map(|(_, unit)| *unit);
    name.rsplit('.').find_map(unit).unwrap_or_default()
}

pub(crate) fn table_with_header(names: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(aligned_cells(names));
    table
}

pub(crate) fn add_table_row(table: &mut Table, values: &[&str]) {
    table.add_row(aligned_cells(values));
}

/// Aligns the first cell to the left, and the others to the right.
fn aligned_cells(values: &[&str]) -> Vec<Cell> {
    let align = |n| if n == 0 { CellAlignment::Left } else { CellAlignment::Right };
    values.iter().enumerate().map(|(n, value)| Cell::new(value).set_alignment(align(n))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let mut figures = Figures::new(json!({ "orders": 3, "lateness_ms": { "p50": 1, "p99": 9.5 }, "none": null,
            "phases": [{ "name": "old", "p99_ms": 4 }, { "name": "new", "seconds": 2 }] }));
        figures.goal("rebuild_s", 9.0, Bound::AtMost(10.0));
        figures.goal("loser_p50_ms", 1.0, Bound::Below(1.0));
        figures
    }

    #[test]
    fn goals_are_judged_and_violations_listed() {
        let mut figures = figures();
        figures.violations.push("lost: ORD-1".to_owned());
        let json = figures.to_json();
        assert_eq!((&json["orders"], &json["violations"]), (&3.into(), &json!(["lost: ORD-1"])));
        assert_eq!(json["goals"]["rebuild_s"], json!({ "goal": "<= 10", "value": 9.0, "met": true }));
        assert_eq!(json["goals"]["loser_p50_ms"]["met"], false);
        assert!(figures.to_text().ends_with("1 violations:\n  lost: ORD-1"), "{}", figures.to_text());
    }

    #[test]
    fn table_shows_nested_figures_units_and_lists() {
        let text = figures().to_text();
        for shown in ["│ lateness_ms.p99", " ms ", "<= 10", "missed", "phases:", "No violation."] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert!(!text.contains("none"), "{text}");
    }
}
