//! What the processes need: memory while they work, processor time in all.

use serde::Serialize;

use crate::{
    bench::machine,
    testbed::{Testbed, processes::ChildProcesses},
};

/// Of the largest worker process, in MiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct WorkerMemory {
    /// Before the first order.
    pub(super) first: f64,
    /// At rest.
    pub(super) last: f64,
    pub(super) max: f64,
}

impl WorkerMemory {
    pub(super) fn sample_largest(&mut self, processes: &ChildProcesses) {
        let largest = processes.worker_pids().filter_map(machine::rss_bytes_of_process).max();
        if let Some(bytes) = largest {
            self.record_bytes(bytes);
        }
    }

    fn record_bytes(&mut self, bytes: u64) {
        #[expect(clippy::cast_precision_loss, reason = "to a tenth of a MiB")]
        let mib = (bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0;
        if self.max == 0.0 {
            self.first = mib;
        }
        self.last = mib;
        self.max = self.max.max(mib);
    }
}

/// Processor time for each order, in milliseconds, of all processes of a kind together. It stays put when others are at
/// work on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct CpuPerOrder {
    pub(super) api: f64,
    pub(super) workers: f64,
    pub(super) postgres: f64,
    pub(super) redis: f64,
    /// This process: the partner, the producer and the desk.
    pub(super) bench: f64,
}

impl CpuPerOrder {
    /// Zero where the system does not tell.
    pub(super) fn read_cpu(orders: u32, testbed: &Testbed) -> Self {
        let each = |ms: Option<u64>| {
            let ms = u32::try_from(ms.unwrap_or_default()).unwrap_or(u32::MAX);
            (f64::from(ms) / f64::from(orders.max(1)) * 100.0).round() / 100.0
        };
        let (postgres, redis) = testbed.server_pids();
        Self {
            api: each(machine::cpu_ms_of_family(testbed.processes.serve_pid())),
            workers: each(Some(testbed.processes.worker_pids().filter_map(machine::cpu_ms_of_family).sum())),
            postgres: each(machine::cpu_ms_of_family(postgres)),
            redis: each(machine::cpu_ms_of_family(redis)),
            bench: each(machine::cpu_ms()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_look_stays_and_the_largest_counts() {
        let mut memory = WorkerMemory::default();
        for mib in [3, 9, 5] {
            memory.record_bytes(mib << 20);
        }
        assert_eq!(memory, WorkerMemory { first: 3.0, last: 5.0, max: 9.0 });
    }
}
