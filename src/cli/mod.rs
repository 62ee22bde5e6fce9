//! The command line: one file per command. Reads print tables, with `--json` JSON; errors say what to do.
//!
//! Commands use the HTTP API: `remote`. With `--api` another process answers; without it the same router in this process, so a command
//! works while no `serve` runs. Processes, and commands about this machine, have no `--api`.
//!
//! Exit codes: 0 ok, 1 failed, 2 wrong usage.

/// Prints a line as [`output::print_text`] does, in all modules of the command line: the macro of std panics when its reader has gone.
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
mod health;
mod help;
mod job;
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
mod queue;
mod reconcile;
mod remote;
mod serve;
mod server;
mod service_manager;
mod shards;
mod signals;
mod user;
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

/// Durable order dispatch: every wait of an order's life is a job in Redis, Postgres is the truth.
#[derive(Debug, Parser)]
#[command(name = "dispatchq", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// Configuration file [default: ./config.toml if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    remote: remote::RemoteArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything on this machine, with its own Redis and Postgres: API, worker, keys to try it with
    #[cfg(feature = "lab")]
    Dev(dev::Args),
    /// Answer producers and drivers over HTTP
    Serve(serve::Args),
    /// Perform jobs; run as many of these as you like
    Work(work::Args),
    /// Bring the database schema up to date
    Migrate(migrate::Args),
    /// Look for what is wrong with this installation, and say what to do
    Doctor(doctor::Args),
    /// Ask a running process whether it lives, or whether it can do its work
    Health(health::Args),
    /// Show or check the configuration
    #[command(subcommand)]
    Config(config::Command),
    /// Keys that programs and drivers authenticate with
    #[command(subcommand)]
    Apikey(apikey::Command),
    /// Drivers
    #[command(subcommand)]
    Driver(driver::Command),
    /// Dispatchers, support and other staff
    #[command(subcommand)]
    User(user::Command),
    /// Areas: where they are, how many orders may wait in each, who decides otherwise
    #[command(subcommand)]
    Area(area::Command),
    /// Orders: look at them, and help those that need a person
    #[command(subcommand)]
    Order(order::Command),
    /// Alerts: who must act, since when, and who has
    #[command(subcommand)]
    Alert(alert::Command),
    /// Messages: what was delivered, and what is dead and can be sent again
    #[command(subcommand)]
    Outbox(outbox::Command),
    /// Queues
    #[command(subcommand)]
    Queue(queue::Command),
    /// Shards of the queue: how many there are, and what lies in each
    #[command(subcommand)]
    Shards(shards::Command),
    /// Single jobs
    #[command(subcommand)]
    Job(job::Command),
    /// Jobs that were given up: look at them, give them another life, forget them
    #[command(subcommand)]
    Dead(dead::Command),
    /// Partners: whether they are called, how many of their orders are polled
    #[command(subcommand)]
    Partner(partner::Command),
    /// Bindings: accounts at providers, on which one transaction follows the other
    #[command(subcommand)]
    Binding(binding::Command),
    /// Mass actions, which are stored with their exact ids before they are done
    #[command(subcommand)]
    Plan(plan::Command),
    /// Providers' servers, and how many calls may be open
    #[command(subcommand)]
    Server(server::Command),
    /// Worker processes
    #[command(subcommand)]
    Worker(worker::Command),
    /// Remove what has served its time
    #[command(subcommand)]
    Cleanup(cleanup::Command),
    /// Erase what is known about a person
    #[command(subcommand)]
    Privacy(privacy::Command),
    /// Check the history against its invariants
    #[command(subcommand)]
    Check(check::Command),
    /// Compare Redis with Postgres and put back what is missing
    #[command(subcommand)]
    Reconcile(reconcile::Command),
    /// Replay real rides against simulated drivers, and check the history
    #[cfg(feature = "lab")]
    Replay(replay::ReplayOptions),
    /// A taxi partner to dispatch to, with all its faults (docs/PARTNER.md)
    #[cfg(feature = "lab")]
    PartnerSim(Box<partner_sim::Args>),
    /// A provider of transactions, and the judge of who calls it (docs/PROVIDER.md)
    #[cfg(feature = "lab")]
    ProviderSim(Box<provider_sim::Args>),
    /// Measure what this machine can do
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Bench(bench::Command),
    /// Print what a shell needs to complete these commands
    Completions(completions::Args),
}

impl Command {
    /// Returns whether the command works on this machine alone: it is a process of its own, or about the configuration, the schema or
    /// the servers. Such a command has no `--api`.
    fn is_local(&self) -> bool {
        #[cfg(feature = "lab")]
        if matches!(self, Self::Dev(_) | Self::Replay(_) | Self::PartnerSim(_) | Self::ProviderSim(_) | Self::Bench(_))
        {
            return true;
        }
        matches!(
            self,
            Self::Serve(_)
                | Self::Work(_)
                | Self::Migrate(_)
                | Self::Doctor(_)
                | Self::Health(_)
                | Self::Config(_)
                | Self::Completions(_)
        )
    }

    /// Returns whether the command needs Redis from its start.
    fn needs_redis(&self) -> bool {
        match self {
            Self::Apikey(_) | Self::User(_) => false,
            Self::Driver(command) => command.needs_redis(),
            _ => true,
        }
    }
}

/// Runs one command to its end.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if cli.command.is_local() {
        cli.remote.refuse_api()?;
        return run_local(cli.command, cli.config.as_deref()).await;
    }
    let api = match cli.remote.find_api()? {
        Some(api) => {
            init_logs_of_command(&Config::defaults())?;
            api
        }
        None => connect_api(&cli.command, settings::load_config(cli.config.as_deref())?).await?,
    };
    let ended = run_command(cli.command, &api).await;
    api.close().await;
    ended
}

/// Logs of a command that ends by itself.
fn init_logs_of_command(config: &Config) -> anyhow::Result<()> {
    telemetry::init_logs(&LogConfig { filter: "warn".to_owned(), ..config.log.clone() })?;
    Ok(())
}

/// Returns the API in this process, on the configured servers.
async fn connect_api(command: &Command, config: Config) -> anyhow::Result<ApiClient> {
    init_logs_of_command(&config)?;
    db::check_reachable(&config.database).await?;
    let app = if command.needs_redis() { App::connect(config).await? } else { App::connect_postgres(config).await? };
    ApiClient::in_process(app, order::cli_operator())
}

/// Runs a command that works on this machine alone.
async fn run_local(command: Command, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    match command {
        Command::Config(command) => command.run(file),
        Command::Health(args) => args.run(file).await,
        Command::Completions(args) => Ok(args.run()),
        // They bring servers and configuration of their own.
        #[cfg(feature = "lab")]
        Command::Dev(args) => args.run(file).await,
        #[cfg(feature = "lab")]
        Command::Replay(options) => {
            telemetry::init_logs(&Config::defaults().log)?;
            Ok(if replay::run(options).await? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        #[cfg(feature = "lab")]
        Command::PartnerSim(args) => {
            telemetry::init_logs(&Config::defaults().log)?;
            args.run().await
        }
        #[cfg(feature = "lab")]
        Command::ProviderSim(args) => {
            telemetry::init_logs(&Config::defaults().log)?;
            args.run().await
        }
        #[cfg(feature = "lab")]
        Command::Bench(command) => command.run().await,
        Command::Migrate(args) => {
            let config = settings::load_config(file)?;
            init_logs_of_command(&config)?;
            db::check_reachable(&config.database).await?;
            args.run(config).await
        }
        Command::Doctor(args) => {
            let config = settings::load_config(file)?;
            init_logs_of_command(&config)?;
            args.run(config).await
        }
        // They wait for a Postgres that starts at the same time.
        Command::Serve(args) => {
            let config = settings::load_config(file)?;
            run_process(config, "serve", async |config| args.run(App::connect_without_redis(config).await?).await).await
        }
        Command::Work(args) => {
            let config = settings::load_config(file)?;
            run_process(config, "work", async |config| args.run(App::connect(config).await?).await).await
        }
        _ => unreachable!("it is run over the API"),
    }
}

/// Runs a process that stays, with its logs and traces.
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

/// Runs a command by what the API answers.
async fn run_command(command: Command, api: &ApiClient) -> anyhow::Result<ExitCode> {
    match command {
        Command::Order(command) => command.run(api).await,
        Command::Driver(command) => command.run(api).await,
        Command::Area(command) => command.run(api).await,
        Command::Alert(command) => command.run(api).await,
        Command::Outbox(command) => command.run(api).await,
        Command::Partner(command) => command.run(api).await,
        Command::Binding(command) => command.run(api).await,
        Command::Server(command) => command.run(api).await,
        Command::Queue(command) => command.run(api).await,
        Command::Job(command) => command.run(api).await,
        Command::Dead(command) => command.run(api).await,
        Command::Worker(command) => command.run(api).await,
        Command::Shards(command) => command.run(api).await,
        Command::Plan(command) => command.run(api).await,
        Command::Apikey(command) => command.run(api).await,
        Command::User(command) => command.run(api).await,
        Command::Privacy(command) => command.run(api).await,
        Command::Check(command) => command.run(api).await,
        Command::Reconcile(command) => command.run(api).await,
        Command::Cleanup(command) => command.run(api).await,
        _ => unreachable!("it works on this machine alone"),
    }
}
