//! Benchmark of another system with the same orders, run by its own program.
//!
//! DIR contains a `measure.py`. It gets the rate in the environment variable `RATES`. Its part `rT` starts the other
//! system, runs the orders, and ends the system. It prints a line of JSON for each run: `{"w": "A", "rate", "late_p50",
//! "late_p99", "rest_s", "cpu_ms_per_life", "ok", ..}`.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::{process::Command, time::timeout};

const PART: &str = "rT";
/// Timeout, much longer than a run, which takes half a minute plus the start and end of the other system.
const LIMIT: Duration = Duration::from_secs(240);
/// Timeout for the program to end its processes after SIGTERM.
const END_WAIT: Duration = Duration::from_secs(60);

/// Runs orders at `rate` per second on the other system. Returns the line that its program printed.
pub(super) async fn measure_peer(dir: &Path, rate: u32) -> anyhow::Result<Value> {
    let program = dir.join("measure.py");
    let name = program.display();
    let child = Command::new("python3")
        .arg(&program)
        .arg(PART)
        .env("RATES", rate.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run python3 {name}"))?;
    let pid = child.id();
    let ended = child.wait_with_output();
    tokio::pin!(ended);
    let (output, is_late) = match timeout(LIMIT, &mut ended).await {
        Ok(output) => (output?, false),
        Err(_) => {
            // Only the program knows the processes that it started, so it gets SIGTERM to end them first.
            if let Some(pid) = pid {
                Command::new("kill").arg(pid.to_string()).status().await.context("cannot run kill")?;
            }
            let told = timeout(END_WAIT, &mut ended).await;
            (told.with_context(|| format!("{name} did not end within {END_WAIT:?} of SIGTERM"))??, true)
        }
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if is_late {
        bail!("{name} did not end within {LIMIT:?}. Its output: {} {}", out.trim(), err.trim());
    }
    ensure!(output.status.success(), "{name} ended with {}: {} {}", output.status, out.trim(), err.trim());
    find_life_run(&out).with_context(|| format!("{name} printed no line of a run: {} {}", out.trim(), err.trim()))
}

fn find_life_run(output: &str) -> Option<Value> {
    output.lines().filter_map(|line| serde_json::from_str(line).ok()).rfind(|line: &Value| line["w"] == "A")
}
