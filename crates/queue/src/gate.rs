//! A switch that stops a process from taking jobs, for example while its database is not ready.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Open or closed state of the switch. Clones share the state.
///
/// While the gate is closed, workers take no jobs. They still run, renew and settle the jobs that they have.
#[derive(Debug, Clone)]
pub struct Gate {
    open: watch::Sender<bool>,
    /// Time in ms of the request to drain that closed the gate.
    drain: Arc<Mutex<Option<u64>>>,
}

impl Gate {
    pub fn new_open() -> Self {
        Self { open: watch::Sender::new(true), drain: Arc::default() }
    }

    pub fn new_closed() -> Self {
        Self { open: watch::Sender::new(false), drain: Arc::default() }
    }

    /// Opens or closes the gate, and ends a drain. Returns whether its state changed.
    pub fn set_open(&self, open: bool) -> bool {
        *self.drain.lock() = None;
        self.replace_state(open)
    }

    /// Closes the gate because of a request to drain the worker. Heartbeats report the time of the request, which
    /// identifies it. Returns whether the gate was open.
    pub fn drain(&self, requested_ms: u64) -> bool {
        let was_open = self.replace_state(false);
        // Set last, so that the gate is closed when a heartbeat reads it.
        *self.drain.lock() = Some(requested_ms);
        was_open
    }

    fn replace_state(&self, open: bool) -> bool {
        self.open.send_if_modified(|is_open| std::mem::replace(is_open, open) != open)
    }

    pub fn is_open(&self) -> bool {
        *self.open.borrow()
    }

    /// Returns the time of the request to drain, if one closed the gate.
    pub(crate) fn drain_ms(&self) -> Option<u64> {
        *self.drain.lock()
    }

    pub(crate) fn watch_state(&self) -> watch::Receiver<bool> {
        self.open.subscribe()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new_open()
    }
}
