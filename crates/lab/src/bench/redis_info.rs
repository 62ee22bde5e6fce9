//! Statistics of a private Redis. Each read uses its own connection, which is closed afterwards and costs no memory.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

/// Intervals between checks of the append-only file, and of the memory.
const REWRITE_LOOK: Duration = Duration::from_millis(100);
const MEMORY_LOOK: Duration = Duration::from_millis(200);
const REWRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum difference between two reads that count as stable memory.
const STILL_BYTES: u64 = 4096;
const MEMORY_LOOKS: usize = 25;

/// Reads one section of INFO.
pub(super) async fn read_info(port: u16, section: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(format!("INFO {section}\r\nQUIT\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(parse_info(&answer))
}

/// Waits until the append-only file is not being rewritten. Filling a queue triggers a rewrite; using it does not.
pub(super) async fn wait_for_aof_rewrite(port: u16) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let info = read_info(port, "persistence").await?;
        let busy = |name: &str| info.get(name).is_some_and(|value| value != "0");
        if !busy("aof_rewrite_in_progress") && !busy("aof_rewrite_scheduled") || begun.elapsed() > REWRITE_TIMEOUT {
            return Ok(());
        }
        sleep(REWRITE_LOOK).await;
    }
}

/// Reads the used memory when it is stable. Buffers of clients and of the append-only file change it temporarily.
pub(super) async fn read_used_memory(port: u16) -> anyhow::Result<u64> {
    wait_for_aof_rewrite(port).await?;
    let mut last = u64::MAX;
    for _ in 0..MEMORY_LOOKS {
        sleep(MEMORY_LOOK).await;
        let info = read_info(port, "memory").await?;
        let used: u64 = info.get("used_memory").context("INFO has no used_memory")?.parse()?;
        if used.abs_diff(last) < STILL_BYTES {
            return Ok(used);
        }
        last = used;
    }
    Ok(last)
}

/// Returns the CPU time of the server in seconds, from its section `cpu`.
pub(super) fn cpu_seconds_in(info: &BTreeMap<String, String>) -> f64 {
    let seconds = |name: &str| info.get(name).and_then(|seconds| seconds.parse::<f64>().ok());
    seconds("used_cpu_user").unwrap_or_default() + seconds("used_cpu_sys").unwrap_or_default()
}

/// Returns the number of calls of a command, from its line in the section `commandstats`.
pub(super) fn calls_in(stats: &str) -> Option<u64> {
    stats.split(',').find_map(|stat| stat.strip_prefix("calls="))?.parse().ok()
}

fn parse_info(answer: &str) -> BTreeMap<String, String> {
    let pairs = answer.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}
