//! Start and end of a simulated provider.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use axum::Router;
use partner_sim::{lines::CuttableListener, serving::serve_lines};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    api,
    control::{self, ProviderReport},
    core::ProviderCore,
    knobs::ProviderKnobs,
    options::ProviderSimOptions,
};

/// A running provider. Dropping it ends the simulation.
#[derive(Debug)]
pub struct ProviderSim {
    address: SocketAddr,
    control: SocketAddr,
    core: Arc<ProviderCore>,
    stop: CancellationToken,
    /// Tasks that are aborted on drop.
    _tasks: JoinSet<()>,
}

impl ProviderSim {
    pub async fn start(options: &ProviderSimOptions) -> anyhow::Result<Self> {
        anyhow::ensure!(options.control.ip().is_loopback(), "--control must be a loopback address such as 127.0.0.1:0");
        let core = Arc::new(ProviderCore::new(options).map_err(anyhow::Error::msg)?);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut serve = |address: SocketAddr, router: Router| {
            // The sender lives as long as the server, so connections are never refused.
            let (never_refuse, refused) = watch::channel(false);
            let lines = CuttableListener::bind_address(address, refused, stop.clone())
                .with_context(|| format!("cannot listen on {address}: is the port taken?"))?;
            let address = lines.local_address();
            tasks.spawn(async move {
                let _never_refuse = never_refuse;
                serve_lines(lines, router, "provider").await;
            });
            anyhow::Ok(address)
        };
        let control_routes = control::control_routes(&core);
        let address = serve(options.bind, api::call_routes(&core).merge(control_routes.clone()))?;
        let control = serve(options.control, control_routes)?;
        Ok(Self { address, control, core, stop, _tasks: tasks })
    }

    /// Returns the base URL of all servers.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the base URL of one server's API. Every name is a server.
    pub fn server_url(&self, server: &str) -> String {
        format!("http://{}/servers/{server}", self.address)
    }

    /// Returns the base URL of `/_sim`.
    pub fn control_url(&self) -> String {
        format!("http://{}", self.control)
    }

    pub fn read_report(&self) -> ProviderReport {
        control::provider_report(&self.core)
    }

    /// Resets the judge's counters.
    pub fn reset_judge(&self) {
        self.core.lock_state().judge.reset_counters();
    }

    /// Sets the number of transactions that an account can pay.
    pub fn set_balance(&self, account: &str, balance: u64) {
        self.core.lock_state().ledger.set_balance(account, balance);
    }

    /// Changes knobs for later decisions.
    pub fn change_knobs(&self, change: impl FnOnce(&mut ProviderKnobs)) -> anyhow::Result<()> {
        let changed = self.core.change_knobs(|knobs| {
            let mut knobs = knobs.clone();
            change(&mut knobs);
            knobs.check_values()?;
            Ok(knobs)
        });
        changed.map_err(anyhow::Error::msg)
    }
}

impl Drop for ProviderSim {
    fn drop(&mut self) {
        // Cuts all connections.
        self.stop.cancel();
    }
}
