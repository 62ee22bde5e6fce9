//! The simulated partner of a testbed, and its configuration.

use anyhow::Context;

use super::settings::ServedBy;
use partner_sim::{PartnerSim, PartnerSimOptions};
use settings::PartnerConfig;

/// Name of the partner, and the service type it serves.
pub const NAME: &str = "sim";
pub const SERVICE_TYPE: &str = "TAXI";

/// Starts the partner on a free port. It sends no callbacks until [`call_back`].
pub async fn start(options: &PartnerSimOptions) -> anyhow::Result<PartnerSim> {
    PartnerSim::start(options).await.context("the simulated partner did not start")
}

/// Returns the configuration of the partner, with the default limits.
pub fn served_by(sim: &PartnerSim, options: &PartnerSimOptions) -> ServedBy {
    let config = PartnerConfig {
        api_key: options.api_key.clone(),
        callback_secret: options.callback_secret.clone(),
        details: true,
        ..PartnerConfig::with_url(&sim.url())
    };
    ServedBy { name: NAME, service_type: SERVICE_TYPE, config }
}

/// Sends callbacks to the API at `base` from now on.
pub fn call_back(sim: &PartnerSim, base: &str) -> anyhow::Result<()> {
    sim.change_knobs(|knobs| knobs.callback_url = Some(format!("{base}/api/v1/callbacks/{NAME}")))
}
