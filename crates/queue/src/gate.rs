//! A switch that stops a process from taking jobs, for example while its database is not ready.

use tokio::sync::watch;

/// Open or closed state of the switch. Clones share the state.
///
/// While the gate is closed, workers take no jobs. They still run, renew and settle the jobs that they have.
#[derive(Debug, Clone)]
pub struct Gate {
    open: watch::Sender<bool>,
}

impl Gate {
    pub fn new_open() -> Self {
        Self { open: watch::Sender::new(true) }
    }

    pub fn new_closed() -> Self {
        Self { open: watch::Sender::new(false) }
    }

    /// Opens or closes the gate. Returns whether its state changed.
    pub fn set_open(&self, open: bool) -> bool {
        self.open.send_if_modified(|is_open| std::mem::replace(is_open, open) != open)
    }

    pub fn is_open(&self) -> bool {
        *self.open.borrow()
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
