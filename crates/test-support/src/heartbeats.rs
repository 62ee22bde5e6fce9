//! Heartbeats of workers that do not run.

use std::collections::BTreeMap;

use queue::store::{Heartbeat, LatenessCounts, WorkerInfo};

use crate::{TestApp, secs};

/// Returns the heartbeat of a worker that serves these queues and runs no job.
pub fn worker_info(queues: &[&str]) -> WorkerInfo {
    WorkerInfo {
        host: "host-1".to_owned(),
        pid: 7,
        version: "0".to_owned(),
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
        in_hand: 0,
        drain_ms: None,
        runs: BTreeMap::new(),
        resident_bytes: Some(52 << 20),
        cpu_percent: Some(12),
        life: None,
        started_ms: 0,
    }
}

impl TestApp {
    /// Sends a heartbeat of the process with this id; `None`: its last one.
    pub async fn send_heartbeat(&self, boot: &str, replica: &str, info: Option<&WorkerInfo>) {
        let lateness = LatenessCounts::default();
        let beat = Heartbeat { boot, replica, up: secs(1), info, lateness: &lateness, now_ms: self.now_ms() };
        self.app.core.store.send_heartbeat(&beat).await.unwrap();
    }
}
