//! The API client of commands. The API runs in this process on the configured servers, or in another process with
//! `--api URL --key-file FILE`.
//!
//! * [`client`]: requests, over HTTP and in this process.
//! * [`cures`]: commands that help after an error.
//! * [`source`]: files to import.
//! * [`fields`]: formatting of answer members for tables.
//! * [`address`]: the address of the API, and whether a key may be sent there.
//! * [`key_file`]: the key, in a file that only its owner can read.
//!
//! With `--api` the command reads no configuration and connects to no other server. The role of the key limits what it
//! may do.

mod address;
mod client;
mod cures;
pub(super) mod fields;
mod key_file;
pub(super) mod lines;
pub(super) mod source;

use std::path::PathBuf;

use anyhow::Context;

pub(super) use self::client::{ApiClient, CallError, ListedItems, PageNames};

/// Environment variable for `--api`.
const API_VARIABLE: &str = "DISPATCHQ_API";
/// Environment variable for `--key-file`.
const KEY_FILE_VARIABLE: &str = "DISPATCHQ_KEY_FILE";

#[derive(Debug, clap::Args)]
pub(super) struct RemoteArgs {
    /// Use this API instead of the servers: https://HOST, or http:// on this machine [env: DISPATCHQ_API]
    #[arg(long, global = true, value_name = "URL", help_heading = "Over HTTP")]
    api: Option<String>,
    /// File with the key; no other user may read it [env: DISPATCHQ_KEY_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Over HTTP")]
    key_file: Option<PathBuf>,
    /// Allow sending the key unencrypted to another machine
    #[arg(long, global = true, help_heading = "Over HTTP")]
    insecure_http: bool,
}

impl RemoteArgs {
    /// Ids of these options.
    pub(super) const IDS: [&'static str; 3] = ["api", "key_file", "insecure_http"];

    /// Returns the first of these options that was given.
    pub(super) fn find_given(&self) -> Option<&'static str> {
        let given = [
            (self.api.is_some(), "--api"),
            (self.key_file.is_some(), "--key-file"),
            (self.insecure_http, "--insecure-http"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }

    /// Returns the client for `--api`. `None` if no API is named and the router runs in this process.
    pub(super) fn find_api(&self) -> anyhow::Result<Option<ApiClient>> {
        let named = self.api.clone().or_else(|| std::env::var(API_VARIABLE).ok().filter(|api| !api.is_empty()));
        let Some(api) = named else { return Ok(None) };
        let base = address::parse_api_url(&api, self.insecure_http)?;
        let file = self
            .key_file
            .clone()
            .or_else(|| std::env::var_os(KEY_FILE_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from));
        let file = file.with_context(|| format!("{api} requires a key: --key-file FILE, or {KEY_FILE_VARIABLE}"))?;
        Ok(Some(ApiClient::over_http(base, &key_file::read_key(&file)?)?))
    }
}
