//! Another system that is given the same lives, by a program of its own.
//!
//! DIR has a `measure.py` that is told the rate by the environment variable `RATES` and whose part `rT` starts that system, plays the lives,
//! ends it, and prints a line of JSON for each run: `{"w": "A", "rate", "late_p50", "late_p99", "rest_s", "cpu_ms_per_life", "ok", ..}`.

use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio::process::Command;

const PART: &str = "rT";

/// Plays lives at `rate` per second on the other system, and returns what its program says of them.
pub(super) async fn measure_peer(dir: &Path, rate: u32) -> anyhow::Result<Value> {
    let program = dir.join("measure.py");
    let output = Command::new("python3")
        .arg(&program)
        .arg(PART)
        .env("RATES", rate.to_string())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot run python3 {}", program.display()))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{} ended with {}: {}", program.display(), output.status, err.trim());
    find_life_run(&out).with_context(|| format!("{} printed no line of a run: {}", program.display(), out.trim()))
}

fn find_life_run(output: &str) -> Option<Value> {
    output.lines().filter_map(|line| serde_json::from_str(line).ok()).rfind(|line: &Value| line["w"] == "A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_counts() {
        let output =
            "starting\n{\"w\":\"idle\"}\n{\"w\":\"A\",\"rate\":1}\n{\"w\":\"A\",\"rate\":2}\n{\"w\":\"after\"}\n";
        assert_eq!(find_life_run(output).map(|run| run["rate"].clone()), Some(2.into()));
        assert_eq!(find_life_run("nothing"), None);
    }
}
