//! `dispatchq dev`: everything on this machine, with its own Redis and Postgres, whose data stays in `.dispatchq/`, and a
//! simulated partner and provider, which forget.

use std::{
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use servers::{PostgresServer, RedisServer};
use tokio::net::TcpListener;

use super::{order::cli_operator, output::quote_word, serve, signals};
use accounts::{
    api_keys::{self, AccountRole},
    key_admin,
};
use api::ProcessKind;
use app::{App, settings};
use areas::{
    import,
    table::{ChangeAuthor, geofences},
};
use bindings::otp_seal::generate_otp_key;
use foundation::{
    config::{address::parse_bind, log::LogConfig},
    db::{self, SchemaState},
    telemetry,
};
use lab::testbed::{
    partner::{self, NAME, SERVICE_TYPE},
    provider,
};
use maintenance::recovery::reconciler;
use model::messages::routes::LOG;
use partner_sim::PartnerSim;
use provider_sim::{ProviderSim, ProviderSimOptions};
use settings::Config;
use workers::worker::process;

/// Zones to begin with, outlined by hand.
const JAKARTA: &str = include_str!("../../deploy/areas/jakarta.geojson");

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where Redis, Postgres and the key keep their data
    #[arg(long, default_value = ".dispatchq", value_name = "DIR")]
    data: PathBuf,
    /// Listen here instead of http.bind
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_bind)]
    bind: Option<String>,
    /// How much faster than life the simulated partner finds drivers and rides
    #[arg(long, value_name = "X", default_value_t = 20.0, value_parser = partner_sim::options::parse_speed)]
    partner_speed: f64,
}

impl Args {
    pub(super) async fn run(self, config_file: Option<&Path>) -> anyhow::Result<ExitCode> {
        let mut config = settings::load_config(config_file)?;
        // The first start migrates, and a busy machine is slow at it: that is no warning.
        let filter = format!("{},sqlx::query=error", config.log.filter);
        telemetry::init_logs(&LogConfig { filter, ..config.log.clone() })?;
        let stop = signals::stop_token()?;
        std::fs::create_dir_all(&self.data).with_context(|| format!("cannot make {}", self.data.display()))?;
        let data = self.data.canonicalize()?;
        let bind = self.bind.clone().unwrap_or_else(|| config.http.bind.clone());
        let listener = api::server::bind_listener(&bind, "http.bind (or --bind)").await?;
        // The port may have been left to the system.
        config.http.bind = listener.local_addr()?.to_string();

        let mut redis = RedisServer::start_private_in(&data.join("redis"), None).await?;
        let mut postgres = PostgresServer::start_in(&data.join("postgres"), None).await?;
        config.redis.url = redis.url();
        config.database.url = postgres.url();
        config.database.maintenance_url = postgres.url();
        let sim = self.start_partner(&mut config).await?;
        let bank = start_provider(&mut config).await?;
        ensure_otp_key(&mut config, data.join("otp-key"))?;
        let pool = db::connect_pool(&config.database).await?;
        if let SchemaState::Changed(_) = db::read_schema_state(&pool).await? {
            let folder = quote_word(&self.data.display().to_string());
            anyhow::bail!(
                "the data in {folder} has a schema from before the first release and cannot be upgraded; remove it: \
                 rm -r {folder}"
            );
        }
        db::migrate_schema(&pool).await?;
        orders::service_types::publish(&pool, &config).await?;
        let app = App::connect(config).await?;
        // The first start finds an empty Redis, as is well; a worker would warn of it.
        reconciler::reconcile_in_full(&app.maintenance).await?;
        load_zones(&app).await?;
        let key = ensure_admin_key(&app, &data.join("api-key")).await?;
        let address = listener.local_addr()?;
        let file = data.join("config.toml");
        write_private(&file, &format!("# Written by dispatchq dev.\n{}", toml::to_string(&app.config)?))?;
        if let Some(sim) = &sim {
            partner::call_back(sim, &format!("http://{address}"))?;
        }
        if let Some((bank, _)) = &bank {
            provider::run_bindings(&app, bank).await?;
        }

        let admin = bind_free_admin(&app.config.http.admin_bind).await?;
        println!("API       http://{address}/api/v1/orders");
        println!("Key       {key}");
        if app.config.console.enabled {
            println!("Console   http://{address}{} (sign in with the key)", app.config.console.path);
        }
        if let Some(admin) = &admin {
            println!("Metrics   http://{}/metrics", admin.local_addr()?);
        }
        println!("Postgres  {}", postgres.url());
        println!("Redis     {}", redis.url());
        if let Some(sim) = &sim {
            println!(
                "Partner   {} (simulated, {} times as fast as life; {}/_sim/state)",
                sim.url(),
                self.partner_speed,
                sim.control_url()
            );
        }
        if let Some((bank, _)) = &bank {
            println!("Provider  {} (simulated; {}/_sim/state)", bank.url(), bank.control_url());
        }
        println!("Areas     {} (dispatchq area list)", app.areas.rules.get().geofence.areas().len());
        println!("Data      {}", data.display());
        println!("\nTry:  curl -s http://{address}/api/v1/orders -H 'Authorization: Bearer {key}' \\");
        println!("        -H 'Content-Type: application/json' \\");
        println!(
            "        -d '{{\"service_type\": \"RIDE\", \"pickup\": {{\"latitude\": -6.2088, \"longitude\": 106.8456}}}}'"
        );
        if sim.is_some() {
            let file = quote_word(&file.display().to_string());
            println!("\nServed by the partner, with all that happens to it:");
            println!("      dispatchq --config {file} order create --service-type {SERVICE_TYPE} \\");
            println!("        --id TAXI-1 --lat -6.2088 --lng 106.8456");
            println!("      dispatchq --config {file} order timeline TAXI-1");
        }
        if let Some((_, options)) = &bank {
            print_bindings(&file, &options.knobs.otp_code);
        }
        println!("\nCtrl-C ends it; the data stays.");

        let admin = match admin {
            Some(listener) => Some(serve::serve_admin(&app, ProcessKind::Serve, listener, &stop)?),
            None => None,
        };
        let queues = process::select_queues(&app, &[], None)?;
        api::server::raise_open_files();
        // On the address that was printed, whatever `console.bind` says.
        let serve = serve::serve_requests(&app, listener, true, &stop);
        let work = process::run(app.clone(), queues, stop.clone());
        let (served, worked) = tokio::join!(serve, work);
        if let Some(admin) = admin {
            admin.await??;
        }
        drop((sim, bank));
        app.core.close().await;
        redis.stop().await?;
        postgres.stop().await?;
        served?;
        worked?;
        Ok(ExitCode::SUCCESS)
    }

    /// A partner for the service type it serves, unless the configuration has either of its own.
    async fn start_partner(&self, config: &mut Config) -> anyhow::Result<Option<PartnerSim>> {
        if config.partners.contains_key(NAME) || config.service_types.contains_key(SERVICE_TYPE) {
            return Ok(None);
        }
        let options =
            partner_sim::PartnerSimOptions { speed: self.partner_speed, ..partner_sim::PartnerSimOptions::default() };
        let sim = partner::start(&options).await?;
        partner::served_by(&sim, &options).add_to(config);
        Ok(Some(sim))
    }
}

/// Listens for metrics at this address, or on a free port beside it where another process has the port. `None`: the address is
/// empty.
async fn bind_free_admin(address: &str) -> anyhow::Result<Option<TcpListener>> {
    if address.is_empty() {
        return Ok(None);
    }
    if let Ok(listener) = TcpListener::bind(address).await {
        return Ok(Some(listener));
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    Ok(Some(api::server::bind_listener(&format!("{host}:0"), "http.admin_bind").await?))
}

/// A provider for bindings, unless the configuration has one of its name.
async fn start_provider(config: &mut Config) -> anyhow::Result<Option<(ProviderSim, ProviderSimOptions)>> {
    if config.providers.contains_key(provider::NAME) {
        return Ok(None);
    }
    let options = provider::lively_options()?;
    let bank = provider::start(&options).await?;
    provider::add_provider(config, &options);
    // A person who looks at the log sees when an OTP is wanted.
    if config.notifications.otp.is_empty() {
        config.notifications.otp.push(LOG.to_owned());
    }
    Ok(Some((bank, options)))
}

/// Says how to look at the bindings, and how to hand an OTP in.
fn print_bindings(file: &Path, otp: &str) {
    let file = quote_word(&file.display().to_string());
    println!("\nFive bindings run on two servers of the provider:");
    println!("      dispatchq --config {file} binding list");
    println!("      dispatchq --config {file} binding explain B-1");
    println!("Now and then one is WAITING_OTP, and the log says OTP_WANTED; `binding show` names the transaction:");
    println!("      echo {otp} | dispatchq --config {file} binding otp B-1 --trx B-1.42");
}

/// Jakarta's zones and its airport, unless there are areas: those that a person has imported stay as they are.
async fn load_zones(app: &App) -> anyhow::Result<()> {
    if !geofences::list_areas(&app.core.db).await?.is_empty() {
        return Ok(());
    }
    let author = ChangeAuthor { actor: &cli_operator(), reason: Some("zones to begin with") };
    geofences::import_areas(&app.core.db, &import::parse(JAKARTA)?, false, None, author).await?;
    app.areas.reload_if_changed().await?;
    Ok(())
}

/// A key for OTPs, kept in a file only its owner reads: an OTP that waits in its row is read after a restart, too.
fn ensure_otp_key(config: &mut Config, file: PathBuf) -> anyhow::Result<()> {
    let bindings = &mut config.bindings;
    if !bindings.otp_key.is_empty() || bindings.otp_key_env.is_some() || bindings.otp_key_file.is_some() {
        return Ok(());
    }
    if !std::fs::read_to_string(&file).is_ok_and(|key| !key.trim().is_empty()) {
        write_private(&file, &format!("{}\n", generate_otp_key()?))?;
    }
    bindings.otp_key_file = Some(file);
    Ok(())
}

/// A key for everything, kept in a file only its owner reads.
async fn ensure_admin_key(app: &App, file: &Path) -> anyhow::Result<String> {
    if let Ok(key) = std::fs::read_to_string(file)
        && api_keys::find_key(&app.core.db, key.trim()).await?.is_some()
    {
        return Ok(key.trim().to_owned());
    }
    let which = key_admin::KeySelection::Name("dev".to_owned());
    key_admin::revoke_keys(&mut app.core.db.acquire().await?, &which).await?;
    let (_, key) = key_admin::create_permanent_key(&app.core.db, "dev", AccountRole::Admin, None).await?;
    write_private(file, &format!("{key}\n"))?;
    Ok(key)
}

/// Only its owner reads it.
fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let written = options.write(true).create(true).truncate(true).mode(0o600).open(file);
    written
        .and_then(|mut out| out.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", file.display()))
}
