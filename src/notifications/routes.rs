//! Which channels reach whom. A channel is `log` or the name of a configured webhook.

use serde::{Deserialize, Serialize};

/// The channel that always exists: a line in the worker's log.
pub const LOG: &str = "log";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routes {
    /// Channels that carry offers to drivers.
    pub driver: Vec<String>,
    /// Channels of the supporting reservation team.
    pub support: Vec<String>,
    /// Channels used for dispatchers when no user with that role exists.
    pub dispatchers: Vec<String>,
}

impl Default for Routes {
    fn default() -> Self {
        let log = || vec![LOG.to_owned()];
        Self { driver: log(), support: log(), dispatchers: log() }
    }
}
