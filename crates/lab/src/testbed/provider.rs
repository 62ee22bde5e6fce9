//! The simulated provider of a testbed, its servers, and bindings on them.

use anyhow::Context;
use bindings::capability::Bindings;
use model::{
    actor::{Actor, ActorRole},
    binding::{BindingCommand, BindingConfig, ServerId},
};

use app::App;
use bindings::{
    commands::{self, NewBinding},
    error::BindingError,
    servers,
    store::servers::{ServerSettings, find_server},
};
use provider_sim::{ProviderKnobs, ProviderSim, ProviderSimOptions};
use settings::{Config, ProviderConfig};

/// Name of the provider in the configuration.
pub const NAME: &str = "sim";

/// Host of the simulated provider. Its port differs from run to run.
pub(crate) const SIMULATOR_HOST: &str = "127.0.0.1";

const SERVERS: [&str; 2] = ["S1", "S2"];
/// Bindings, each with its server and its account.
const BINDINGS: [(&str, &str, &str); 5] =
    [("B-1", "S1", "A-1"), ("B-2", "S1", "A-2"), ("B-3", "S1", "A-3"), ("B-4", "S2", "A-4"), ("B-5", "S2", "A-5")];

const TESTBED: Actor = Actor::with_fixed_name(ActorRole::Operator, "testbed");

/// Returns options with some variety: most transactions succeed immediately, some are in PROCESSING for a while, a few
/// want an OTP or fail.
pub fn lively_options() -> anyhow::Result<ProviderSimOptions> {
    let knobs = ProviderKnobs {
        processing_rate: "0.2".parse().map_err(anyhow::Error::msg)?,
        otp_rate: "0.02".parse().map_err(anyhow::Error::msg)?,
        failures: "account_locked=0.02".parse().map_err(anyhow::Error::msg)?,
        latency: "50ms-300ms".parse().map_err(anyhow::Error::msg)?,
        ..ProviderKnobs::default()
    };
    Ok(ProviderSimOptions { knobs, ..ProviderSimOptions::default() })
}

/// Adds the provider to the configuration.
pub fn add_provider(config: &mut Config, options: &ProviderSimOptions) {
    let provider = ProviderConfig {
        api_key: options.api_key.clone(),
        hosts: vec![SIMULATOR_HOST.to_owned()],
        allow_private: true,
        ..ProviderConfig::default()
    };
    config.providers.insert(NAME.into(), provider);
}

/// Starts the provider on a free port. [`run_bindings`] creates its servers.
pub async fn start(options: &ProviderSimOptions) -> anyhow::Result<ProviderSim> {
    ProviderSim::start(options).await.context("the simulated provider did not start")
}

/// Creates and starts five bindings on two servers. Existing ones are not changed, except the servers' addresses,
/// because the provider listens on another port each time.
pub async fn run_bindings(app: &App, sim: &ProviderSim) -> anyhow::Result<()> {
    for server in SERVERS {
        set_server(app, server, sim.server_url(server)).await.with_context(|| format!("cannot set server {server}"))?;
    }
    for (binding, server, account) in BINDINGS {
        let new = NewBinding {
            id: binding.parse()?,
            server_id: server.parse()?,
            account_id: account.parse()?,
            config: unhurried_config(),
        };
        run_binding(&app.bindings, &new).await.with_context(|| format!("cannot run binding {binding}"))?;
    }
    Ok(())
}

/// Returns a configuration with slow cycles, so that a person can follow them and enter an OTP, and the tables grow
/// slowly.
fn unhurried_config() -> BindingConfig {
    BindingConfig { interval_ms: (1_000, 3_000).into(), otp_timeout_ms: 300_000, ..BindingConfig::default() }
}

async fn set_server(app: &App, id: &str, url: String) -> anyhow::Result<()> {
    let id: ServerId = id.parse()?;
    let address = ServerSettings { base_url: Some(url), ..ServerSettings::default() };
    match find_server(&app.core.db, &id).await? {
        None => {
            let settings = ServerSettings { provider: Some(NAME.into()), ..address };
            servers::create_server(&app.bindings, &id, &settings, &TESTBED).await?;
        }
        Some(known) if known.provider.as_str() == NAME => {
            servers::change_server(&app.bindings, &id, &address, &TESTBED).await?;
        }
        // A person has assigned the server to another provider.
        Some(_) => {}
    }
    Ok(())
}

/// Creates a binding and starts it. An existing binding keeps its state, also if it is stopped or deleted.
async fn run_binding(bindings: &Bindings, new: &NewBinding) -> anyhow::Result<()> {
    let row = match commands::create_binding(bindings, new, &TESTBED).await {
        Ok(row) => Some(row),
        Err(BindingError::Exists(_)) => bindings.rows.load_binding(&new.id).await?.map(|loaded| loaded.binding),
        Err(error) => return Err(error.into()),
    };
    // Version 0: it was created just now, or by a run that ended before starting it.
    if row.is_some_and(|row| row.version == 0) {
        commands::command_binding(bindings, &new.id, &BindingCommand::Start, &TESTBED).await?;
    }
    Ok(())
}
