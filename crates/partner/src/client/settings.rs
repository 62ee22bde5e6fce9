//! Configured partners, and the settings that operators change at run time.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use model::{
    chance::Rng,
    ids::PartnerName,
    order::PollingShare,
    partner::{answer::CallError, decide::PartnerRules},
    policy::DispatchPolicy,
};
use serde_json::json;
use standardwebhooks::Webhook;

use crate::client::{
    http::{PartnerCall, PartnerClient},
    throttle::{CallOutcome, PartnerThrottle},
};
use foundation::{
    config::{
        error::ConfigError,
        secret::{Secret, parse_web_address, signing_key},
    },
    db::{Connection, Pool},
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};
use orders::order_store::OrderStore;
use queue::store::{BreakerState, Store, StoreError};
use settings::PartnerConfig;

/// Builds a secret of a partner. An empty text counts as missing.
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

/// Returns the rules for decisions about an order of this partner.
pub fn partner_rules<'a>(dispatch: &'a DispatchPolicy, partner: &'a ConfiguredPartner) -> PartnerRules<'a> {
    PartnerRules { dispatch, poll: &partner.config.poll, takes_details: partner.config.details }
}

/// Returns the percentage of orders that are polled for a job id: the operator's setting, or the configuration. `known`
/// is the setting that was loaded with the order, possibly for another partner.
pub(crate) async fn polling_percent(
    orders: &OrderStore,
    partner: &ConfiguredPartner,
    known: Option<&PollingShare>,
) -> u8 {
    let set = match known.filter(|share| share.partner == partner.name) {
        Some(share) => Ok(share.percent),
        None => orders.load_polling_share(&partner.name).await,
    };
    match set {
        Ok(set) => set.and_then(|p| u8::try_from(p).ok()).unwrap_or(partner.config.poll.percent),
        Err(error) => {
            // Polling is the safe choice: an order that is not polled may wait forever.
            tracing::warn!(partner = %partner.name, %error, "The polling share could not be read; using the configured one.");
            partner.config.poll.percent
        }
    }
}

/// Returns the percentage that an operator set, if any.
pub async fn run_time_percent(db: &Pool, partner: &PartnerName) -> Result<Option<u8>, sqlx::Error> {
    let percent: Option<Option<i16>> = sqlx::query_scalar(
        "-- polling percent
         SELECT polling_percent FROM partner_settings WHERE partner = $1",
    )
    .bind(partner)
    .fetch_optional(db)
    .await?;
    Ok(percent.flatten().and_then(|p| u8::try_from(p).ok()))
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct RunTimeShare {
    pub partner: PartnerName,
    pub polling_percent: i16,
    pub changed_by: String,
    pub changed_at: DateTime<Utc>,
}

/// Returns the percentages that operators set, ordered by partner, at most 1,000.
pub async fn list_shares(db: &Pool) -> Result<Vec<RunTimeShare>, sqlx::Error> {
    sqlx::query_as(
        "-- polling percents
         SELECT partner, polling_percent, changed_by, changed_at FROM partner_settings
         WHERE polling_percent IS NOT NULL ORDER BY partner LIMIT 1000",
    )
    .fetch_all(db)
    .await
}

/// Sets the percentage at run time, with an audit record. `None` restores the configured value. It applies to every
/// later booking.
pub async fn set_percent(
    db: &Pool,
    partner: &PartnerName,
    percent: Option<u8>,
    by: ActionAuthor<'_>,
) -> Result<(), sqlx::Error> {
    let mut tx = db.begin().await?;
    let before: Option<i16> = sqlx::query_scalar(
        "-- lock polling percent
         SELECT polling_percent FROM partner_settings WHERE partner = $1 FOR UPDATE",
    )
    .bind(partner)
    .fetch_optional(&mut *tx)
    .await?
    .flatten();
    sqlx::query(
        "-- set polling percent
         INSERT INTO partner_settings (partner, polling_percent, changed_by) VALUES ($1, $2, $3)
         ON CONFLICT (partner) DO UPDATE
             SET polling_percent = excluded.polling_percent, changed_by = excluded.changed_by,
                 changed_at = dispatchq_now()",
    )
    .bind(partner)
    .bind(percent.map(i16::from))
    .bind(by.actor.to_string())
    .execute(&mut *tx)
    .await?;
    let subject = match percent {
        Some(percent) => format!("{partner} {percent} %"),
        None => format!("{partner} as configured"),
    };
    let values = ActionValues::changed(json!({ "percent": before }), json!({ "percent": percent }));
    record_action(&mut tx, by, StaffAction::PartnerShareSet, &subject, values).await?;
    tx.commit().await?;
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct PartnerBacklog {
    /// Orders without a driver.
    pub searching: i64,
    /// Bookings that the partner has not yet confirmed as cancelled.
    pub cancels: i64,
}

pub async fn count_waiting(db: &Pool, partner: &PartnerName) -> Result<PartnerBacklog, sqlx::Error> {
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

/// Claims the right to send the alert that the partner refuses our key. Returns true for one caller an hour.
pub(crate) async fn claim_alert(tx: &mut Connection, partner: &PartnerName) -> Result<bool, sqlx::Error> {
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

/// A partner with its client, limits and callback secrets.
#[derive(Clone)]
pub struct ConfiguredPartner {
    pub name: PartnerName,
    pub config: Arc<PartnerConfig>,
    client: PartnerClient,
    throttle: Arc<PartnerThrottle>,
    verifiers: Arc<[Webhook]>,
}

impl fmt::Debug for ConfiguredPartner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Partner({})", self.name)
    }
}

impl ConfiguredPartner {
    fn new(name: &PartnerName, config: &PartnerConfig) -> Result<Self, ConfigError> {
        let url = parse_web_address("url", &config.url)?;
        let api_key = secret_of!(config, api_key, api_key_env, api_key_file).read()?;
        let mut verifiers = Vec::new();
        for secret in [
            secret_of!(config, callback_secret, callback_secret_env, callback_secret_file),
            secret_of!(config, callback_secret_previous, callback_secret_previous_env, callback_secret_previous_file),
        ] {
            if let Some(text) = secret.read()? {
                let verifier = Webhook::from_bytes(signing_key(secret.name, &text)?);
                verifiers.push(verifier.map_err(|error| ConfigError::new(format!("{}: {error}", secret.name)))?);
            }
        }
        Ok(Self {
            name: name.clone(),
            client: PartnerClient::new(url, api_key.unwrap_or_default().trim(), config.timeout)?,
            throttle: Arc::new(PartnerThrottle::new(name, config)),
            config: Arc::new(config.clone()),
            verifiers: verifiers.into(),
        })
    }

    /// Calls the partner, unless its breaker or a limit prevents it.
    pub async fn call_throttled<T, F>(
        &self,
        store: &Store,
        rng: &dyn Rng,
        call: PartnerCall,
        work: impl FnOnce(PartnerClient) -> F,
    ) -> CallOutcome<T>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        self.throttle.call(store, rng, call, || work(self.client.clone())).await
    }

    /// Returns the state of the breaker in Redis.
    pub async fn breaker_state(&self, store: &Store) -> Result<BreakerState, StoreError> {
        self.throttle.breaker_state(store).await
    }

    /// Returns how long the partner's breaker remains open, as far as this process knows without a query. Zero means
    /// that a call may succeed.
    pub fn known_open_for(&self) -> Duration {
        self.throttle.known_open_for()
    }

    /// Returns the time until an attempt may start at this partner, for an order that could go to another partner
    /// instead. Zero means that an attempt may start now.
    pub(crate) async fn closed_to_attempts_for(&self, store: &Store) -> Duration {
        self.throttle.closed_to_attempts_for(store).await
    }

    /// Returns whether the partner signed this callback recently with one of the configured secrets.
    pub fn verifies_callback(&self, body: &[u8], headers: &reqwest::header::HeaderMap) -> bool {
        self.verifiers.iter().any(|secret| secret.verify(body, headers).is_ok())
    }
}

/// All configured partners. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct PartnerRegistry(Arc<BTreeMap<PartnerName, ConfiguredPartner>>);

impl PartnerRegistry {
    /// Builds the partners. Returns the problems of all misconfigured ones.
    pub fn new(configured: &BTreeMap<PartnerName, PartnerConfig>) -> Result<Self, ConfigError> {
        let (mut by_name, mut problems) = (BTreeMap::new(), Vec::new());
        for (name, config) in configured {
            match ConfiguredPartner::new(name, config) {
                Ok(partner) => drop(by_name.insert(name.clone(), partner)),
                Err(error) => problems.push(error.within(&format!("partners.{name}"))),
            }
        }
        ConfigError::refuse_problems(problems)?;
        Ok(Self(Arc::new(by_name)))
    }

    pub fn get(&self, name: &PartnerName) -> Option<&ConfiguredPartner> {
        self.0.get(name)
    }

    /// Returns the shortest time for which the breakers of all partners remain open, as far as this process knows.
    /// Returns `None` if any partner may be called.
    pub fn all_open_for(&self) -> Option<Duration> {
        self.iter().map(ConfiguredPartner::known_open_for).min().filter(|least| !least.is_zero())
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfiguredPartner> {
        self.0.values()
    }
}
