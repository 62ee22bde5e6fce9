//! Commands over the HTTP API, with a key instead of the passwords of the servers: `--api URL --key-file FILE`.
//!
//! * [`address`]: where the API is, and whether a key may be sent there.
//! * [`key_file`]: the key, from a file that only its owner reads.
//! * [`client`]: the requests.
//! * [`fields`]: members of answers, as tables print them.
//!
//! No configuration is read, and no other server is asked. What becomes of a command is what the API lets the key's role do.

mod address;
mod client;
pub(super) mod fields;
mod key_file;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, anyhow};

pub(super) use self::client::{ApiClient, CallError, ListedItems, PageNames};
use super::Command;

/// What names the API, beside `--api`.
const API_VARIABLE: &str = "DISPATCHQ_API";
/// What names the file of its key, beside `--key-file`.
const KEY_FILE_VARIABLE: &str = "DISPATCHQ_KEY_FILE";

#[derive(Debug, clap::Args)]
pub(super) struct RemoteArgs {
    /// Ask this API instead of the servers: https://HOST, or http:// on this machine [env: DISPATCHQ_API]
    #[arg(long, global = true, value_name = "URL", help_heading = "Over HTTP")]
    api: Option<String>,
    /// The file with the key for it; no other user may read the file [env: DISPATCHQ_KEY_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Over HTTP")]
    key_file: Option<PathBuf>,
    /// Send the key unencrypted to another machine
    #[arg(long, global = true, help_heading = "Over HTTP")]
    insecure_http: bool,
}

impl RemoteArgs {
    /// Returns the API that `command` is for; `None`: the command is for the servers of the configuration. Processes that serve
    /// or measure run here, whatever the environment names.
    pub(super) fn find_api(&self, command: &Command) -> anyhow::Result<Option<ApiClient>> {
        let named = match &self.api {
            Some(api) => Some(api.clone()),
            None if command.is_local() => None,
            None => std::env::var(API_VARIABLE).ok().filter(|api| !api.is_empty()),
        };
        let Some(api) = named else { return Ok(None) };
        let base = address::parse_api_url(&api, self.insecure_http)?;
        let file = self
            .key_file
            .clone()
            .or_else(|| std::env::var_os(KEY_FILE_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from));
        let file = file.with_context(|| format!("{api} wants a key: --key-file FILE, or {KEY_FILE_VARIABLE}"))?;
        Ok(Some(ApiClient::new(base, &key_file::read_key(&file)?)?))
    }
}

/// Runs one command by what the API answers.
pub(super) async fn run_command(command: Command, api: &ApiClient) -> anyhow::Result<ExitCode> {
    match command {
        Command::Order(command) => command.run_over_api(api).await,
        Command::Alert(command) => command.run_over_api(api).await,
        Command::Dead(command) => command.run_over_api(api).await,
        Command::Queue(command) => command.run_over_api(api).await,
        Command::Outbox(command) => command.run_over_api(api).await,
        Command::Area(command) => command.run_over_api(api).await,
        Command::Driver(command) => command.run_over_api(api).await,
        Command::Apikey(command) => command.run_over_api(api).await,
        Command::User(command) => command.run_over_api(api).await,
        Command::Plan(command) => command.run_over_api(api).await,
        Command::Binding(command) => command.run_over_api(api).await,
        Command::Job(command) => command.run_over_api(api).await,
        Command::Partner(command) => command.run_over_api(api).await,
        Command::Worker(command) => command.run_over_api(api).await,
        Command::Server(command) => command.run_over_api(api).await,
        _ => Err(needs_database("this command")),
    }
}

/// The refusal of a command that the API does not serve.
pub(super) fn needs_database(what: &str) -> anyhow::Error {
    anyhow!(
        "{what} needs the database, not the API: leave --api out, unset {API_VARIABLE}, and run it where the configuration is. \
         Over the API work: order, alert, dead, queue, job, worker, outbox, area, driver, user, apikey, plan, binding, \
         partner, server"
    )
}

/// The reason that the API asks for with every change by staff.
pub(super) fn given_reason(reason: Option<String>) -> anyhow::Result<String> {
    reason.context("over the API --reason must say why: it is kept with who did it")
}
