//! `[channels.NAME]`: what messages travel by. A secret is given in the file, by the name of an environment variable
//! (`..._env`) or by the path of a file (`..._file`).

use std::{collections::BTreeMap, fmt, path::PathBuf};

use anyhow::{Context, ensure};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::secret::{self, Secret, secret};
use crate::notifications::{
    MessageChannel,
    channel::{
        email::{EmailChannel, SmtpServer, TlsMode},
        slack::SlackChannel,
        ticket::TicketChannel,
        voice::{VoiceChannel, is_phone},
        webhook::WebhookChannel,
    },
};

const HIDDEN: &str = "***";

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
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_debug_implementations, reason = "it holds secrets")]
pub struct EmailConfig {
    pub from: String,
    pub to: Vec<String>,
    pub host: String,
    /// 25, 587 or 465, as `tls` says, if none.
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// POST that opens a ticket, of the form documented in `notifications::channel::ticket`.
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

/// Returns the URL of a channel. Its text is in no error: it may be a secret.
fn web_address(url: &Secret<'_>) -> anyhow::Result<Url> {
    let text = url.read()?.context("url is missing")?;
    let url: Url = text.parse().context("url is not valid")?;
    ensure!(matches!(url.scheme(), "http" | "https"), "url must be http or https");
    Ok(url)
}

impl ChannelConfig {
    /// An unsigned webhook.
    pub fn unsigned_webhook(url: impl Into<String>) -> Self {
        Self::Webhook(WebhookConfig { url: Some(url.into()), ..WebhookConfig::default() })
    }

    /// The channel, its secrets read.
    fn build_channel(&self, name: &str) -> anyhow::Result<MessageChannel> {
        Ok(match self {
            Self::Log {} => MessageChannel::Log,
            Self::Webhook(c) => {
                let secret = secret!(c, secret, secret_env, secret_file).read()?;
                let previous = secret!(c, secret_previous, secret_previous_env, secret_previous_file).read()?;
                ensure!(secret.is_some() || previous.is_none(), "secret_previous goes with a secret");
                let secrets = secret.into_iter().chain(previous).collect();
                MessageChannel::Webhook(WebhookChannel::new(
                    web_address(&secret!(c, url, url_env, url_file))?,
                    secrets,
                )?)
            }
            Self::Slack(c) => {
                MessageChannel::Slack(SlackChannel::new(web_address(&secret!(c, url, url_env, url_file))?))
            }
            Self::Email(c) => {
                ensure!(!c.host.is_empty(), "host is missing");
                let password = secret!(c, password, password_env, password_file).read()?;
                ensure!(c.username.is_some() == password.is_some(), "username and password go together");
                let server = SmtpServer {
                    host: c.host.clone(),
                    port: c.port,
                    tls: c.tls,
                    login: c.username.clone().zip(password),
                };
                MessageChannel::Email(EmailChannel::new(server, &c.from, &c.to)?)
            }
            Self::Ticket(c) => MessageChannel::Ticket(TicketChannel::new(
                web_address(&secret!(c, url, url_env, url_file))?,
                secret!(c, token, token_env, token_file).read()?,
            )),
            Self::Voice(c) => {
                let url = |name: &str, text: &str| -> anyhow::Result<Url> {
                    let url: Url = text.parse().with_context(|| format!("{name} is not a valid URL"))?;
                    ensure!(matches!(url.scheme(), "http" | "https"), "{name} must be http or https");
                    Ok(url)
                };
                let token = secret!(c, token, token_env, token_file).read()?.context("token is missing")?;
                secret::check_signing_token("token", &token)?;
                ensure!(is_phone(&c.from), "from must be a phone number such as +15550100000");
                let (base, callback) = (url("url", &c.url)?, url("callback_url", &c.callback_url)?);
                let previous = secret!(c, token_previous, token_previous_env, token_previous_file).read()?;
                if let Some(previous) = &previous {
                    secret::check_signing_token("token_previous", previous)?;
                }
                let voice = VoiceChannel::new(name, &base, &c.account, token, &c.from, callback, &c.language)?;
                MessageChannel::Voice(voice.with_previous_token(previous))
            }
        })
    }

    /// Returns where its messages go, if they go by HTTP.
    pub fn web_address(&self) -> anyhow::Result<Option<Url>> {
        Ok(Some(match self {
            Self::Log {} | Self::Email(_) => return Ok(None),
            Self::Webhook(c) => web_address(&secret!(c, url, url_env, url_file))?,
            Self::Slack(c) => web_address(&secret!(c, url, url_env, url_file))?,
            Self::Ticket(c) => web_address(&secret!(c, url, url_env, url_file))?,
            Self::Voice(c) => c.url.parse()?,
        }))
    }

    /// Without its secrets: of a URL, whose path is often one, only where it leads.
    pub(super) fn redact_secrets(&mut self) {
        let origin = |url: &mut Option<String>| {
            if let Some(url) = url {
                *url = url
                    .parse::<Url>()
                    .map_or_else(|_| HIDDEN.to_owned(), |u| format!("{}/{HIDDEN}", u.origin().ascii_serialization()));
            }
        };
        let hide = |secret: &mut Option<String>| {
            if let Some(secret) = secret {
                HIDDEN.clone_into(secret);
            }
        };
        match self {
            Self::Log {} => {}
            Self::Webhook(c) => {
                origin(&mut c.url);
                hide(&mut c.secret);
                hide(&mut c.secret_previous);
            }
            Self::Slack(c) => origin(&mut c.url),
            Self::Email(c) => hide(&mut c.password),
            Self::Ticket(c) => {
                origin(&mut c.url);
                hide(&mut c.token);
            }
            Self::Voice(c) => {
                hide(&mut c.token);
                hide(&mut c.token_previous);
                for url in [&mut c.url, &mut c.callback_url] {
                    *url = super::without_password(url);
                }
            }
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

/// All channels by name. Their names become part of job ids.
pub(super) fn build_channels(
    configured: &BTreeMap<String, ChannelConfig>,
) -> anyhow::Result<BTreeMap<String, MessageChannel>> {
    let mut channels = BTreeMap::new();
    for (name, config) in configured {
        let fits =
            (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        ensure!(fits, "channels.{name}: names are 1 to 64 letters, digits, '_' or '-'");
        channels.insert(name.clone(), config.build_channel(name).with_context(|| format!("channels.{name}"))?);
    }
    Ok(channels)
}
