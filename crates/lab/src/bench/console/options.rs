//! What `dispatchq bench console` is told.

use std::num::NonZeroU32;

use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example, to see that it works:\n  \
    dispatchq bench console --open 2000 --closed 50000 --dead 200 --viewers 5 --seconds 5 --visits 20")]
pub struct ConsoleOptions {
    /// Open orders
    #[arg(long, value_name = "N", default_value = "200000")]
    pub open: NonZeroU32,

    /// Closed orders, of 90 days; 10 million take some 8 GB of disk
    #[arg(long, value_name = "N", default_value = "10000000")]
    pub closed: NonZeroU32,

    /// Dead jobs
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub dead: u32,

    /// People who look at pages, each with a session and a stream of changes
    #[arg(long, value_name = "N", default_value = "50")]
    pub viewers: NonZeroU32,

    /// How long lateness is measured each time: twice without viewers, twice with them
    #[arg(long, value_name = "N", default_value = "30")]
    pub seconds: NonZeroU32,

    /// Orders created per second while lateness is measured and pages are visited
    #[arg(long, value_name = "N", default_value = "10")]
    pub rate: NonZeroU32,

    /// How often each page is visited
    #[arg(long, value_name = "N", default_value = "200")]
    pub visits: NonZeroU32,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}
