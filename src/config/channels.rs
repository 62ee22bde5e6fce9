//! `[channels.NAME]`: what messages travel by. A secret is given in the file, by the name of an environment variable
//! (`..._env`) or by the path of a file (`..._file`).

use std::{collections::BTreeMap, env, fmt, fs, path::PathBuf};

use anyhow::{Context, bail, ensure};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::notifications::{
    Channel,
    channel::{
        email::{Email, Server, TlsMode},
        slack::Slack,
        ticket::Ticket,
        voice::{Voice, is_phone},
        webhook::Webhook,
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

/// A setting that may be a secret: given as it is, by an environment variable, or by a file.
struct Setting<'a> {
    name: &'static str,
    value: &'a Option<String>,
    env: &'a Option<String>,
    file: &'a Option<PathBuf>,
}

impl Setting<'_> {
    fn read(&self) -> anyhow::Result<Option<String>> {
        let name = self.name;
        Ok(match (self.value, self.env, self.file) {
            (None, None, None) => None,
            (Some(value), None, None) => Some(value.clone()),
            (None, Some(variable), None) => {
                Some(env::var(variable).with_context(|| format!("{name}_env: {variable} is not in the environment"))?)
            }
            (None, None, Some(path)) => {
                let text =
                    fs::read_to_string(path).with_context(|| format!("{name}_file: cannot read {}", path.display()))?;
                Some(text.trim_end().to_owned())
            }
            _ => bail!("give only one of {name}, {name}_env and {name}_file"),
        })
    }

    fn url(&self) -> anyhow::Result<Url> {
        let text = self.read()?.context("url is missing")?;
        // The text is not shown: it may be a secret.
        let url: Url = text.parse().context("url is not valid")?;
        ensure!(matches!(url.scheme(), "http" | "https"), "url must be http or https");
        Ok(url)
    }
}

macro_rules! setting {
    ($config:expr, $name:ident, $env:ident, $file:ident) => {
        Setting { name: stringify!($name), value: &$config.$name, env: &$config.$env, file: &$config.$file }
    };
}

impl ChannelConfig {
    /// An unsigned webhook.
    pub fn webhook(url: impl Into<String>) -> Self {
        Self::Webhook(WebhookConfig { url: Some(url.into()), ..WebhookConfig::default() })
    }

    /// The channel, its secrets read.
    fn build(&self, name: &str) -> anyhow::Result<Channel> {
        Ok(match self {
            Self::Log {} => Channel::Log,
            Self::Webhook(c) => {
                let secret = setting!(c, secret, secret_env, secret_file).read()?;
                let previous = setting!(c, secret_previous, secret_previous_env, secret_previous_file).read()?;
                ensure!(secret.is_some() || previous.is_none(), "secret_previous goes with a secret");
                let secrets = secret.into_iter().chain(previous).collect();
                Channel::Webhook(Webhook::new(setting!(c, url, url_env, url_file).url()?, secrets)?)
            }
            Self::Slack(c) => Channel::Slack(Slack::new(setting!(c, url, url_env, url_file).url()?)),
            Self::Email(c) => {
                ensure!(!c.host.is_empty(), "host is missing");
                let password = setting!(c, password, password_env, password_file).read()?;
                ensure!(c.username.is_some() == password.is_some(), "username and password go together");
                let server =
                    Server { host: c.host.clone(), port: c.port, tls: c.tls, login: c.username.clone().zip(password) };
                Channel::Email(Email::new(server, &c.from, &c.to)?)
            }
            Self::Ticket(c) => Channel::Ticket(Ticket::new(
                setting!(c, url, url_env, url_file).url()?,
                setting!(c, token, token_env, token_file).read()?,
            )),
            Self::Voice(c) => {
                let url = |name: &str, text: &str| -> anyhow::Result<Url> {
                    let url: Url = text.parse().with_context(|| format!("{name} is not a valid URL"))?;
                    ensure!(matches!(url.scheme(), "http" | "https"), "{name} must be http or https");
                    Ok(url)
                };
                let token = setting!(c, token, token_env, token_file).read()?.context("token is missing")?;
                ensure!(is_phone(&c.from), "from must be a phone number such as +15550100000");
                let (base, callback) = (url("url", &c.url)?, url("callback_url", &c.callback_url)?);
                let previous = setting!(c, token_previous, token_previous_env, token_previous_file).read()?;
                let voice = Voice::new(name, &base, &c.account, token, &c.from, callback, &c.language)?;
                Channel::Voice(voice.with_previous_token(previous))
            }
        })
    }

    /// Without its secrets: of a URL, whose path is often one, only where it leads.
    pub(super) fn redact(&mut self) {
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
            }
        }
    }
}

/// Without its secrets.
impl fmt::Debug for ChannelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.clone();
        shown.redact();
        f.write_str(&serde_json::to_string(&shown).unwrap_or_default())
    }
}

/// All channels by name. Their names become part of job ids.
pub(super) fn build(configured: &BTreeMap<String, ChannelConfig>) -> anyhow::Result<BTreeMap<String, Channel>> {
    let mut channels = BTreeMap::new();
    for (name, config) in configured {
        let fits =
            (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        ensure!(fits, "channels.{name}: names are 1 to 64 letters, digits, '_' or '-'");
        channels.insert(name.clone(), config.build(name).with_context(|| format!("channels.{name}"))?);
    }
    Ok(channels)
}
