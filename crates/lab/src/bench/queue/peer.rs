//! Another queue on the same machine in the same run: a program that runs in every round.
//!
//! `PROGRAM process --jobs N` performs N no-op jobs that are ready, and N that are enqueued at the same time. `PROGRAM
//! lateness --pending N --due-per-s N --seconds N` runs timers on time. Each command starts its own Redis and prints
//! one line of JSON on stdout at the end.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{process::Command, time::timeout};

use super::{RoundSizes, Rounds};

const PEER_TIMEOUT: Duration = Duration::from_secs(180);

/// Output of `PROGRAM process`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct PeerThroughput {
    name: String,
    version: String,
    /// Settings of the queue as text.
    settings: String,
    enqueue_per_s: f64,
    process_per_s: f64,
    /// Throughput of jobs that are enqueued and performed at the same time.
    through_per_s: f64,
    /// Throughput of the same jobs with leases, which dispatchq always uses, if the queue has such a setting.
    #[serde(default)]
    with_leases_per_s: Option<f64>,
    /// CPU time of worker and Redis together.
    cpu_us_per_job: f64,
}

/// Output of `PROGRAM lateness`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PeerLateness {
    pub(super) pending: u32,
    pub(super) due_per_s: u32,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// Measures throughput. Returns the name of the queue, and its version and settings.
pub(super) async fn measure_peer_throughput(
    program: &Path,
    sizes: &RoundSizes,
    rounds: &mut Rounds,
) -> anyhow::Result<(String, Value)> {
    let seen: PeerThroughput = run_peer(program, &["process", "--jobs", &sizes.throughput_jobs.to_string()]).await?;
    let name = seen.name;
    rounds.push(format!("{name} process_per_s"), seen.process_per_s);
    rounds.push(format!("{name} enqueue_per_s"), seen.enqueue_per_s);
    rounds.push(format!("{name} through_per_s"), seen.through_per_s);
    rounds.push(format!("{name} process_cpu_us"), seen.cpu_us_per_job);
    if let Some(with_leases) = seen.with_leases_per_s {
        rounds.push(format!("{name} with_leases_per_s"), with_leases);
    }
    Ok((name, json!({ "version": seen.version, "settings": seen.settings })))
}

pub(super) async fn measure_peer_lateness(program: &Path, sizes: &RoundSizes) -> anyhow::Result<PeerLateness> {
    let pending = sizes.peer_pending.to_string();
    let due_per_s = sizes.peer_due_per_s.to_string();
    let seconds = sizes.lateness_for.as_secs().to_string();
    run_peer(program, &["lateness", "--pending", &pending, "--due-per-s", &due_per_s, "--seconds", &seconds]).await
}

async fn run_peer<T: DeserializeOwned>(program: &Path, args: &[&str]) -> anyhow::Result<T> {
    let shown = program.display();
    let running = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {shown}"))?
        .wait_with_output();
    let output = timeout(PEER_TIMEOUT, running).await.with_context(|| format!("{shown} takes too long"))??;
    ensure!(output.status.success(), "{shown} {} failed: {}", args.join(" "), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("{shown} printed: {line}"))
}
