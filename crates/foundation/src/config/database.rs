//! `[database]`: the Postgres connection.

use std::{path::PathBuf, time::Duration};

use garde::Validate;
use model::{
    bounds::{HOUR, MS, number_within, time_within},
    duration,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;

use super::{address::parse_database_url, secret::replace_secret};
use crate::config::error::ConfigError;

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct DatabaseConfig {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// Login of the role that owns the history. If empty, workers neither add nor drop history days.
    pub maintenance_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_url_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_url_file: Option<PathBuf>,
    /// Whether `url` points to a pooler in transaction mode.
    pub pooler: bool,
    /// Whether that pooler keeps named statements of clients, as PgBouncer does from version 1.21 on with
    /// `max_prepared_statements`.
    #[garde(custom(need_pooler(self.pooler)))]
    pub pooler_statements: bool,
    #[garde(custom(number_within(2.0..=10_000.0)))]
    pub max_connections: u32,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=HOUR)))]
    pub statement_timeout: Duration,
}

/// Requires `pooler = true`.
fn need_pooler(is_pooled: bool) -> impl FnOnce(&bool, &()) -> garde::Result {
    move |keeps_statements, ()| {
        let message = "needs `database.pooler = true`: without a pooler, statements always have names";
        if *keeps_statements && !is_pooled { Err(garde::Error::new(message)) } else { Ok(()) }
    }
}

impl DatabaseConfig {
    pub fn read_secrets(&mut self) -> Result<(), ConfigError> {
        replace_secret("url", &mut self.url, &mut self.url_env, &mut self.url_file)?;
        let (env, file) = (&mut self.maintenance_url_env, &mut self.maintenance_url_file);
        replace_secret("maintenance_url", &mut self.maintenance_url, env, file)
    }

    pub fn connect_options(&self) -> Result<PgConnectOptions, ConfigError> {
        parse_database_url(&self.url).map_err(|error| error.within("database.url"))
    }

    /// Returns the connection options of the history's owner, or those of `url` if there is no separate login.
    pub fn maintenance_options(&self) -> Result<PgConnectOptions, ConfigError> {
        if self.maintenance_url.is_empty() {
            return self.connect_options();
        }
        parse_database_url(&self.maintenance_url).map_err(|error| error.within("database.maintenance_url"))
    }

    pub fn check_addresses(&self) -> Result<(), ConfigError> {
        let own = self.connect_options().err();
        let maintenance = (!self.maintenance_url.is_empty()).then(|| self.maintenance_options().err()).flatten();
        ConfigError::refuse_problems(own.into_iter().chain(maintenance).collect())
    }
}
