//! What `dispatchq bench accept` is told.

use std::num::NonZeroU32;

use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench accept --json > accept.json")]
pub struct AcceptOptions {
    /// Orders
    #[arg(long, value_name = "N", default_value = "1000")]
    pub orders: NonZeroU32,

    /// Drivers who press accept for each order
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(2..=500))]
    pub drivers: u16,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

impl AcceptOptions {
    /// Orders of each fault.
    pub(super) fn orders_of_faults(&self) -> u32 {
        (self.orders.get() / 10).max(1)
    }
}
