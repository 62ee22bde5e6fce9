//! `[worker]`: what one worker process runs at the same time.

use std::{collections::BTreeMap, time::Duration};

use model::duration;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerConfig {
    pub name: String,
    #[serde(with = "duration")]
    pub drain: Duration,
    pub admin_bind: String,
    /// Queue -> jobs at the same time.
    pub concurrency: BTreeMap<String, usize>,
}
