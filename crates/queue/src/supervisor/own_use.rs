//! Memory and processor time of this process, for its heartbeats. A system without these values reports none.

use std::time::{Duration, Instant};

/// Measures the share of a processor core that this process uses between two calls.
#[derive(Debug, Default)]
pub(crate) struct ProcessorShare {
    /// Time of the last call, and the processor time until then.
    last: Option<(Instant, Duration)>,
}

impl ProcessorShare {
    /// Returns the share since the last call, in percent of one core. Returns `None` at the first call.
    pub(crate) fn measure(&mut self, now: Instant) -> Option<u32> {
        let used = processor_time()?;
        let (since, before) = self.last.replace((now, used))?;
        percent_of(used.checked_sub(before)?, now.checked_duration_since(since)?)
    }
}

fn percent_of(used: Duration, elapsed: Duration) -> Option<u32> {
    (used.as_micros() * 100).checked_div(elapsed.as_micros())?.try_into().ok()
}

/// Returns the processor time of all threads of this process.
fn processor_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).ok().map(Duration::from);
    #[cfg(not(target_os = "linux"))]
    None
}

/// Returns the resident memory of this process in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    #[cfg(target_os = "linux")]
    return read_resident(&std::fs::read_to_string("/proc/self/status").ok()?);
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
fn read_resident(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(read_resident("VmPeak:\t 90 kB\nVmRSS:\t    2048 kB\nThreads:\t3\n"), Some(2_097_152));
        assert_eq!(read_resident("VmPeak:\t 90 kB\n"), None);
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000));
    }

    #[test]
    fn processor_share_needs_two_measurements() {
        let (mut share, start) = (ProcessorShare::default(), Instant::now());
        assert_eq!(share.measure(start), None);
        assert!(share.measure(start + Duration::from_secs(2)).is_some());
        assert_eq!(share.measure(start + Duration::from_secs(2)), None, "no time has passed");
        assert_eq!(percent_of(Duration::from_millis(3_000), Duration::from_secs(2)), Some(150));
    }
}
