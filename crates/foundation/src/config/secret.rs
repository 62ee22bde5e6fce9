//! Secrets. Each is given directly, by the name of an environment variable (`..._env`), or by the path of a file
//! (`..._file`). Errors never contain any part of a secret.

use std::{
    env, fmt, fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::Url;

use super::error::{ConfigError, ensure_fits};

/// Minimum length of a signing key in bytes, as Standard Webhooks requires. A shorter key could be guessed.
const MIN_KEY_BYTES: usize = 24;

/// Source of a secret.
pub struct Secret<'a> {
    pub name: &'static str,
    pub value: Option<&'a str>,
    pub env: Option<&'a str>,
    pub file: Option<&'a Path>,
}

/// Returns the `Secret` `$name` of a table with the `Option` fields `$name`, `$env` and `$file`.
#[macro_export]
macro_rules! secret {
    ($config:expr, $name:ident, $env:ident, $file:ident) => {
        $crate::config::secret::Secret {
            name: stringify!($name),
            value: $config.$name.as_deref(),
            env: $config.$env.as_deref(),
            file: $config.$file.as_deref(),
        }
    };
}
pub use secret;

/// Omits the value.
impl fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Secret<'_> {
    /// Returns the secret, if one is configured. An empty variable or file is an error, because the operator meant to
    /// set it.
    pub fn read(&self) -> Result<Option<String>, ConfigError> {
        let name = self.name;
        let (text, source) = match (self.value, self.env, self.file) {
            (None, None, None) => return Ok(None),
            (Some(value), None, None) => (value.to_owned(), name.to_owned()),
            (None, Some(variable), None) => {
                let text = env::var(variable)
                    .map_err(|_| ConfigError::new(format!("{name}_env: {variable} is not in the environment")))?;
                (text.trim_end().to_owned(), format!("{name}_env: the variable {variable}"))
            }
            (None, None, Some(path)) => {
                let text = fs::read_to_string(path).map_err(|error| {
                    ConfigError::new(format!("{name}_file: cannot read {}: {error}", path.display()))
                })?;
                (text.trim_end().to_owned(), format!("{name}_file: {}", path.display()))
            }
            _ => return Err(ConfigError::new(format!("give only one of {name}, {name}_env and {name}_file"))),
        };
        ensure_fits(!text.is_empty(), format_args!("{source} is empty"))?;
        Ok(Some(text))
    }
}

/// Replaces `value` with the secret from `env` or `file`, if one of them is given.
pub fn replace_secret(
    name: &'static str,
    value: &mut String,
    env: &mut Option<String>,
    file: &mut Option<PathBuf>,
) -> Result<(), ConfigError> {
    let given = Secret { name, value: None, env: env.as_deref(), file: file.as_deref() }.read()?;
    if let Some(secret) = given {
        *value = secret;
    }
    (*env, *file) = (None, None);
    Ok(())
}

/// Reads and parses the URL of a channel.
pub fn web_address(url: &Secret<'_>) -> Result<Url, ConfigError> {
    parse_web_address(url.name, &url.read()?.ok_or_else(|| ConfigError::new("url is missing"))?)
}

/// Parses the URL of an HTTP endpoint. The error does not contain the URL, because it may be a secret.
pub fn parse_web_address(name: &str, text: &str) -> Result<Url, ConfigError> {
    let url: Url = text.parse().map_err(|error| ConfigError::new(format!("{name} is not valid: {error}")))?;
    ensure_fits(matches!(url.scheme(), "http" | "https"), format_args!("{name} must be http or https"))?;
    Ok(url)
}

/// Refuses a URL whose requests would cross a network unencrypted.
pub fn ensure_encrypted(name: &str, url: &Url) -> Result<(), ConfigError> {
    let problem = format_args!("{name} must be https: only a receiver on this machine may have http");
    ensure_fits(url.scheme() == "https" || stays_here(url), problem)
}

/// Returns whether requests to this URL stay on this machine.
pub fn stays_here(url: &Url) -> bool {
    host_of(url) == "localhost" || address_of(url).is_some_and(|address| address.is_loopback())
}

/// Returns the IP address if the URL names one instead of a host.
pub fn address_of(url: &Url) -> Option<IpAddr> {
    host_of(url).parse().ok()
}

/// Returns the host, with IPv6 addresses stripped of their brackets.
fn host_of(url: &Url) -> &str {
    url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

/// Decodes the key of a Standard Webhooks secret: base64, optionally prefixed with `whsec_`.
pub fn signing_key(name: &str, secret: &str) -> Result<Vec<u8>, ConfigError> {
    let text = secret.trim();
    let key = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).ok();
    key.filter(|key| key.len() >= MIN_KEY_BYTES).ok_or_else(|| {
        let form = format!("base64 of at least {MIN_KEY_BYTES} bytes, as in whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        ConfigError::new(format!("{name} must be {form}"))
    })
}

/// Refuses a signing token that is short enough to guess. The token's raw bytes are the key.
pub fn check_signing_token(name: &str, token: &str) -> Result<(), ConfigError> {
    let problem = format_args!("{name} must have at least {MIN_KEY_BYTES} bytes: callbacks are signed with it");
    ensure_fits(token.len() >= MIN_KEY_BYTES, problem)
}
