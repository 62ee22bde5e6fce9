//! The API, as commands use it: in this process on the configured servers, or in another process with `--api URL --key-file FILE`.
//!
//! * [`client`]: the requests, over HTTP and in this process.
//! * [`cures`]: commands that help after an error.
//! * [`source`]: files to import.
//! * [`fields`]: members of answers, as tables print them.
//! * [`address`]: where the API is, and whether a key may be sent there.
//! * [`key_file`]: the key, from a file that only its owner reads.
//!
//! With `--api` no configuration is read, and no other server is asked. What a command may do then depends on the role of the key.

mod address;
mod client;
mod cures;
pub(super) mod fields;
mod key_file;
pub(super) mod lines;
pub(super) mod source;

use std::path::PathBuf;

use anyhow::{Context, ensure};

pub(super) use self::client::{ApiClient, CallError, ListedItems, PageNames};

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
    /// Fails if an API was named: the command works on this machine.
    pub(super) fn refuse_api(&self) -> anyhow::Result<()> {
        ensure!(self.api.is_none(), "this command has no --api: it works on this machine and its configuration");
        Ok(())
    }

    /// Returns the API that was named; `None`: the one in this process is asked.
    pub(super) fn find_api(&self) -> anyhow::Result<Option<ApiClient>> {
        let named = self.api.clone().or_else(|| std::env::var(API_VARIABLE).ok().filter(|api| !api.is_empty()));
        let Some(api) = named else { return Ok(None) };
        let base = address::parse_api_url(&api, self.insecure_http)?;
        let file = self
            .key_file
            .clone()
            .or_else(|| std::env::var_os(KEY_FILE_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from));
        let file = file.with_context(|| format!("{api} wants a key: --key-file FILE, or {KEY_FILE_VARIABLE}"))?;
        Ok(Some(ApiClient::over_http(base, &key_file::read_key(&file)?)?))
    }
}
