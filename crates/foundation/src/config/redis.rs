//! `[redis]`: the Redis connection of the queue.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::secret::replace_secret;
use crate::config::error::ConfigError;

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RedisServerConfig {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// File of the root certificate. If empty, the public certificate authorities are trusted.
    pub root_certificate: PathBuf,
}

impl RedisServerConfig {
    pub fn read_secrets(&mut self) -> Result<(), ConfigError> {
        replace_secret("url", &mut self.url, &mut self.url_env, &mut self.url_file)
    }

    /// Returns the queue's connection settings. Reads the certificate; opens no connection.
    pub fn to_store_config(&self) -> Result<queue::RedisConfig, ConfigError> {
        let mut config = queue::RedisConfig::new(&self.url);
        let file = &self.root_certificate;
        if !file.as_os_str().is_empty() {
            let pem = std::fs::read(file).map_err(|error| {
                ConfigError::new(format!("cannot read the file {}: {error}", file.display()))
                    .within("redis.root_certificate")
            })?;
            config.root_certificate = Some(pem);
        }
        config.check()?;
        Ok(config)
    }
}
