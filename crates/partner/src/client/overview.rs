//! The list of partners for operators.

use model::ids::PartnerName;
use serde::Serialize;

use super::{ConfiguredPartner, settings};
use crate::capability::Partners;
use foundation::{config::address::without_password, core::Core, error::ServiceError};
use queue::store::BreakerState;

#[derive(Debug, Clone, Serialize)]
pub struct PartnerOverview {
    pub partner: PartnerName,
    /// Address without a password.
    pub url: String,
    /// `normal`, `stopped` while the breaker is open, or `trying`.
    pub calls: &'static str,
    /// Milliseconds until the partner is called again.
    pub open_for_ms: u64,
    pub failures_in_a_row: u32,
    pub last_failure: String,
    /// Percentage of orders that are polled for a job id.
    pub polling_percent: u8,
    /// Whether an operator set the percentage. Otherwise it comes from the configuration.
    pub polling_percent_set_at_run_time: bool,
    /// Orders without a driver.
    pub searching: i64,
    /// Bookings that the partner has not yet confirmed as cancelled.
    pub cancels_open: i64,
}

/// Returns the configured partners, ordered by name.
pub async fn list_partners(partners: &Partners) -> Result<Vec<PartnerOverview>, ServiceError> {
    let mut listed = Vec::new();
    for partner in partners.registry.iter() {
        listed.push(describe_partner(&partners.core, partner).await?);
    }
    Ok(listed)
}

pub async fn describe_partner(core: &Core, partner: &ConfiguredPartner) -> Result<PartnerOverview, ServiceError> {
    let breaker = partner.breaker_state(&core.store).await?;
    let set = settings::run_time_percent(&core.db, &partner.name).await?;
    let waiting = settings::count_waiting(&core.db, &partner.name).await?;
    Ok(PartnerOverview {
        partner: partner.name.clone(),
        url: without_password(&partner.config.url),
        calls: call_state(&breaker),
        open_for_ms: u64::try_from(breaker.open_for.as_millis()).unwrap_or(u64::MAX),
        failures_in_a_row: breaker.failures,
        last_failure: breaker.why,
        polling_percent: set.unwrap_or(partner.config.poll.percent),
        polling_percent_set_at_run_time: set.is_some(),
        searching: waiting.searching,
        cancels_open: waiting.cancels,
    })
}

fn call_state(breaker: &BreakerState) -> &'static str {
    if breaker.is_open() {
        "stopped"
    } else if breaker.is_half_open() {
        "trying"
    } else {
        "normal"
    }
}
