//! Verification of webhooks (Standard Webhooks).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::{DateTime, Utc};
use reqwest::header::HeaderMap;
use ring::{digest::SHA256_OUTPUT_LEN, hmac};
use serde::Deserialize;
use serde_json::Value;

use crate::StepData;

/// Maximum number of signatures that are compared. A server sends two during a rotation of its secret.
const MAX_SIGNATURES: usize = 8;

/// Reason why a webhook must be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    #[error("the header {0} is missing")]
    MissingHeader(&'static str),
    #[error("webhook-timestamp is not a number of seconds")]
    Timestamp,
    #[error("webhook-timestamp is too far from now")]
    TooFarFromNow,
    #[error("no signature of webhook-signature matches")]
    Signature,
    #[error("the body is not an event")]
    Body,
    /// Fault of the receiver, not of the webhook.
    #[error("a secret is whsec_ and base64")]
    Secret,
}

/// Event of a verified webhook.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct WebhookEvent {
    /// The same each time the event is sent.
    pub id: String,
    pub r#type: String,
    pub timestamp: DateTime<Utc>,
    pub version: u32,
    pub data: Value,
}

impl WebhookEvent {
    /// Returns the step. Only `order.job_id_retrieved` and `order.cancelled_after_payment_no_job_id` have none.
    pub fn step(&self) -> Option<StepData> {
        StepData::deserialize(&self.data).ok()
    }
}

/// Rules for webhooks.
#[derive(Debug, Clone)]
pub struct Verifier {
    keys: Vec<hmac::Key>,
    tolerance: Duration,
}

/// Returns the event of a webhook. The body is given byte for byte. A signature by one of the secrets is enough.
///
/// # Errors
///
/// If the webhook must be refused.
pub fn verify_webhook(body: &[u8], headers: &HeaderMap, secrets: &[&str]) -> Result<WebhookEvent, WebhookError> {
    Verifier::new(secrets)?.verify(body, headers)
}

impl Verifier {
    /// Creates a verifier. A signature by one of the secrets is enough.
    ///
    /// # Errors
    ///
    /// If a secret is not `whsec_` and base64.
    pub fn new(secrets: &[&str]) -> Result<Self, WebhookError> {
        let key = |secret: &&str| {
            let bytes = STANDARD.decode(secret.trim_start_matches("whsec_")).ok().filter(|bytes| !bytes.is_empty());
            bytes.map(|bytes| hmac::Key::new(hmac::HMAC_SHA256, &bytes)).ok_or(WebhookError::Secret)
        };
        let keys = secrets.iter().map(key).collect::<Result<_, _>>()?;
        Ok(Self { keys, tolerance: Duration::from_secs(300) })
    }

    /// Sets the maximum difference between `webhook-timestamp` and the clock.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Returns the event of a webhook.
    ///
    /// # Errors
    ///
    /// If the webhook must be refused.
    pub fn verify(&self, body: &[u8], headers: &HeaderMap) -> Result<WebhookEvent, WebhookError> {
        self.verify_at(body, headers, SystemTime::now())
    }

    /// Does the same as [`verify`](Self::verify) at another time.
    ///
    /// # Errors
    ///
    /// If the webhook must be refused.
    pub fn verify_at(&self, body: &[u8], headers: &HeaderMap, now: SystemTime) -> Result<WebhookEvent, WebhookError> {
        let header = |name: &'static str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.ok_or(WebhookError::MissingHeader(name))
        };
        let (id, sent, signatures) =
            (header("webhook-id")?, header("webhook-timestamp")?, header("webhook-signature")?);
        let is_number = sent.len() <= 15 && sent.bytes().all(|b| b.is_ascii_digit());
        let seconds = sent.parse().ok().filter(|_| is_number).ok_or(WebhookError::Timestamp)?;
        let sent_at = UNIX_EPOCH + Duration::from_secs(seconds);
        let distance = now.duration_since(sent_at).unwrap_or_else(|ahead| ahead.duration());
        if distance > self.tolerance {
            return Err(WebhookError::TooFarFromNow);
        }
        let signed = [id.as_bytes(), b".", sent.as_bytes(), b".", body].concat();
        let decoded = signatures.split(' ').filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok());
        let mut given = decoded.filter(|signature| signature.len() == SHA256_OUTPUT_LEN).take(MAX_SIGNATURES);
        // `verify` compares in constant time.
        let matches = |signature: Vec<u8>| self.keys.iter().any(|key| hmac::verify(key, &signed, &signature).is_ok());
        if !given.any(matches) {
            return Err(WebhookError::Signature);
        }
        serde_json::from_slice(body).map_err(|_| WebhookError::Body)
    }
}
