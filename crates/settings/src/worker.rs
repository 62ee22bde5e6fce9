//! `[worker]`: settings of a `work` process.

use std::{collections::BTreeMap, time::Duration};

use garde::Validate;
use model::{
    bounds::{HOUR, NONE, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

use foundation::config::address::be_bind_or_empty;

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct WorkerConfig {
    pub name: String,
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=HOUR)))]
    pub drain: Duration,
    #[garde(custom(be_bind_or_empty))]
    pub admin_bind: String,
    /// Maximum number of concurrent jobs, by queue.
    pub concurrency: BTreeMap<String, usize>,
}
