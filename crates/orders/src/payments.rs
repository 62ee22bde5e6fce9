//! Client of the payment service: requests for refunds, and verification of callbacks. docs/PAYMENTS.md is the
//! contract.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use jobs::OrderId;
use model::plain_text;
use reqwest::{
    Response, StatusCode, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
};
use serde::Deserialize;
use serde_json::json;
use standardwebhooks::Webhook;

use foundation::{
    config::{
        error::ConfigError,
        secret::{Secret, ensure_encrypted, parse_web_address, signing_key},
    },
    crash, outbound, traces,
};
use settings::PaymentsConfig;

/// Maximum size of a response. A longer response is an error.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// The configured payment service. Cheap to clone.
#[derive(Clone)]
pub struct PaymentService {
    http: reqwest::Client,
    refunds: Url,
    authorization: HeaderValue,
    verifiers: Arc<[Webhook]>,
    /// Time after which the status of an accepted refund is requested.
    pub ask_again: Duration,
}

#[derive(Debug, Clone, Copy)]
pub struct RefundRequest<'a> {
    pub order: &'a OrderId,
    /// In the smallest unit of the currency.
    pub amount_minor: i64,
    pub currency: &'a str,
}

/// Status of a refund at the service. A repeated request returns the current status.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RefundAnswer {
    pub refund_id: String,
    pub status: RefundStatus,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefundStatus {
    Refunded,
    Failed,
    /// The service is processing the refund. Unknown statuses count as pending, too.
    #[serde(other)]
    Pending,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefundCallError {
    /// The next request may succeed. It is unknown whether this one had an effect; the idempotency key prevents a
    /// second refund.
    #[error("{0}")]
    Transient(String),
    /// The service will never accept this request.
    #[error("the payment service refuses: {0}")]
    Refused(String),
}

impl fmt::Debug for PaymentService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payments({})", self.refunds.host_str().unwrap_or("?"))
    }
}

impl PaymentService {
    pub fn from_config(config: &PaymentsConfig) -> Result<Option<Self>, ConfigError> {
        if config.url.is_empty() {
            return Ok(None);
        }
        Self::new(config).map(Some).map_err(|error| error.within("payments"))
    }

    fn new(config: &PaymentsConfig) -> Result<Self, ConfigError> {
        let mut refunds = parse_web_address("url", &config.url)?;
        // Its API key can pay out money.
        ensure_encrypted("url", &refunds)?;
        if let Ok(mut segments) = refunds.path_segments_mut() {
            segments.pop_if_empty().push("refunds");
        }
        let api_key =
            named_secret("api_key", &config.api_key, config.api_key_env.as_ref(), config.api_key_file.as_ref())
                .read()?
                .unwrap_or_default();
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", api_key.trim()))
            .map_err(|_| ConfigError::new("api_key cannot be sent in a header"))?;
        authorization.set_sensitive(true);
        let mut verifiers = Vec::new();
        for secret in [
            named_secret(
                "callback_secret",
                &config.callback_secret,
                config.callback_secret_env.as_ref(),
                config.callback_secret_file.as_ref(),
            ),
            named_secret(
                "callback_secret_previous",
                &config.callback_secret_previous,
                config.callback_secret_previous_env.as_ref(),
                config.callback_secret_previous_file.as_ref(),
            ),
        ] {
            if let Some(text) = secret.read()? {
                let verifier = Webhook::from_bytes(signing_key(secret.name, &text)?);
                verifiers.push(verifier.map_err(|error| ConfigError::new(format!("{}: {error}", secret.name)))?);
            }
        }
        Ok(Self {
            http: outbound::build_client(config.timeout)?,
            refunds,
            authorization,
            verifiers: verifiers.into(),
            ask_again: config.ask_again,
        })
    }

    /// Requests a refund or its status. Both are the same request with the same idempotency key.
    pub async fn ask_for_refund(&self, refund: RefundRequest<'_>) -> Result<RefundAnswer, RefundCallError> {
        let body = json!({
            "reference": refund.order,
            "amount_minor": refund.amount_minor,
            "currency": refund.currency,
        });
        crash::reach_point("refund", "sends");
        let request = self
            .http
            .post(self.refunds.clone())
            .header(AUTHORIZATION, self.authorization.clone())
            .header("idempotency-key", format!("refund-{}", refund.order))
            .json(&body);
        let sent = traces::send_request("payments", "refund", request).await;
        let answer = sent.map_err(|e| RefundCallError::Transient(outbound::describe_error(&e)))?;
        let status = answer.status();
        let body = read_body(answer).await?;
        crash::reach_point("refund", "answered");
        if !status.is_success() {
            return Err(classify_answer(status));
        }
        let mut answer: RefundAnswer = serde_json::from_slice(&body)
            .map_err(|e| RefundCallError::Transient(format!("the payment service's answer cannot be read: {e}")))?;
        // The reason is stored and shown to people.
        answer.reason = answer.reason.filter(|why| why.len() <= 500 && plain_text::is_plain(why));
        let fits = (1..=128).contains(&answer.refund_id.len()) && plain_text::is_plain(&answer.refund_id);
        if fits {
            Ok(answer)
        } else {
            Err(RefundCallError::Transient("refund_id must have 1 to 128 characters".to_owned()))
        }
    }

    /// Returns whether the service signed this callback recently with one of the configured secrets.
    pub fn verifies_callback(&self, body: &[u8], headers: &HeaderMap) -> bool {
        self.verifiers.iter().any(|secret| secret.verify(body, headers).is_ok())
    }
}

/// Returns a secret of the service. An empty text counts as missing.
fn named_secret<'a>(
    name: &'static str,
    value: &'a str,
    env: Option<&'a String>,
    file: Option<&'a PathBuf>,
) -> Secret<'a> {
    Secret {
        name,
        value: Some(value).filter(|text| !text.is_empty()),
        env: env.map(String::as_str),
        file: file.map(PathBuf::as_path),
    }
}

async fn read_body(mut answer: Response) -> Result<Vec<u8>, RefundCallError> {
    let mut body = Vec::new();
    while let Some(chunk) =
        answer.chunk().await.map_err(|e| RefundCallError::Transient(outbound::describe_error(&e)))?
    {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER_BYTES {
            return Err(RefundCallError::Transient("the payment service's answer is too long".to_owned()));
        }
    }
    Ok(body)
}

/// Classifies an error response. The body is not used, because services echo their input. A refused key is an error in
/// the settings and not in the refund.
fn classify_answer(status: StatusCode) -> RefundCallError {
    let code = status.as_u16();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            RefundCallError::Transient(format!("the payment service refuses our key ({code}); check payments.api_key"))
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            RefundCallError::Transient(code.to_string())
        }
        _ if status.is_client_error() => RefundCallError::Refused(code.to_string()),
        _ => RefundCallError::Transient(code.to_string()),
    }
}
