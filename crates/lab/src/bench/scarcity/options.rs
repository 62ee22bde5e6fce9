//! What `dispatchq bench scarcity` is told.

use std::num::NonZeroU32;

use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Example:\n  dispatchq bench scarcity --orders 10000 --drivers 200 --seconds 600 --json > scarcity.json"
)]
pub struct ScarcityOptions {
    /// Orders created before the measurement
    #[arg(long, value_name = "N", default_value = "10000")]
    pub orders: NonZeroU32,

    /// Drivers, all of them near every pickup
    #[arg(long, value_name = "N", default_value = "200")]
    pub drivers: NonZeroU32,

    /// How long is measured
    #[arg(long, value_name = "N", default_value = "60")]
    pub seconds: NonZeroU32,

    /// How long a trip takes on average; each takes half of it to half as much again
    #[arg(long, value_name = "SECONDS", default_value = "20")]
    pub trip: NonZeroU32,

    /// Worker processes
    #[arg(long, value_name = "N", default_value = "2")]
    pub workers: NonZeroU32,

    /// Print one JSON object; the text goes to stderr
    #[arg(long)]
    pub json: bool,
}
