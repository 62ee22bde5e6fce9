//! What `dispatchq bench flood` is told.

use std::num::NonZeroU32;

use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench flood --seconds 30 --json > flood.json")]
pub struct FloodOptions {
    /// How long each of the three phases lasts
    #[arg(long, value_name = "N", default_value = "20")]
    pub seconds: NonZeroU32,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}
