//! Channels as they are configured, their secrets read.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use reqwest::Url;

use super::{
    MessageChannel, MessageChannels,
    email::{EmailChannel, SmtpServer},
    slack::SlackChannel,
    ticket::TicketChannel,
    voice::{VoiceChannel, is_phone},
    webhook::WebhookChannel,
};
use crate::config::{
    ChannelConfig, Config,
    secret::{check_signing_token, secret, web_address},
};

/// Returns the channels messages travel by. Their names become part of job ids.
pub fn build_channels(config: &Config) -> anyhow::Result<MessageChannels> {
    let mut by_name = BTreeMap::new();
    for (name, configured) in &config.channels {
        let fits =
            (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        ensure!(fits, "channels.{name}: names are 1 to 64 letters, digits, '_' or '-'");
        by_name.insert(name.clone(), build_channel(name, configured).with_context(|| format!("channels.{name}"))?);
    }
    let at_once = config.worker.concurrency.get(jobs::queues::NOTIFY).copied().unwrap_or(1);
    Ok(MessageChannels::new(by_name, at_once, config.notifications.escalate.after)?)
}

/// Returns the channel, its secrets read.
fn build_channel(name: &str, config: &ChannelConfig) -> anyhow::Result<MessageChannel> {
    Ok(match config {
        ChannelConfig::Log {} => MessageChannel::Log,
        ChannelConfig::Webhook(c) => {
            let secret = secret!(c, secret, secret_env, secret_file).read()?;
            let previous = secret!(c, secret_previous, secret_previous_env, secret_previous_file).read()?;
            ensure!(secret.is_some() || previous.is_none(), "secret_previous goes with a secret");
            let secrets = secret.into_iter().chain(previous).collect();
            MessageChannel::Webhook(WebhookChannel::new(web_address(&secret!(c, url, url_env, url_file))?, secrets)?)
        }
        ChannelConfig::Slack(c) => {
            MessageChannel::Slack(SlackChannel::new(web_address(&secret!(c, url, url_env, url_file))?))
        }
        ChannelConfig::Email(c) => {
            ensure!(!c.host.is_empty(), "host is missing");
            let password = secret!(c, password, password_env, password_file).read()?;
            ensure!(c.username.is_some() == password.is_some(), "username and password go together");
            let server =
                SmtpServer { host: c.host.clone(), port: c.port, tls: c.tls, login: c.username.clone().zip(password) };
            MessageChannel::Email(EmailChannel::new(server, &c.from, &c.to)?)
        }
        ChannelConfig::Ticket(c) => MessageChannel::Ticket(TicketChannel::new(
            web_address(&secret!(c, url, url_env, url_file))?,
            secret!(c, token, token_env, token_file).read()?,
        )),
        ChannelConfig::Voice(c) => {
            let url = |name: &str, text: &str| -> anyhow::Result<Url> {
                let url: Url = text.parse().with_context(|| format!("{name} is not a valid URL"))?;
                ensure!(matches!(url.scheme(), "http" | "https"), "{name} must be http or https");
                Ok(url)
            };
            let token = secret!(c, token, token_env, token_file).read()?.context("token is missing")?;
            check_signing_token("token", &token)?;
            ensure!(is_phone(&c.from), "from must be a phone number such as +15550100000");
            let (base, callback) = (url("url", &c.url)?, url("callback_url", &c.callback_url)?);
            let previous = secret!(c, token_previous, token_previous_env, token_previous_file).read()?;
            if let Some(previous) = &previous {
                check_signing_token("token_previous", previous)?;
            }
            let voice = VoiceChannel::new(name, &base, &c.account, token, &c.from, callback, &c.language)?;
            MessageChannel::Voice(voice.with_previous_token(previous))
        }
    })
}
