//! `[channels.NAME]`: channels for messages. A secret is given in the file, as the name of an environment variable
//! (`..._env`) or as the path of a file (`..._file`).

use std::{fmt, path::PathBuf};

use garde::{Path, Report, Validate};
use model::{bounds::number_within, messages::routes::LOG};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::Config;
use foundation::config::{
    address::without_password,
    error::ConfigError,
    secret::{parse_web_address, secret, web_address},
};

pub(super) const HIDDEN: &str = "***";

#[derive(Clone, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ChannelConfig {
    Log {},
    Webhook(WebhookConfig),
    Slack(SlackConfig),
    Email(EmailConfig),
    Ticket(TicketConfig),
    Voice(VoiceConfig),
}

/// POST of {"id", "type", "data"}, signed as Standard Webhooks if a secret is set.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
pub struct WebhookConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// `whsec_` and base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// Previous secret. While the receiver switches, messages are signed with both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_previous_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_previous_file: Option<PathBuf>,
}

/// Slack incoming webhook; its URL is a secret.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
pub struct SlackConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
}

#[derive(Clone, Default, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
#[garde(allow_unvalidated)]
pub struct EmailConfig {
    pub from: String,
    pub to: Vec<String>,
    pub host: String,
    /// Default: 25, 587 or 465, depending on `tls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(custom(number_within(1.0..=65_535.0)))]
    pub port: Option<u16>,
    pub tls: TlsMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsMode {
    /// No encryption: a relay on this machine.
    None,
    /// STARTTLS is required (port 587).
    #[default]
    Starttls,
    /// TLS from the first byte (port 465).
    Implicit,
}

impl TlsMode {
    pub fn default_port(self) -> u16 {
        match self {
            Self::None => 25,
            Self::Starttls => 587,
            Self::Implicit => 465,
        }
    }
}

/// POST that opens a ticket, in the format of `channels::ticket`.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
pub struct TicketConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// Sent as `Authorization: Bearer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// URL of the page that shows a ticket to people. `{ticket}` stands for the id of the ticket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket_url: Option<String>,
    /// JSON Pointer to the ticket id in the answer; `/id` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket_id: Option<String>,
}

/// Phone calls through a REST API compatible with Twilio's.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
pub struct VoiceConfig {
    pub url: String,
    pub account: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Previous token. While the provider switches, callbacks signed with either are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_previous_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_previous_file: Option<PathBuf>,
    /// Caller number shown to the driver, in E.164.
    pub from: String,
    /// Public base URL of our API, for the provider's callbacks.
    pub callback_url: String,
    pub language: String,
}

impl Default for VoiceConfig {
    fn default() -> Self {
        Self {
            url: "https://api.twilio.com".to_owned(),
            account: String::new(),
            token: None,
            token_env: None,
            token_file: None,
            token_previous: None,
            token_previous_env: None,
            token_previous_file: None,
            from: String::new(),
            callback_url: String::new(),
            language: "en-US".to_owned(),
        }
    }
}

impl ChannelConfig {
    /// Creates a webhook without a signature.
    pub fn unsigned_webhook(url: impl Into<String>) -> Self {
        Self::Webhook(WebhookConfig { url: Some(url.into()), ..WebhookConfig::default() })
    }

    /// Returns the destination of its messages, if they are sent over HTTP.
    pub fn web_address(&self) -> Result<Option<Url>, ConfigError> {
        Ok(Some(match self {
            Self::Log {} | Self::Email(_) => return Ok(None),
            Self::Webhook(c) => web_address(&secret!(c, url, url_env, url_file))?,
            Self::Slack(c) => web_address(&secret!(c, url, url_env, url_file))?,
            Self::Ticket(c) => web_address(&secret!(c, url, url_env, url_file))?,
            Self::Voice(c) => parse_web_address("url", &c.url)?,
        }))
    }

    /// Removes the secrets. The path of a URL often is one, so only the host of a URL stays.
    pub(super) fn redact_secrets(&mut self) {
        let hide = |secret: &mut Option<String>| {
            if let Some(secret) = secret {
                HIDDEN.clone_into(secret);
            }
        };
        match self {
            Self::Log {} => {}
            Self::Webhook(c) => {
                hide_path(&mut c.url);
                hide(&mut c.secret);
                hide(&mut c.secret_previous);
            }
            Self::Slack(c) => hide_path(&mut c.url),
            Self::Email(c) => hide(&mut c.password),
            Self::Ticket(c) => {
                hide_path(&mut c.url);
                hide(&mut c.token);
            }
            Self::Voice(c) => {
                hide(&mut c.token);
                hide(&mut c.token_previous);
                for url in [&mut c.url, &mut c.callback_url] {
                    *url = without_password(url);
                }
            }
        }
    }
}

pub(super) fn hide_path(url: &mut Option<String>) {
    if let Some(url) = url {
        *url = without_password(url);
    }
}

impl Config {
    /// Returns the routes of alerts with their channels. If one of the last two is empty, the channels of support are
    /// used.
    pub fn alert_routes(&self) -> [(&'static str, &[String]); 4] {
        let routes = &self.notifications;
        [
            ("support", routes.support.as_slice()),
            ("dispatchers", routes.dispatchers.as_slice()),
            ("escalation", routes.escalation.as_slice()),
            ("unresolved", routes.unresolved.as_slice()),
        ]
    }

    /// Returns whether all of these channels are the log, so that no person gets the messages. Returns false for an
    /// empty list.
    pub fn ends_in_log(&self, channels: &[String]) -> bool {
        let is_log = |name: &String| name == LOG || matches!(self.channels.get(name), Some(ChannelConfig::Log {}));
        !channels.is_empty() && channels.iter().all(is_log)
    }
}

impl Validate for ChannelConfig {
    type Context = ();

    // In a derived implementation the path would contain the variant: `channels.mail[0].port`.
    fn validate_into(&self, (): &(), parent: &mut dyn FnMut() -> Path, report: &mut Report) {
        if let Self::Email(email) = self {
            email.validate_into(&(), parent, report);
        }
    }
}

/// Shows the channel without its secrets.
impl fmt::Debug for ChannelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.clone();
        shown.redact_secrets();
        f.write_str(&serde_json::to_string(&shown).unwrap_or_default())
    }
}
