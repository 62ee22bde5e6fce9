//! Durations and plans of statements, as Postgres logs them. Statements are known by their names: `-- timeline`.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    path::Path,
};

use anyhow::Context;
use serde::Serialize;

use crate::bench::spread::{SamplePercentiles, us_to_ms};

/// For connections made afterwards: each statement, with its plan by auto_explain.
pub(super) const SETTINGS: [&str; 4] = [
    "ALTER DATABASE dispatchq SET log_min_duration_statement = 0",
    "ALTER DATABASE dispatchq SET session_preload_libraries = 'auto_explain'",
    "ALTER DATABASE dispatchq SET auto_explain.log_min_duration = 0",
    "ALTER DATABASE dispatchq SET auto_explain.log_nested_statements = off",
];
/// Lines of a plan that are shown.
const PLAN_LINES: usize = 12;

/// One statement of the product, over all times it was issued. Planning counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LoggedStatement {
    pub(super) name: String,
    pub(super) times: usize,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
    /// Of the slowest.
    pub(super) plan: String,
}

#[derive(Debug, Default)]
struct StatementSamples {
    /// Binding is planning; it comes before each execution.
    planned_us: i64,
    samples: Vec<i64>,
    slowest_plan: (i64, Vec<String>),
}

/// Where the log ends now.
pub(super) fn log_length(dir: &Path) -> anyhow::Result<u64> {
    Ok(std::fs::metadata(dir.join("server.log")).context("Postgres has no log")?.len())
}

/// Reads what was logged since, slowest first.
pub(super) fn read_statements(dir: &Path, from: u64) -> anyhow::Result<Vec<LoggedStatement>> {
    let mut file = File::open(dir.join("server.log"))?;
    file.seek(SeekFrom::Start(from))?;
    let mut seen: BTreeMap<String, StatementSamples> = BTreeMap::new();
    let mut plan_of: Option<(i64, Option<String>)> = None;
    for line in BufReader::new(file).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        if let Some((_, rest)) = line.split_once("duration: ") {
            let Some((duration, what)) = rest.split_once(" ms  ") else { continue };
            let us = parse_millis_as_micros(duration);
            plan_of = what.starts_with("plan:").then_some((us, None));
            let Some((how, name)) = what.split_once(": -- ") else { continue };
            let statement = seen.entry(name.trim().to_owned()).or_default();
            match how.split(' ').next() {
                Some("bind") => statement.planned_us = us,
                Some("execute" | "statement") => statement.samples.push(us + std::mem::take(&mut statement.planned_us)),
                _ => {}
            }
            continue;
        }
        let Some((us, name)) = &mut plan_of else { continue };
        match name {
            None => *name = line.split_once("Query Text: -- ").map(|(_, name)| name.trim().to_owned()),
            Some(name) => {
                let statement = seen.entry(name.clone()).or_default();
                let is_node = line.contains("(cost=");
                let (slowest, lines) = &mut statement.slowest_plan;
                if *us > *slowest {
                    *slowest = *us;
                    lines.clear();
                }
                if *us == *slowest && is_node && lines.len() < PLAN_LINES {
                    lines.push(line.split("  (cost=").next().unwrap_or_default().trim_start_matches('\t').to_owned());
                }
            }
        }
    }
    let mut statements: Vec<LoggedStatement> = seen
        .into_iter()
        .filter(|(_, seen)| !seen.samples.is_empty())
        .map(|(name, seen)| {
            let times = seen.samples.len();
            let of = SamplePercentiles::from_samples(seen.samples);
            let plan = seen.slowest_plan.1.join("\n");
            LoggedStatement {
                name,
                times,
                p50_ms: us_to_ms(of.p50),
                p99_ms: us_to_ms(of.p99),
                max_ms: us_to_ms(of.max),
                plan,
            }
        })
        .collect();
    statements.sort_by(|a, b| b.p99_ms.total_cmp(&a.p99_ms));
    Ok(statements)
}

#[expect(clippy::cast_possible_truncation, reason = "durations of statements")]
fn parse_millis_as_micros(text: &str) -> i64 {
    (text.parse::<f64>().unwrap_or_default() * 1000.0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "LOG:  duration: 1.000 ms  parse sqlx_s_1: -- timeline
\t SELECT 1
LOG:  duration: 0.500 ms  bind sqlx_s_1: -- timeline
\t SELECT 1
LOG:  duration: 2.000 ms  plan:
\tQuery Text: -- timeline
\t SELECT 1
\tAppend  (cost=0.0..1.0 rows=1 width=1)
\t  ->  Index Scan using a on b  (cost=0.0..1.0 rows=1 width=1)
LOG:  duration: 2.100 ms  execute sqlx_s_1: -- timeline
\t SELECT 1
LOG:  duration: 9.000 ms  execute <unnamed>: SELECT 1
";

    #[test]
    fn durations_and_plans_are_those_of_the_named_statement() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("server.log"), LOG).unwrap();
        let [timeline] = &read_statements(dir.path(), 0).unwrap()[..] else { panic!("one statement has a name") };
        assert_eq!((timeline.name.as_str(), timeline.times, timeline.p99_ms), ("timeline", 1, 2.6));
        assert_eq!(timeline.plan, "Append\n  ->  Index Scan using a on b");
    }
}
