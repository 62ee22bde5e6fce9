//! Errors of private servers. Each message names the cure.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Reason why a server did not start, stop or answer.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Programs that are not installed.
    #[error("{} {} missing: {cure}", programs.join(" and "), if programs.len() == 1 { "is" } else { "are" })]
    Missing { programs: Vec<&'static str>, cure: String },

    /// Another process listens on the requested port.
    #[error("port {port} on 127.0.0.1 is taken: stop what listens there, or choose another port for {server}")]
    PortTaken { server: &'static str, port: u16 },

    /// A server already runs on this directory. Two servers on the same data would destroy it.
    #[error("{server} already runs on {}: stop the dispatchq that started it, or choose another directory", dir.display())]
    InUse { server: &'static str, dir: PathBuf },

    /// The server ended before it was ready, or a program that prepares it failed.
    #[error("{program} failed: {reason}\n{log}")]
    Failed { program: &'static str, reason: String, log: String },

    /// The server runs but did not become ready, or did not end, in time.
    #[error("{server} did not {what} within {secs} s\n{log}")]
    Timeout { server: &'static str, what: &'static str, secs: u64, log: String },

    /// A file, directory or process operation failed.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

/// Adds the current operation to an I/O error.
pub(crate) trait IoErrorContext<T> {
    fn while_doing(self, what: impl FnOnce() -> String) -> Result<T, ServerError>;
}

impl<T, E: Into<io::Error>> IoErrorContext<T> for Result<T, E> {
    fn while_doing(self, what: impl FnOnce() -> String) -> Result<T, ServerError> {
        self.map_err(|source| ServerError::Io { what: what(), source: source.into() })
    }
}
