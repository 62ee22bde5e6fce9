//! The command line, one file per command. Commands that read print tables, or JSON with `--json`. Errors include what
//! to do.
//!
//! Commands use the HTTP API (see `remote`). With `--api` another process answers. Without it, the same router runs in
//! this process, so a command works while no `serve` runs. Commands that are long-running processes or work on this
//! machine have no `--api`.
//!
//! Exit codes: 0 ok, 1 failed, 2 wrong usage.

/// Prints a line with [`output::print_text`] in all modules of the command line. The macro of std panics when the
/// reader of stdout has closed it.
macro_rules! println {
    () => { $crate::cli::output::print_text("") };
    ($($text:tt)+) => { $crate::cli::output::print_args(format_args!($($text)+)) };
}

mod alert;
mod apikey;
mod area;
#[cfg(feature = "lab")]
mod bench;
mod binding;
mod build_info;
mod check;
mod cleanup;
mod completions;
mod config;
mod consent;
mod dead;
#[cfg(feature = "lab")]
mod dev;
mod doctor;
mod driver;
mod export;
mod health;
mod help;
mod job;
mod man;
mod migrate;
mod order;
mod outbox;
pub mod output;
mod partner;
#[cfg(feature = "lab")]
mod partner_sim;
mod plan;
mod privacy;
#[cfg(feature = "lab")]
mod provider_sim;
mod push_keys;
mod queue;
mod reconcile;
mod remote;
mod run;
mod serve;
mod server;
mod service_manager;
mod shards;
mod signals;
mod user;
mod webhook;
mod words;
mod work;
mod worker;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

pub use help::{command, parse};

use self::remote::ApiClient;
use ::settings::Config;
use app::{App, settings};
use foundation::{config::log::LogConfig, db, telemetry};
#[cfg(feature = "lab")]
use lab::replay;

/// Durable order dispatch: every wait of an order is a job in Redis, and Postgres is the source of truth
#[derive(Debug, Parser)]
#[command(name = "dispatchq", version = build_info::version_text(), propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// Configuration file [default: ./config.toml if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    remote: remote::RemoteArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Local(LocalCommand),
    #[command(flatten)]
    Api(ApiCommand),
}

/// Commands that work only on this machine. Each is a long-running process, or concerns the configuration, the schema, the
/// servers or exported files. They have no `--api`.
#[derive(Debug, Subcommand)]
enum LocalCommand {
    /// Run everything on this machine: API, worker, private Redis and Postgres, and a key
    #[cfg(feature = "lab")]
    Dev(dev::Args),
    /// Serve the HTTP API and perform jobs in one process
    Run(run::Args),
    /// Serve the HTTP API to producers and drivers
    Serve(serve::Args),
    /// Run a worker; any number of workers can run at the same time
    Work(work::Args),
    /// Migrate the database schema
    Migrate(migrate::Args),
    /// Check this installation, and print how to fix problems
    Doctor(doctor::Args),
    /// Check whether a running process is alive or ready
    Health(health::Args),
    /// Write one day of the audit views to CSV or Parquet files (docs/DATA.md)
    Export(export::Args),
    /// Show or check the configuration
    #[command(subcommand)]
    Config(config::Command),
    /// Replay recorded rides against simulated drivers, and check the history
    #[cfg(feature = "lab")]
    Replay(replay::ReplayOptions),
    /// Run a simulated taxi partner with injectable faults (docs/PARTNER.md)
    #[cfg(feature = "lab")]
    PartnerSim(Box<partner_sim::Args>),
    /// Run a simulated provider of transactions that checks every call (docs/PROVIDER.md)
    #[cfg(feature = "lab")]
    ProviderSim(Box<provider_sim::Args>),
    /// Run benchmarks on this machine
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Bench(bench::Command),
    /// Create the key for push messages to the browsers of drivers
    PushKeys(push_keys::Args),
    /// Print the completion script for a shell
    Completions(completions::Args),
    /// Write the manual pages into a directory, one for each command
    Man(man::Args),
}

/// Commands that use the API.
#[derive(Debug, Subcommand)]
enum ApiCommand {
    /// Manage the API keys of programs and drivers
    #[command(subcommand)]
    Apikey(apikey::Command),
    /// Manage drivers, and act on a driver's behalf
    #[command(subcommand)]
    Driver(driver::Command),
    /// Manage dispatchers, support and other staff
    #[command(subcommand)]
    User(user::Command),
    /// Manage areas: limits of waiting orders, thresholds and overrides
    #[command(subcommand)]
    Area(area::Command),
    /// Create and inspect orders, and resolve those that need a person
    #[command(subcommand)]
    Order(order::Command),
    /// List and acknowledge alerts
    #[command(subcommand)]
    Alert(alert::Command),
    /// Inspect outbox messages, and send dead ones again
    #[command(subcommand)]
    Outbox(outbox::Command),
    /// List, pause and resume queues
    #[command(subcommand)]
    Queue(queue::Command),
    /// Inspect the shards of the queue, and change their number
    #[command(subcommand)]
    Shards(shards::Command),
    /// Inspect, cancel and reschedule jobs
    #[command(subcommand)]
    Job(job::Command),
    /// Inspect, requeue and discard dead jobs
    #[command(subcommand)]
    Dead(dead::Command),
    /// List partners, and set the share of polled orders
    #[command(subcommand)]
    Partner(partner::Command),
    /// Manage bindings: accounts at providers that run one transaction after another
    #[command(subcommand)]
    Binding(binding::Command),
    /// Inspect, run and cancel plans: bulk actions with a stored list of ids
    #[command(subcommand)]
    Plan(plan::Command),
    /// Manage provider servers and limits of open calls
    #[command(subcommand)]
    Server(server::Command),
    /// Manage webhook endpoints of producers, and send events again
    #[command(subcommand, alias = "webhooks")]
    Webhook(webhook::Command),
    /// List, drain and resume worker processes
    #[command(subcommand)]
    Worker(worker::Command),
    /// Remove expired data
    #[command(subcommand)]
    Cleanup(cleanup::Command),
    /// Erase personal data
    #[command(subcommand)]
    Privacy(privacy::Command),
    /// Check the history against its invariants
    #[command(subcommand)]
    Check(check::Command),
    /// Compare Redis with Postgres, and enqueue missing jobs again
    #[command(subcommand)]
    Reconcile(reconcile::Command),
}

impl ApiCommand {
    /// Returns whether the command needs Redis when it starts.
    fn needs_redis(&self) -> bool {
        match self {
            Self::Apikey(_) | Self::User(_) => false,
            Self::Driver(command) => command.needs_redis(),
            _ => true,
        }
    }
}

/// Runs the command. A command whose output could not be written fails.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let code = run_any(cli).await?;
    output::check_written()?;
    Ok(code)
}

async fn run_any(cli: Cli) -> anyhow::Result<ExitCode> {
    let command = match cli.command {
        Command::Local(command) => return run_local(command, cli.config.as_deref()).await,
        Command::Api(command) => command,
    };
    let api = match cli.remote.find_api()? {
        Some(api) => {
            init_logs_of_command(&Config::defaults())?;
            api
        }
        None => connect_api(&command, settings::load_config(cli.config.as_deref())?).await?,
    };
    let ended = run_command(command, &api).await;
    api.close().await;
    ended
}

/// Sets up logs for a short command.
fn init_logs_of_command(config: &Config) -> anyhow::Result<()> {
    telemetry::init_logs(&LogConfig { filter: "warn".to_owned(), ..config.log.clone() })?;
    Ok(())
}

/// Returns an API client that runs the router in this process, on the configured servers.
async fn connect_api(command: &ApiCommand, config: Config) -> anyhow::Result<ApiClient> {
    init_logs_of_command(&config)?;
    db::check_reachable(&config.database).await?;
    let app = if command.needs_redis() { App::connect(config).await? } else { App::connect_postgres(config).await? };
    ApiClient::in_process(app, order::cli_operator())
}

/// Runs a command that works only on this machine.
async fn run_local(command: LocalCommand, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    match command {
        LocalCommand::Config(command) => command.run(file),
        LocalCommand::Health(args) => args.run(file).await,
        LocalCommand::Completions(args) => Ok(args.run()),
        LocalCommand::Man(args) => args.run(),
        LocalCommand::PushKeys(args) => args.run(),
        // These commands start their own servers and set up their own logs.
        #[cfg(feature = "lab")]
        LocalCommand::Dev(args) => args.run(file).await,
        #[cfg(feature = "lab")]
        LocalCommand::Replay(options) => {
            telemetry::init_logs(&Config::defaults().log)?;
            Ok(if replay::run(options).await? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        #[cfg(feature = "lab")]
        LocalCommand::PartnerSim(args) => {
            telemetry::init_logs(&Config::defaults().log)?;
            args.run().await
        }
        #[cfg(feature = "lab")]
        LocalCommand::ProviderSim(args) => {
            telemetry::init_logs(&Config::defaults().log)?;
            args.run().await
        }
        #[cfg(feature = "lab")]
        LocalCommand::Bench(command) => command.run().await,
        LocalCommand::Migrate(args) => {
            let config = settings::load_config(file)?;
            init_logs_of_command(&config)?;
            db::check_reachable(&config.database).await?;
            args.run(config).await
        }
        LocalCommand::Doctor(args) => {
            let config = settings::load_config(file)?;
            init_logs_of_command(&config)?;
            args.run(config).await
        }
        LocalCommand::Export(args) => {
            let config = settings::load_config(file)?;
            init_logs_of_command(&config)?;
            args.run(config).await
        }
        // These processes wait for a Postgres that is still starting.
        LocalCommand::Run(args) => {
            let config = settings::load_config(file)?;
            run_process(config, "run", async |config| args.run(App::connect_without_redis(config).await?).await).await
        }
        LocalCommand::Serve(args) => {
            let config = settings::load_config(file)?;
            run_process(config, "serve", async |config| args.run(App::connect_without_redis(config).await?).await).await
        }
        LocalCommand::Work(args) => {
            let config = settings::load_config(file)?;
            run_process(config, "work", async |config| args.run(App::connect(config).await?).await).await
        }
    }
}

/// Runs a long-running process with logs and traces.
async fn run_process(
    config: Config,
    name: &'static str,
    process: impl AsyncFnOnce(Config) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let traces = telemetry::init_process(&config.log, &config.traces, &config.worker.name, name)?;
    config.warn_of_other_variables();
    let ended = process(config).await;
    if let Some(traces) = traces {
        traces.shut_down().await;
    }
    ended
}

/// Runs a command over the API.
async fn run_command(command: ApiCommand, api: &ApiClient) -> anyhow::Result<ExitCode> {
    match command {
        ApiCommand::Order(command) => command.run(api).await,
        ApiCommand::Driver(command) => command.run(api).await,
        ApiCommand::Area(command) => command.run(api).await,
        ApiCommand::Alert(command) => command.run(api).await,
        ApiCommand::Outbox(command) => command.run(api).await,
        ApiCommand::Partner(command) => command.run(api).await,
        ApiCommand::Binding(command) => command.run(api).await,
        ApiCommand::Server(command) => command.run(api).await,
        ApiCommand::Webhook(command) => command.run(api).await,
        ApiCommand::Queue(command) => command.run(api).await,
        ApiCommand::Job(command) => command.run(api).await,
        ApiCommand::Dead(command) => command.run(api).await,
        ApiCommand::Worker(command) => command.run(api).await,
        ApiCommand::Shards(command) => command.run(api).await,
        ApiCommand::Plan(command) => command.run(api).await,
        ApiCommand::Apikey(command) => command.run(api).await,
        ApiCommand::User(command) => command.run(api).await,
        ApiCommand::Privacy(command) => command.run(api).await,
        ApiCommand::Check(command) => command.run(api).await,
        ApiCommand::Reconcile(command) => command.run(api).await,
        ApiCommand::Cleanup(command) => command.run(api).await,
    }
}
