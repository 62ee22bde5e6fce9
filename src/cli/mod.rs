//! The command line: one file per command. Reads print tables, with `--json` JSON; errors say what to do. With `--api` a command
//! asks the HTTP API in place of the servers: `remote`.
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
mod import;
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

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

pub use help::{command, parse};

use app::{App, settings};
use foundation::{config::log::LogConfig, db, telemetry};
#[cfg(feature = "lab")]
use lab::replay;
use settings::Config;

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
    /// Returns whether the command is a process of its own, or about this machine alone.
    fn is_local(&self) -> bool {
        #[cfg(feature = "lab")]
        if matches!(self, Self::Dev(_) | Self::Replay(_) | Self::PartnerSim(_) | Self::ProviderSim(_) | Self::Bench(_))
        {
            return true;
        }
        matches!(self, Self::Serve(_) | Self::Work(_) | Self::Health(_) | Self::Config(_) | Self::Completions(_))
    }
}

/// Runs one command to its end.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Some(api) = cli.remote.find_api(&cli.command)? {
        let log = Config::defaults().log;
        telemetry::init_logs(&LogConfig { filter: "warn".to_owned(), ..log })?;
        return remote::run_command(cli.command, &api).await;
    }
    let config = || settings::load_config(cli.config.as_deref());
    match cli.command {
        Command::Config(command) => return command.run(cli.config.as_deref()),
        Command::Health(args) => return args.run(cli.config.as_deref()).await,
        // They bring servers and configuration of their own.
        #[cfg(feature = "lab")]
        Command::Dev(args) => return args.run(cli.config.as_deref()).await,
        #[cfg(feature = "lab")]
        Command::Replay(options) => {
            telemetry::init_logs(&Config::defaults().log)?;
            return Ok(if replay::run(options).await? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        #[cfg(feature = "lab")]
        Command::PartnerSim(args) => {
            telemetry::init_logs(&Config::defaults().log)?;
            return args.run().await;
        }
        #[cfg(feature = "lab")]
        Command::ProviderSim(args) => {
            telemetry::init_logs(&Config::defaults().log)?;
            return args.run().await;
        }
        #[cfg(feature = "lab")]
        Command::Bench(command) => return command.run().await,
        Command::Completions(args) => return Ok(args.run()),
        Command::Serve(_) => return run_process(cli.command, config()?, "serve").await,
        Command::Work(_) => return run_process(cli.command, config()?, "work").await,
        _ => telemetry::init_logs(&LogConfig { filter: "warn".to_owned(), ..config()?.log })?,
    }
    run_with_servers(cli.command, config()?).await
}

/// Runs a process that stays, with its logs and traces.
async fn run_process(command: Command, config: Config, process: &'static str) -> anyhow::Result<ExitCode> {
    let traces = telemetry::init_process(&config.log, &config.traces, &config.worker.name, process)?;
    config.warn_of_other_variables();
    let ended = run_with_servers(command, config).await;
    if let Some(traces) = traces {
        traces.shut_down().await;
    }
    ended
}

/// Runs a command that reaches Postgres, and most often Redis.
async fn run_with_servers(command: Command, config: Config) -> anyhow::Result<ExitCode> {
    // Processes wait for a Postgres that starts beside them, and `doctor` reports what it meets.
    if !matches!(command, Command::Serve(_) | Command::Work(_) | Command::Doctor(_)) {
        db::check_reachable(&config.database).await?;
    }
    match command {
        Command::Migrate(args) => args.run(config).await,
        Command::Doctor(args) => args.run(config).await,
        Command::Serve(args) => args.run(App::connect_without_redis(config).await?).await,
        Command::Work(args) => args.run(App::connect(config).await?).await,
        Command::Apikey(command) => command.run(config).await,
        Command::Driver(command) => command.run(config).await,
        Command::User(command) => command.run(config).await,
        Command::Area(command) => command.run(App::connect(config).await?).await,
        Command::Order(command) => command.run(App::connect(config).await?).await,
        Command::Alert(command) => command.run(App::connect(config).await?).await,
        Command::Outbox(command) => command.run(App::connect(config).await?).await,
        Command::Queue(command) => command.run(App::connect(config).await?).await,
        Command::Shards(command) => command.run(App::connect(config).await?).await,
        Command::Job(command) => command.run(App::connect(config).await?).await,
        Command::Dead(command) => command.run(App::connect(config).await?).await,
        Command::Partner(command) => command.run(App::connect(config).await?).await,
        Command::Binding(command) => command.run(App::connect(config).await?).await,
        Command::Plan(command) => command.run(App::connect(config).await?).await,
        Command::Server(command) => command.run(App::connect(config).await?).await,
        Command::Worker(command) => command.run(App::connect(config).await?).await,
        Command::Cleanup(command) => command.run(App::connect(config).await?).await,
        Command::Privacy(command) => command.run(App::connect(config).await?).await,
        Command::Check(command) => command.run(App::connect(config).await?).await,
        Command::Reconcile(command) => command.run(App::connect(config).await?).await,
        #[cfg(feature = "lab")]
        Command::Dev(_) | Command::Replay(_) | Command::PartnerSim(_) | Command::ProviderSim(_) | Command::Bench(_) => {
            unreachable!("answered above")
        }
        Command::Config(_) | Command::Health(_) | Command::Completions(_) => unreachable!("answered above"),
    }
}
