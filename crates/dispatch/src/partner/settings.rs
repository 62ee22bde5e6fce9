//! What is configured for a partner, and what operators set at run time.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use model::{actor::Actor, duration, fleet::policy::DispatchPolicy};
use serde::{Deserialize, Serialize};
use standardwebhooks::Webhook;
use workers::store::BreakerPolicy;

use super::{client::PartnerClient, decide::PartnerRules, throttle::PartnerThrottle};
use crate::{
    app::App,
    config::secret::{Secret, signing_key},
    db::{Connection, Pool},
};

pub use model::partner::PollConfig;

/// A secret of a partner. An empty text is none.
macro_rules! secret_of {
    ($config:expr, $name:ident, $env:ident, $file:ident) => {
        Secret {
            name: stringify!($name),
            value: Some($config.$name.as_str()).filter(|text| !text.is_empty()),
            env: $config.$env.as_deref(),
            file: $config.$file.as_deref(),
        }
    };
}

/// One `[partners.NAME]` of the configuration.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PartnerConfig {
    /// Where the partner answers, with the path its API begins with.
    pub url: String,
    /// Sent as a bearer token.
    #[serde(default)]
    pub api_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// What the partner signs its callbacks with: `whsec_` and base64. Empty: no callback is accepted.
    #[serde(default)]
    pub callback_secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_file: Option<PathBuf>,
    /// The secret before it, still accepted while the partner changes over.
    #[serde(default)]
    pub callback_secret_previous: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_previous_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_previous_file: Option<PathBuf>,
    /// A call that takes longer failed, and whether it had an effect is unknown.
    #[serde(default = "default_timeout", with = "duration")]
    pub timeout: Duration,
    /// Calls per second of the whole fleet.
    #[serde(default = "default_rate")]
    pub rate_per_s: u32,
    /// Calls at the same time of the whole fleet.
    #[serde(default = "default_concurrent")]
    pub max_concurrent: u32,
    /// Calls at the same time of one process.
    #[serde(default = "default_concurrent_per_process")]
    pub max_concurrent_per_process: u32,
    #[serde(default)]
    pub poll: PollConfig,
    #[serde(default)]
    pub breaker: BreakerConfig,
}

impl PartnerConfig {
    /// A partner that answers at `url`; nothing else is said.
    pub fn with_url(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            api_key: String::new(),
            api_key_env: None,
            api_key_file: None,
            callback_secret: String::new(),
            callback_secret_env: None,
            callback_secret_file: None,
            callback_secret_previous: String::new(),
            callback_secret_previous_env: None,
            callback_secret_previous_file: None,
            timeout: default_timeout(),
            rate_per_s: default_rate(),
            max_concurrent: default_concurrent(),
            max_concurrent_per_process: default_concurrent_per_process(),
            poll: PollConfig::default(),
            breaker: BreakerConfig::default(),
        }
    }
}

fn default_timeout() -> Duration {
    Duration::from_secs(5)
}

fn default_rate() -> u32 {
    500
}

fn default_concurrent() -> u32 {
    50
}

/// Fewer than the places of any queue, so that a slow partner never has them all.
fn default_concurrent_per_process() -> u32 {
    12
}

/// When calls to the partner stop, and how they come back.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// Failures in a row, of the whole fleet.
    pub failures: u32,
    #[serde(with = "duration")]
    pub open: Duration,
    #[serde(with = "duration")]
    pub max_open: Duration,
    /// How long calls take to come back to their full rate.
    #[serde(with = "duration")]
    pub ramp_up: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 10,
            open: Duration::from_secs(5),
            max_open: Duration::from_secs(30),
            ramp_up: Duration::from_secs(30),
        }
    }
}

impl BreakerConfig {
    pub(super) fn breaker_policy(&self) -> BreakerPolicy {
        BreakerPolicy { failures: self.failures, open: self.open, max_open: self.max_open }
    }
}

/// What decisions about an order of this partner go by.
pub(super) fn partner_rules<'a>(dispatch: &'a DispatchPolicy, partner: &'a ConfiguredPartner) -> PartnerRules<'a> {
    PartnerRules { dispatch, poll: &partner.config.poll }
}

/// The share of orders whose job id is asked for: what an operator set, else what is configured.
pub(super) async fn polling_percent(app: &App, partner: &ConfiguredPartner) -> u8 {
    match run_time_percent(&app.db, &partner.name).await {
        Ok(set) => set.unwrap_or(partner.config.poll.percent),
        Err(error) => {
            // Asking is the safe side: an order that is not asked for may wait for ever.
            tracing::warn!(partner = %partner.name, %error, "The polling share could not be read; as configured.");
            partner.config.poll.percent
        }
    }
}

/// What an operator set, if anything.
pub async fn run_time_percent(db: &Pool, partner: &str) -> Result<Option<u8>, sqlx::Error> {
    let percent: Option<Option<i16>> = sqlx::query_scalar(
        "-- polling percent
         SELECT polling_percent FROM partner_settings WHERE partner = $1",
    )
    .bind(partner)
    .fetch_optional(db)
    .await?;
    Ok(percent.flatten().and_then(|p| u8::try_from(p).ok()))
}

/// Sets the share at run time; `None` goes back to the configuration. Effective for every booking made from now on.
pub async fn set_percent(db: &Pool, partner: &str, percent: Option<u8>, by: &Actor) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- set polling percent
         INSERT INTO partner_settings (partner, polling_percent, changed_by) VALUES ($1, $2, $3)
         ON CONFLICT (partner) DO UPDATE
             SET polling_percent = excluded.polling_percent, changed_by = excluded.changed_by,
                 changed_at = dispatchq_now()",
    )
    .bind(partner)
    .bind(percent.map(i16::from))
    .bind(by.to_string())
    .execute(db)
    .await?;
    Ok(())
}

/// What waits for a partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct PartnerBacklog {
    /// Orders without a driver yet.
    pub searching: i64,
    /// Bookings the partner has yet to confirm as cancelled.
    pub cancels: i64,
}

pub async fn count_waiting(db: &Pool, partner: &str) -> Result<PartnerBacklog, sqlx::Error> {
    sqlx::query_as(
        "-- waiting for partner
         SELECT (SELECT count(*) FROM orders
                 WHERE closed_at IS NULL AND partner = $1 AND status IN ('PENDING_JOB_ID', 'ASSIGNED')) AS searching,
                (SELECT count(*) FROM bookings WHERE partner = $1 AND state = 'cancel_wanted') AS cancels",
    )
    .bind(partner)
    .fetch_one(db)
    .await
}

/// True for one caller an hour: the one who tells support that the partner refuses our key.
pub(super) async fn claim_alert(tx: &mut Connection, partner: &str) -> Result<bool, sqlx::Error> {
    let claimed: Option<String> = sqlx::query_scalar(
        "-- claim partner alert
         INSERT INTO partner_alerts AS a (partner, alerted_at) VALUES ($1, dispatchq_now())
         ON CONFLICT (partner) DO UPDATE SET alerted_at = excluded.alerted_at
             WHERE a.alerted_at < dispatchq_now() - interval '1 hour'
         RETURNING partner",
    )
    .bind(partner)
    .fetch_optional(tx)
    .await?;
    Ok(claimed.is_some())
}

/// A partner, ready to be called.
#[derive(Clone)]
pub struct ConfiguredPartner {
    pub name: Arc<str>,
    pub config: Arc<PartnerConfig>,
    pub(super) client: PartnerClient,
    pub(super) throttle: Arc<PartnerThrottle>,
    verifiers: Arc<[Webhook]>,
}

impl fmt::Debug for ConfiguredPartner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Partner({})", self.name)
    }
}

impl ConfiguredPartner {
    fn new(name: &str, config: &PartnerConfig) -> anyhow::Result<Self> {
        let at = format!("partners.{name}");
        let fits = (1..=32).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        ensure!(fits, "{at}: names have 1 to 32 small letters, digits or '_'");
        let url: reqwest::Url = config.url.parse().with_context(|| format!("{at}: url is not valid"))?;
        ensure!(matches!(url.scheme(), "http" | "https") && !url.cannot_be_a_base(), "{at}: url must be http or https");
        let secret = |secret: Secret<'_>| secret.read().with_context(|| at.clone());
        let api_key = secret(secret_of!(config, api_key, api_key_env, api_key_file))?;
        let mut verifiers = Vec::new();
        for given in [
            secret_of!(config, callback_secret, callback_secret_env, callback_secret_file),
            secret_of!(config, callback_secret_previous, callback_secret_previous_env, callback_secret_previous_file),
        ] {
            let name = given.name;
            if let Some(text) = secret(given)? {
                verifiers.push(Webhook::from_bytes(signing_key(name, &text).with_context(|| at.clone())?)?);
            }
        }
        Ok(Self {
            name: name.into(),
            client: PartnerClient::new(url, api_key.unwrap_or_default().trim(), config.timeout)
                .with_context(|| format!("{at}: api_key cannot be sent in a header"))?,
            throttle: Arc::new(PartnerThrottle::new(name, config)),
            config: Arc::new(config.clone()),
            verifiers: verifiers.into(),
        })
    }

    /// Is this callback signed by the partner, lately, with a secret that holds?
    pub fn verifies_callback(&self, body: &[u8], headers: &reqwest::header::HeaderMap) -> bool {
        self.verifiers.iter().any(|secret| secret.verify(body, headers).is_ok())
    }
}

/// All configured partners. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct PartnerRegistry(Arc<BTreeMap<String, ConfiguredPartner>>);

impl PartnerRegistry {
    pub fn new(configured: &BTreeMap<String, PartnerConfig>) -> anyhow::Result<Self> {
        let partners =
            configured.iter().map(|(name, config)| Ok((name.clone(), ConfiguredPartner::new(name, config)?)));
        Ok(Self(Arc::new(partners.collect::<anyhow::Result<_>>()?)))
    }

    pub fn get(&self, name: &str) -> Option<&ConfiguredPartner> {
        self.0.get(name)
    }

    /// How long every one of them is left alone at least, as far as this process knows; `None` when one may be called.
    pub fn all_open_for(&self) -> Option<Duration> {
        self.iter().map(ConfiguredPartner::known_open_for).min().filter(|least| !least.is_zero())
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfiguredPartner> {
        self.0.values()
    }
}
