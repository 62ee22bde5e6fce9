//! The memory of the worker processes, looked at while they work.

use serde::Serialize;

use crate::{bench::machine, testbed::processes::Processes};

/// Of the largest worker process, in MiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Memory {
    /// Before the first order.
    pub(super) first: f64,
    /// At rest.
    pub(super) last: f64,
    pub(super) max: f64,
}

impl Memory {
    pub(super) fn look(&mut self, processes: &Processes) {
        let largest = processes.worker_pids().filter_map(machine::rss_bytes_of_process).max();
        if let Some(bytes) = largest {
            self.note(bytes);
        }
    }

    fn note(&mut self, bytes: u64) {
        #[expect(clippy::cast_precision_loss, reason = "to a tenth of a MiB")]
        let mib = (bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0;
        if self.max == 0.0 {
            self.first = mib;
        }
        self.last = mib;
        self.max = self.max.max(mib);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_look_stays_and_the_largest_counts() {
        let mut memory = Memory::default();
        for mib in [3, 9, 5] {
            memory.note(mib << 20);
        }
        assert_eq!(memory, Memory { first: 3.0, last: 5.0, max: 9.0 });
    }
}
