//! `[channels.NAME]`: what messages travel by. A secret is given in the file, by the name of an environment variable
//! (`..._env`) or by the path of a file (`..._file`).

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
    /// A line in the log of the worker.
    Log {},
    Webhook(WebhookConfig),
    Slack(SlackConfig),
    Email(EmailConfig),
    Ticket(TicketConfig),
    Voice(VoiceConfig),
}

/// POST of {"id", "type", "data"}; signed as Standard Webhooks if there is a secret.
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
    /// The secret before it, while the receiver changes over: messages are signed with both.
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

/// SMTP.
#[derive(Clone, Default, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
#[garde(allow_unvalidated)]
pub struct EmailConfig {
    pub from: String,
    pub to: Vec<String>,
    pub host: String,
    /// 25, 587 or 465, as `tls` says, if none.
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

/// How the connection is protected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsMode {
    /// Not at all: a relay on this machine.
    None,
    /// After STARTTLS, or not at all (port 587).
    #[default]
    Starttls,
    /// From the first byte (port 465).
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

/// POST that opens a ticket, of the form documented in `channels::ticket`.
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
    /// Where people open a ticket, with `{ticket}` in the place of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket_url: Option<String>,
    /// Where the answer has the ticket's id, as a JSON Pointer; `/id` if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket_id: Option<String>,
}

/// Phone calls by a REST API compatible with Twilio's.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
pub struct VoiceConfig {
    pub url: String,
    /// The account's id.
    pub account: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// The token before it, while the provider changes over: callbacks signed with either are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_previous_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_previous_file: Option<PathBuf>,
    /// Whose number the driver sees, as in E.164.
    pub from: String,
    /// Where the provider reaches our API.
    pub callback_url: String,
    /// What language the text is spoken in.
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
    /// An unsigned webhook.
    pub fn unsigned_webhook(url: impl Into<String>) -> Self {
        Self::Webhook(WebhookConfig { url: Some(url.into()), ..WebhookConfig::default() })
    }

    /// Returns where its messages go, if they go by HTTP.
    pub fn web_address(&self) -> Result<Option<Url>, ConfigError> {
        Ok(Some(match self {
            Self::Log {} | Self::Email(_) => return Ok(None),
            Self::Webhook(c) => web_address(&secret!(c, url, url_env, url_file))?,
            Self::Slack(c) => web_address(&secret!(c, url, url_env, url_file))?,
            Self::Ticket(c) => web_address(&secret!(c, url, url_env, url_file))?,
            Self::Voice(c) => parse_web_address("url", &c.url)?,
        }))
    }

    /// Without its secrets: of a URL, whose path is often one, only where it leads.
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

/// Leaves of an address only what may be seen.
pub(super) fn hide_path(url: &mut Option<String>) {
    if let Some(url) = url {
        *url = without_password(url);
    }
}

impl Config {
    /// The routes of alerts, each with its channels. An empty one of the last two is that of support.
    pub fn alert_routes(&self) -> [(&'static str, &[String]); 4] {
        let routes = &self.notifications;
        [
            ("support", routes.support.as_slice()),
            ("dispatchers", routes.dispatchers.as_slice()),
            ("escalation", routes.escalation.as_slice()),
            ("unresolved", routes.unresolved.as_slice()),
        ]
    }

    /// Returns whether messages over these channels end in the log, so that they reach no person. No channel at all is none
    /// that does.
    pub fn ends_in_log(&self, channels: &[String]) -> bool {
        let is_log = |name: &String| name == LOG || matches!(self.channels.get(name), Some(ChannelConfig::Log {}));
        !channels.is_empty() && channels.iter().all(is_log)
    }
}

impl Validate for ChannelConfig {
    type Context = ();

    // Derived, a path would name the variant: `channels.mail[0].port`.
    fn validate_into(&self, (): &(), parent: &mut dyn FnMut() -> Path, report: &mut Report) {
        if let Self::Email(email) = self {
            email.validate_into(&(), parent, report);
        }
    }
}

/// Without its secrets.
impl fmt::Debug for ChannelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.clone();
        shown.redact_secrets();
        f.write_str(&serde_json::to_string(&shown).unwrap_or_default())
    }
}
