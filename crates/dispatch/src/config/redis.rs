//! `[redis]`: where the timers are.

use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RedisServerConfig {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// Empty: the public authorities are trusted.
    pub root_certificate: PathBuf,
}

impl RedisServerConfig {
    /// What the queue connects with. Reads the certificate; opens no connection.
    pub fn to_store_config(&self) -> anyhow::Result<workers::RedisConfig> {
        let mut config = workers::RedisConfig::new(&self.url);
        let file = &self.root_certificate;
        if !file.as_os_str().is_empty() {
            let pem = std::fs::read(file)
                .with_context(|| format!("redis.root_certificate: cannot read the file {}", file.display()))?;
            config.root_certificate = Some(pem);
        }
        config.check()?;
        Ok(config)
    }
}
