//! Machine and versions that produced the figures.

use std::{collections::BTreeMap, fs, thread};

use anyhow::Context;
use serde::Serialize;
use servers::RedisServer;

use super::{redis_info, spread::round_to_digits};

/// Whether this is a release build. Figures of a debug build are not meaningful.
pub(super) const IS_OPTIMIZED: bool = !cfg!(debug_assertions);

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MachineInfo {
    pub(super) cores: usize,
    pub(super) memory_gib: Option<u64>,
    pub(super) kernel: Option<String>,
    /// Load average of the minute before the benchmark. Above 0.5, other programs were running and made the figures
    /// worse.
    pub(super) load: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SoftwareVersions {
    pub(super) dispatchq: &'static str,
    pub(super) redis: String,
    /// Version of the compiler that built this program.
    pub(super) rustc: &'static str,
    /// Whether this is a release build; otherwise the figures are not meaningful.
    pub(super) optimized: bool,
}

impl MachineInfo {
    pub(super) fn read_system() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        Self {
            cores: thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_gib: read("/proc/meminfo").and_then(|text| memory_gib(&text)),
            kernel: read("/proc/sys/kernel/osrelease").map(|release| format!("Linux {}", release.trim())),
            load: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }
}

impl SoftwareVersions {
    pub(super) async fn read_versions() -> anyhow::Result<Self> {
        let redis = RedisServer::start().await.context("benchmarks need a private Redis")?;
        let server = redis_info::read_info(redis.port(), "server").await?;
        Ok(Self {
            dispatchq: env!("CARGO_PKG_VERSION"),
            redis: server.get("redis_version").cloned().unwrap_or_default(),
            rustc: env!("RUSTC_VERSION"),
            optimized: IS_OPTIMIZED,
        })
    }
}

/// Returns the CPU time that this process has used.
pub(super) fn cpu_ms() -> Option<u64> {
    fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_ms_of(&stat))
}

/// CPU time of a process and its children, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FamilyTimes {
    /// CPU time of the process and of each living child, by pid.
    pub(super) living: BTreeMap<u32, u64>,
    /// CPU time of its children that have ended.
    pub(super) ended: u64,
}

impl FamilyTimes {
    pub(super) fn total_ms(&self) -> u64 {
        self.living.values().sum::<u64>() + self.ended
    }
}

/// Reads the CPU time of another process and of its children. `None` if the process has ended.
pub(super) fn read_family_times(pid: u32) -> Option<FamilyTimes> {
    let read_stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let of_parent = read_stat(&pid.to_string())?;
    let mut times = FamilyTimes {
        living: BTreeMap::from([(pid, cpu_ms_of(&of_parent)?)]),
        ended: ended_children_ms_of(&of_parent)?,
    };
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(child) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Some(stat) = read_stat(&child.to_string()) else { continue };
        if parent_of(&stat) == Some(pid)
            && let Some(ms) = cpu_ms_of(&stat)
        {
            times.living.insert(child, ms);
        }
    }
    Some(times)
}

/// CPU time of all processors so far, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessorTicks {
    busy: u64,
    all: u64,
}

impl ProcessorTicks {
    /// Reads the current ticks. `None` if the system does not report them.
    pub(super) fn read_now() -> Option<Self> {
        fs::read_to_string("/proc/stat").ok().and_then(|stat| Self::parse_stat(&stat))
    }

    /// Parses the first line: user, nice, system, idle, waiting, interrupts, soft interrupts, stolen. Guest time is
    /// already included in user and nice.
    fn parse_stat(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|ticks| ticks.parse().ok()).collect();
        let [_, _, _, idle, waiting, ..] = &ticks[..] else { return None };
        let all: u64 = ticks.iter().sum();
        Some(Self { busy: all - idle - waiting, all })
    }

    /// Returns the share of CPU time since `before` in which the processors were not idle.
    pub(super) fn busy_share_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(self.busy.saturating_sub(before.busy) as f64 / all as f64)
    }
}

/// Returns the resident memory of another process.
pub(super) fn rss_bytes_of_process(pid: u32) -> Option<u64> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok().and_then(|status| rss_bytes_of(&status))
}

/// Converts bytes to MiB, rounded to a tenth.
pub(super) fn bytes_as_mib(bytes: u64) -> f64 {
    round_to_digits(bytes as f64 / f64::from(1 << 20), 1)
}

fn rss_bytes_of(status: &str) -> Option<u64> {
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(kib.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// Returns user and system time, the 12th and 13th words after the name.
fn cpu_ms_of(stat: &str) -> Option<u64> {
    two_times_ms(stat, 11)
}

/// Returns the user and system time of reaped children, the 14th and 15th words after the name.
fn ended_children_ms_of(stat: &str) -> Option<u64> {
    two_times_ms(stat, 13)
}

/// Returns the sum of two times in milliseconds. Linux reports them in hundredths of a second, whatever the kernel's
/// own clock.
fn two_times_ms(stat: &str, from: usize) -> Option<u64> {
    const MS_PER_TICK: u64 = 10;
    let mut times = words_of(stat)?.skip(from).map(str::parse::<u64>);
    Some((times.next()?.ok()? + times.next()?.ok()?) * MS_PER_TICK)
}

fn parent_of(stat: &str) -> Option<u32> {
    words_of(stat)?.nth(1)?.parse().ok()
}

/// Returns the words after the program's name. The name is in parentheses and may contain any characters.
fn words_of(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

/// Returns the memory in GiB, rounded because the kernel reserves some of it.
fn memory_gib(meminfo: &str) -> Option<u64> {
    const KIB_PER_GIB: u64 = 1024 * 1024;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().trim_end_matches(" kB").parse().ok()?;
    Some((kib + KIB_PER_GIB / 2) / KIB_PER_GIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_user_and_system() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 30 0 0 20 0 3 0 100";
        assert_eq!(cpu_ms_of(stat), Some(2800));
        assert_eq!((parent_of(stat), ended_children_ms_of(stat)), (Some(1), Some(0)));
        assert_eq!(cpu_ms_of("7"), None);
    }
}
