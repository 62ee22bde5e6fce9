//! Where the figures come from: machine and versions, without which they mean nothing.

use std::{env, fs, thread};

use serde::Serialize;

use super::stage::QueueStage;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MachineInfo {
    pub(super) cores: usize,
    pub(super) memory_gib: Option<u64>,
    pub(super) kernel: Option<String>,
    /// Load of the last minute before the benchmark began: above 0.5 others were at work, and figures are worse for it.
    pub(super) load: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SoftwareVersions {
    pub(super) dispatchq: &'static str,
    pub(super) redis: String,
    /// Of the compiler that built this program, if it left its name.
    pub(super) rustc: Option<String>,
    /// `false`: figures of a debug build, good for nothing.
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

    pub(super) fn to_text(&self) -> String {
        let mut parts = vec![format!("{} cores", self.cores)];
        parts.extend(self.memory_gib.map(|gib| format!("{gib} GiB")));
        parts.extend(self.kernel.clone());
        parts.extend(self.load.map(|load| format!("load before {load:.1}")));
        parts.join(", ")
    }
}

impl SoftwareVersions {
    pub(super) async fn read_versions() -> anyhow::Result<Self> {
        let server = QueueStage::start().await?.read_info("server").await?;
        Ok(Self {
            dispatchq: env!("CARGO_PKG_VERSION"),
            redis: server.get("redis_version").cloned().unwrap_or_default(),
            rustc: env::current_exe().and_then(fs::read).ok().and_then(|program| compiler_of(&program)),
            optimized: !cfg!(debug_assertions),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let build = if self.optimized { "" } else { " (debug build: these figures mean nothing)" };
        let rustc = self.rustc.as_ref().map(|rustc| format!(", rustc {rustc}")).unwrap_or_default();
        format!("dispatchq {}{build}, Redis {}{rustc}", self.dispatchq, self.redis)
    }
}

/// Processor time of this process so far.
pub(super) fn cpu_ms() -> Option<u64> {
    fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_ms_of(&stat))
}

/// Processor time so far of another process and of its children, those that have ended among them.
pub(super) fn cpu_ms_of_family(pid: u32) -> Option<u64> {
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let of_parent = stat(&pid.to_string())?;
    let (of_itself, of_the_dead) = (cpu_ms_of(&of_parent)?, ended_children_ms_of(&of_parent)?);
    let processes = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| stat(entry.file_name().to_str()?));
    let of_the_living: u64 =
        processes.filter(|stat| parent_of(stat) == Some(pid)).filter_map(|stat| cpu_ms_of(&stat)).sum();
    Some(of_itself + of_the_dead + of_the_living)
}

/// Memory of another process that is in RAM.
pub(super) fn rss_bytes_of_process(pid: u32) -> Option<u64> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok().and_then(|status| rss_bytes_of(&status))
}

/// Memory of this process that is in RAM.
pub(super) fn rss_bytes() -> Option<u64> {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| rss_bytes_of(&status))
}

fn rss_bytes_of(status: &str) -> Option<u64> {
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(kib.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// User and system time are the 12th and 13th word.
fn cpu_ms_of(stat: &str) -> Option<u64> {
    two_times_ms(stat, 11)
}

/// Those of children that were waited for follow.
fn ended_children_ms_of(stat: &str) -> Option<u64> {
    two_times_ms(stat, 13)
}

/// Linux counts them in hundredths of a second, whatever the kernel's own clock.
fn two_times_ms(stat: &str, from: usize) -> Option<u64> {
    const MS_PER_TICK: u64 = 10;
    let mut times = words_of(stat)?.skip(from).map(str::parse::<u64>);
    Some((times.next()?.ok()? + times.next()?.ok()?) * MS_PER_TICK)
}

fn parent_of(stat: &str) -> Option<u32> {
    words_of(stat)?.nth(1)?.parse().ok()
}

/// The program's name stands in parentheses and may hold anything; these are the words behind it.
fn words_of(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

/// To the nearest GiB: the kernel keeps some of it for itself.
fn memory_gib(meminfo: &str) -> Option<u64> {
    const KIB_PER_GIB: u64 = 1024 * 1024;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().trim_end_matches(" kB").parse().ok()?;
    Some((kib + KIB_PER_GIB / 2) / KIB_PER_GIB)
}

/// The compiler writes its version into every program; so no build script is needed.
fn compiler_of(program: &[u8]) -> Option<String> {
    let mark = b"rustc version ";
    let mut places = program.windows(mark.len()).enumerate().filter(|(_, window)| window == mark);
    places.find_map(|(at, _)| {
        let rest = &program[at + mark.len()..];
        let version: String =
            rest.iter().map(|byte| char::from(*byte)).take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        (version.split('.').count() == 3 && !version.ends_with('.')).then_some(version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_people_name_it() {
        assert_eq!(memory_gib("MemTotal:       24689764 kB\nMemFree: 1 kB\n"), Some(24));
        assert_eq!(memory_gib("nothing"), None);
    }

    #[test]
    fn memory_in_ram_is_read_in_bytes() {
        assert_eq!(rss_bytes_of("Name:\tx\nVmRSS:\t    7104 kB\nRssAnon:\t 1 kB\n"), Some(7104 * 1024));
        assert_eq!(rss_bytes_of("Name:\tx\n"), None);
    }

    #[test]
    fn processor_time_is_user_and_system() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 30 0 0 20 0 3 0 100";
        assert_eq!(cpu_ms_of(stat), Some(2800));
        assert_eq!((parent_of(stat), ended_children_ms_of(stat)), (Some(1), Some(0)));
        assert_eq!(cpu_ms_of("7"), None);
    }

    #[test]
    fn the_compiler_is_found_among_other_bytes() {
        let program = b"\0rustc version \0\xffGCC\0rustc version 1.95.0 (59807616e 2026-04-14)\0";
        assert_eq!(compiler_of(program).as_deref(), Some("1.95.0"));
        assert_eq!(compiler_of(b"rustc version "), None);
    }
}
