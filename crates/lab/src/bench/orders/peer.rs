//! Another system that is given the same lives, by a program of its own.
//!
//! DIR has a `measure.py` that is told the rate by the environment variable `RATES` and whose part `rT` starts that system, plays the lives,
//! ends it, and prints a line of JSON for each run: `{"w": "A", "rate", "late_p50", "late_p99", "rest_s", "cpu_ms_per_life", "ok", ..}`.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::{process::Command, time::timeout};

const PART: &str = "rT";
/// Far longer than it takes to start the other system, play lives for half a minute, and end it.
const LIMIT: Duration = Duration::from_secs(240);
/// What the program may take to end what it started, once it is told to.
const END_WAIT: Duration = Duration::from_secs(60);

/// Plays lives at `rate` per second on the other system, and returns what its program says of them.
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
            // Only the program knows the processes it has started: it is asked to end them, and not killed at once.
            if let Some(pid) = pid {
                Command::new("kill").arg(pid.to_string()).status().await.context("cannot run kill")?;
            }
            let told = timeout(END_WAIT, &mut ended).await;
            (told.with_context(|| format!("{name} did not end within {END_WAIT:?} of SIGTERM"))??, true)
        }
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if is_late {
        bail!("{name} did not end within {LIMIT:?}. It said: {} {}", out.trim(), err.trim());
    }
    ensure!(output.status.success(), "{name} ended with {}: {} {}", output.status, out.trim(), err.trim());
    find_life_run(&out).with_context(|| format!("{name} printed no line of a run: {} {}", out.trim(), err.trim()))
}

fn find_life_run(output: &str) -> Option<Value> {
    output.lines().filter_map(|line| serde_json::from_str(line).ok()).rfind(|line: &Value| line["w"] == "A")
}
