//! Channels built from the configuration, with their secrets.

use std::collections::BTreeMap;

use model::{ids::is_phone, texts::TextCatalog};

use super::{
    MessageChannel, MessageChannels,
    email::{EmailChannel, SmtpServer},
    producer::ProducerChannel,
    slack::SlackChannel,
    ticket::TicketChannel,
    ticket_address::TicketAddress,
    voice::VoiceChannel,
    webhook::WebhookChannel,
};
use foundation::{
    config::{
        error::{ConfigError, ensure_fits},
        secret::{
            address_of, check_signing_token, ensure_encrypted, parse_web_address, secret, stays_here, web_address,
        },
    },
    outbound,
};
use settings::{ChannelConfig, Config, ProducerConfig};

/// Builds all configured channels, or returns the problems of all invalid ones.
pub fn build_channels(config: &Config) -> Result<MessageChannels, ConfigError> {
    let (mut by_name, mut problems) = (BTreeMap::new(), Vec::new());
    for (name, configured) in &config.channels {
        match build_channel(name, configured, &config.texts) {
            Ok(channel) => drop(by_name.insert(name.clone(), channel)),
            Err(error) => problems.push(error.within(&format!("channels.{name}"))),
        }
    }
    for (name, configured) in config.producers.iter().filter(|(_, producer)| producer.has_webhook()) {
        match build_producer_channel(configured) {
            Ok(channel) => drop(by_name.insert(Config::producer_channel(name), channel)),
            Err(error) => problems.push(error.within(&format!("producers.{name}"))),
        }
    }
    ConfigError::refuse_problems(problems)?;
    let at_once = config.worker.concurrency.get(jobs::queues::NOTIFY).copied().unwrap_or(1);
    Ok(MessageChannels::new(by_name, at_once, config.notifications.clone())?)
}

/// Builds a channel and reads its secrets.
fn build_channel(name: &str, config: &ChannelConfig, texts: &TextCatalog) -> Result<MessageChannel, ConfigError> {
    Ok(match config {
        ChannelConfig::Log {} => MessageChannel::Log,
        ChannelConfig::Webhook(c) => {
            let secret = secret!(c, secret, secret_env, secret_file).read()?;
            let previous = secret!(c, secret_previous, secret_previous_env, secret_previous_file).read()?;
            ensure_fits(secret.is_some() || previous.is_none(), "secret_previous needs a secret")?;
            let secrets = secret.into_iter().chain(previous).collect();
            MessageChannel::Webhook(WebhookChannel::new(web_address(&secret!(c, url, url_env, url_file))?, secrets)?)
        }
        ChannelConfig::Slack(c) => {
            MessageChannel::Slack(SlackChannel::new(web_address(&secret!(c, url, url_env, url_file))?))
        }
        ChannelConfig::Email(c) => {
            ensure_fits(!c.host.is_empty(), "host is missing")?;
            let password = secret!(c, password, password_env, password_file).read()?;
            ensure_fits(c.username.is_some() == password.is_some(), "username and password go together")?;
            let server =
                SmtpServer { host: c.host.clone(), port: c.port, tls: c.tls, login: c.username.clone().zip(password) };
            MessageChannel::Email(EmailChannel::new(server, &c.from, &c.to)?)
        }
        ChannelConfig::Ticket(c) => {
            let url = web_address(&secret!(c, url, url_env, url_file))?;
            let address = c.ticket_url.as_deref().map(TicketAddress::parse).transpose()?;
            let channel = TicketChannel::new(url, secret!(c, token, token_env, token_file).read()?);
            let channel = match &c.ticket_id {
                Some(pointer) => channel.with_id_pointer(pointer)?,
                None => channel,
            };
            MessageChannel::Ticket(channel.with_address(address))
        }
        ChannelConfig::Voice(c) => {
            let token =
                secret!(c, token, token_env, token_file).read()?.ok_or_else(|| ConfigError::new("token is missing"))?;
            check_signing_token("token", &token)?;
            ensure_fits(is_phone(&c.from), "from must be a phone number such as +15550100000")?;
            let (base, callback) =
                (parse_web_address("url", &c.url)?, parse_web_address("callback_url", &c.callback_url)?);
            let previous = secret!(c, token_previous, token_previous_env, token_previous_file).read()?;
            if let Some(previous) = &previous {
                check_signing_token("token_previous", previous)?;
            }
            let voice = VoiceChannel::new(name, &base, &c.account, token, &c.from, callback, &c.language)?;
            MessageChannel::Voice(voice.with_previous_token(previous).with_texts(texts.clone()))
        }
    })
}

/// Builds the channel of a producer. Its events must be signed, and must be encrypted outside this network.
fn build_producer_channel(config: &ProducerConfig) -> Result<MessageChannel, ConfigError> {
    let url = web_address(&secret!(config, url, url_env, url_file))?;
    ensure_encrypted("url", &url)?;
    let is_public = !stays_here(&url) && address_of(&url).is_none_or(outbound::is_public);
    ensure_fits(
        config.allow_private || is_public,
        "url leads to a private address; set allow_private = true if it should",
    )?;
    let secret = secret!(config, secret, secret_env, secret_file).read()?;
    let secret = secret.ok_or_else(|| ConfigError::new("secret is missing; events must be signed"))?;
    let previous = secret!(config, secret_previous, secret_previous_env, secret_previous_file).read()?;
    let webhook = WebhookChannel::new(url, std::iter::once(secret).chain(previous).collect())?;
    Ok(MessageChannel::Producer(ProducerChannel::new(webhook, config.allow_private)))
}
