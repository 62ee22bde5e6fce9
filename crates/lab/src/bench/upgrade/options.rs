//! What `dispatchq bench upgrade` is told.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use clap::Args;

use super::phases::PHASES;

#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
The old binary migrates a database, and two serve and two work of it take orders of a simulated partner and of own drivers. Then, \
while orders go on: this binary migrates; its processes join; the old ones leave one by one (SIGTERM); the old ones join again on the \
new schema, and the new ones leave; the new ones join again, and the old ones leave.\n\n\
At the end the run waits until every order is final or held and every message is delivered. It exits with 1 if a client was told \
what is not in the tables, an answer was a failure (5xx but 503), the history breaks an invariant, or a process ended by itself or not \
in good order.\n\n\
Example:\n  dispatchq bench upgrade --old target/upgrade/old/release/dispatchq --seconds 240 --json > upgrade.json")]
pub struct UpgradeOptions {
    /// The binary of the version before; needs `migrate`, `serve` and `work` alone
    #[arg(long, value_name = "BINARY")]
    pub old: PathBuf,

    /// Orders created per second
    #[arg(long, value_name = "N", default_value = "20")]
    pub rate: NonZeroU32,

    /// Seconds for which orders are created, the same share in each of eight phases; longer where processes take longer to start
    #[arg(long, value_name = "N", default_value = "240")]
    pub seconds: NonZeroU32,

    /// Print one JSON object; the tables go to stderr
    #[arg(long)]
    pub json: bool,
}

impl UpgradeOptions {
    /// Returns the shortest time of a phase.
    pub(super) fn phase_length(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds.get())).div_f64(PHASES.len() as f64)
    }
}
