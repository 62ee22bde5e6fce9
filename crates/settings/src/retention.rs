//! `[retention]`: how long rows are kept.

use std::time::Duration;

use garde::Validate;
use model::{
    bounds::{CENTURY, DAY, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct RetentionConfig {
    // A shorter time is probably a wrong unit, and would remove everything at once.
    #[serde(with = "duration")]
    #[garde(custom(time_within(DAY..=CENTURY)))]
    pub orders: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(DAY..=CENTURY)), custom(outlive_orders(self.orders)))]
    pub events: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(DAY..=CENTURY)))]
    pub messages: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(DAY..=CENTURY)))]
    pub records: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(DAY..=CENTURY)))]
    pub dead_jobs: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(DAY..=CENTURY)))]
    pub erasures: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(DAY..=CENTURY)))]
    pub transactions: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(DAY..=CENTURY)))]
    pub contact: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(DAY..=CENTURY)))]
    pub supply: Duration,
}

impl RetentionConfig {
    /// Producers rely on this time, so it is not a setting.
    pub const IDEMPOTENCY_KEYS: Duration = Duration::from_secs(24 * 3600);
    /// Messages of replays, from their creation. A message is given up after a day, so a dead one stays for two more days.
    pub const REPLAYS: Duration = Duration::from_secs(3 * 24 * 3600);
}

/// Checks that the history is kept at least as long as the orders.
fn outlive_orders(orders: Duration) -> impl Fn(&Duration, &()) -> garde::Result {
    move |events, ()| {
        if *events < orders {
            let problem = "must not be shorter than retention.orders: the history must outlive the orders";
            return Err(garde::Error::new(problem));
        }
        Ok(())
    }
}
