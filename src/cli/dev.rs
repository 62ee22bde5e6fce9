//! `dispatchq dev`: runs everything on this machine. Its own Redis and Postgres keep their data in `.dispatchq/`. The
//! simulated partner and provider keep nothing.

use std::{
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use foundation::core::Core;
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
use lab::{
    board,
    testbed::{
        partner::{self, NAME, SERVICE_TYPE},
        provider,
    },
};
use maintenance::recovery::reconciler;
use model::messages::routes::LOG;
use partner_sim::PartnerSim;
use provider_sim::{ProviderSim, ProviderSimOptions};
use settings::Config;
use workers::worker::process;

/// Sample areas, outlined by hand.
const JAKARTA: &str = include_str!("../../deploy/areas/jakarta.geojson");

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directory for the data of Redis and Postgres, and for the key
    #[arg(long, default_value = ".dispatchq", value_name = "DIR")]
    data: PathBuf,
    /// Address to listen on instead of http.bind
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_bind)]
    bind: Option<String>,
    /// Speed of the simulated partner; 20 finds drivers and finishes rides 20 times as fast as real time
    #[arg(long, value_name = "X", default_value_t = 20.0, value_parser = partner_sim::options::parse_speed)]
    partner_speed: f64,
    /// Speed of orders, from 1 to 1000; 60 divides attempts, lifetimes, polls and reminders by 60
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_speed)]
    speed: f64,
}

impl Args {
    pub(super) async fn run(self, config_file: Option<&Path>) -> anyhow::Result<ExitCode> {
        let mut config = settings::load_config(config_file)?;
        servers::check_installed()?;
        // The first start runs all migrations. Slow statements on a busy machine are not worth a warning.
        let filter = format!("{},sqlx::query=error", config.log.filter);
        telemetry::init_logs(&LogConfig { filter, ..config.log.clone() })?;
        let stop = signals::stop_token()?;
        std::fs::create_dir_all(&self.data).with_context(|| format!("cannot create {}", self.data.display()))?;
        let data = self.data.canonicalize()?;
        let bind = self.bind.clone().unwrap_or_else(|| config.http.bind.clone());
        let listener = api::server::bind_listener(&bind, "http.bind (or --bind)").await?;
        // The configured port may be 0, so the address is read from the listener.
        config.http.bind = listener.local_addr()?.to_string();
        if config.http.public_url.is_empty() {
            config.http.public_url = format!("http://{}", config.http.bind);
        }
        config.http.driver_page = true;
        config.http.docs = true;
        config.http.local_webhooks = true;
        config.http.tracking = true;
        config.push.allow_private = true;

        let mut redis = RedisServer::start_private_in(&data.join("redis"), None).await?;
        let mut postgres = PostgresServer::start_in(&data.join("postgres"), None).await?;
        config.redis.url = redis.url();
        config.database.url = postgres.url();
        config.database.maintenance_url = postgres.url();
        let sim = self.start_partner(&mut config).await?;
        let bank = start_provider(&mut config).await?;
        ensure_otp_key(&mut config, data.join("otp-key"))?;
        config.divide_order_times(self.speed);
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
        // Redis is empty at the first start. Reconciling here prevents the worker's warning about it.
        reconciler::reconcile_in_full(&app.maintenance).await?;
        load_zones(&app).await?;
        let key = ensure_admin_key(&app.core, &data.join("api-key")).await?;
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
        println!("Docs      http://{address}/docs");
        let quoted = quote_word(&file.display().to_string());
        println!("Drivers   http://{address}/driver (sign in: dispatchq --config {quoted} driver sign-in ID)");
        let board = api::server::bind_listener("127.0.0.1:0", "the board").await?;
        println!("Board     http://{} (apalis-board on all queues, read-only)", board.local_addr()?);
        if let Some(admin) = &admin {
            println!("Metrics   http://{}/metrics", admin.local_addr()?);
        }
        println!("Postgres  {}", postgres.url());
        println!("Redis     {}", redis.url());
        if let Some(sim) = &sim {
            println!(
                "Partner   {} (simulated, {} times real time; {}/_sim/state)",
                sim.url(),
                self.partner_speed * self.speed,
                sim.control_url()
            );
        }
        if let Some((bank, _)) = &bank {
            println!("Provider  {} (simulated; {}/_sim/state)", bank.url(), bank.control_url());
        }
        if self.speed > 1.0 {
            println!("Speed     {} (times of orders are divided by it)", self.speed);
        }
        let areas = app.areas.rules.get().geofence.areas().len();
        println!("Areas     {areas} (dispatchq --config {quoted} area list)");
        println!("Data      {}", data.display());
        println!("\nTry:  curl -s http://{address}/api/v1/orders -H 'Authorization: Bearer {key}' \\");
        println!("        -H 'Content-Type: application/json' \\");
        println!(
            "        -d '{{\"service_type\": \"RIDE\", \"pickup\": {{\"latitude\": -6.2088, \"longitude\": 106.8456}}}}'"
        );
        if sim.is_some() {
            println!("\nTo create an order for the partner and list its events:");
            println!("      dispatchq --config {quoted} order create --service-type {SERVICE_TYPE} \\");
            println!("        --id TAXI-1 --lat -6.2088 --lng 106.8456");
            println!("      dispatchq --config {quoted} order timeline TAXI-1");
        }
        if let Some((_, options)) = &bank {
            print_bindings(&quoted, &options.knobs.otp_code);
        }
        println!("\nPress Ctrl-C to stop; the data is kept.");

        let admin = match admin {
            Some(listener) => Some(serve::serve_admin(&app, ProcessKind::Serve, listener, &stop)?),
            None => None,
        };
        let board = tokio::spawn(board::serve(app.core.queue(), board, stop.clone()));
        let queues = process::select_queues(&app.config, &[], None)?;
        app.orders.first_tries.start();
        api::server::raise_open_files();
        // Serve the console on the printed address, whatever `console.bind` is.
        let pages = serve::NextToApi { console: true, test_clock: true };
        let serve = serve::serve_requests(&app, listener, pages, &stop);
        let work = process::run(app.clone(), queues, stop.clone());
        let (served, worked) = tokio::join!(serve, work);
        if let Some(admin) = admin {
            admin.await??;
        }
        board.await??;
        drop((sim, bank));
        app.core.close().await;
        redis.stop().await?;
        postgres.stop().await?;
        served?;
        worked?;
        Ok(ExitCode::SUCCESS)
    }

    /// Starts a simulated partner and adds it to `config`, unless the configuration has a partner or a service type of
    /// that name.
    async fn start_partner(&self, config: &mut Config) -> anyhow::Result<Option<PartnerSim>> {
        if config.partners.contains_key(NAME) || config.service_types.contains_key(SERVICE_TYPE) {
            return Ok(None);
        }
        let options = partner_sim::PartnerSimOptions {
            speed: self.partner_speed * self.speed,
            ..partner_sim::PartnerSimOptions::default()
        };
        let sim = partner::start(&options).await?;
        partner::served_by(&sim, &options).add_to(config);
        Ok(Some(sim))
    }
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (1.0..=1000.0).contains(speed));
    speed.ok_or_else(|| "expected a number from 1 to 1000".to_owned())
}

/// Listens for metrics on `address`, or on another free port of the same host if that port is in use. Returns `None` if
/// the address is empty.
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

/// Starts a simulated provider for bindings, unless the configuration has a provider of that name.
async fn start_provider(config: &mut Config) -> anyhow::Result<Option<(ProviderSim, ProviderSimOptions)>> {
    if config.providers.contains_key(provider::NAME) {
        return Ok(None);
    }
    let options = provider::lively_options()?;
    let bank = provider::start(&options).await?;
    provider::add_provider(config, &options);
    // The log then shows when an OTP is wanted.
    if config.notifications.otp.is_empty() {
        config.notifications.otp.push(LOG.to_owned());
    }
    Ok(Some((bank, options)))
}

/// Prints the commands that show the bindings and enter an OTP. `file` is the quoted name of the configuration.
fn print_bindings(file: &str, otp: &str) {
    println!("\nFive bindings run on two servers of the provider:");
    println!("      dispatchq --config {file} binding list");
    println!("      dispatchq --config {file} binding explain B-1");
    println!("When a binding is WAITING_OTP, the log has OTP_WANTED and `binding show` prints the transaction:");
    println!("      echo {otp} | dispatchq --config {file} binding otp B-1 --trx B-1.42");
}

/// Imports Jakarta's zones and its airport if there are no areas. Imported areas are never changed.
async fn load_zones(app: &App) -> anyhow::Result<()> {
    if !geofences::list_areas(&app.core.db).await?.is_empty() {
        return Ok(());
    }
    let author = ChangeAuthor { actor: &cli_operator(), reason: Some("sample areas") };
    geofences::import_areas(&app.core.db, &import::parse(JAKARTA)?, false, None, author).await?;
    app.areas.reload_if_changed().await?;
    Ok(())
}

/// Creates the OTP key in a file that only its owner can read, if no key is configured. The key is kept so that an OTP
/// stored in a row is readable after a restart.
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

/// Returns an admin key, kept in a file that only its owner can read. Creates the key if the file is missing or its key
/// is not valid.
async fn ensure_admin_key(core: &Core, file: &Path) -> anyhow::Result<String> {
    if let Ok(key) = std::fs::read_to_string(file)
        && api_keys::find_key(&core.db, key.trim()).await?.is_some()
    {
        return Ok(key.trim().to_owned());
    }
    let which = key_admin::KeySelection::Name("dev".to_owned());
    key_admin::revoke_keys(&mut core.db.acquire().await?, &which).await?;
    let (_, key) = key_admin::create_permanent_key(&core.db, "dev", AccountRole::Admin, None).await?;
    write_private(file, &format!("{key}\n"))?;
    Ok(key)
}

/// Writes a file that only its owner can read.
fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let written = options.write(true).create(true).truncate(true).mode(0o600).open(file);
    written
        .and_then(|mut out| out.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", file.display()))
}
