//! What `dispatchq bench admission` is told.

use std::num::NonZeroU32;

use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench admission --json > admission.json")]
pub struct AdmissionOptions {
    /// Seconds that advice is asked for
    #[arg(long, value_name = "N", default_value = "10")]
    pub seconds: NonZeroU32,

    /// Orders that are tried to create
    #[arg(long, value_name = "N", default_value = "20000")]
    pub creations: NonZeroU32,

    /// Requests of the burst, which arrive within ten seconds
    #[arg(long, value_name = "N", default_value = "77000")]
    pub burst: NonZeroU32,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}
