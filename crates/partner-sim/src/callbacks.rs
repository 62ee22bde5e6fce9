//! Callbacks of the partner: one signed POST for each event, as defined by Standard Webhooks. Pure.

use std::time::Duration;

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use standardwebhooks::Webhook;

use super::{
    fate::{self, BookingEvent, CallbackTravel},
    ledger::SimulatedBooking,
};

/// Minimum key length of Standard Webhooks.
const MIN_KEY_BYTES: usize = 24;
/// Timeout for one callback, in real time.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of callbacks in flight.
pub(super) const CONCURRENCY: usize = 64;
/// Key that signs forged callbacks.
const FORGERS_KEY: &[u8] = b"not the secret of any partner";

/// A callback that is ready to be sent.
#[derive(Debug, Clone)]
pub(super) struct QueuedCallback {
    pub(super) event_id: String,
    pub(super) body: String,
    pub(super) kind: CallbackOrigin,
    pub(super) tries: u32,
}

#[derive(Debug, Clone)]
pub(super) enum CallbackOrigin {
    Genuine {
        /// Delay after delivery until it is sent again.
        doubled: Option<Duration>,
        /// Callback with a foreign job id, and its delay after delivery.
        foreign: Option<(Duration, Box<QueuedCallback>)>,
    },
    Doubled,
    /// Correctly signed, but about an unknown booking or with a wrong job id.
    Wrong,
    Forged,
}

#[derive(Serialize)]
struct CallbackPayload<'a> {
    event_id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    booking_id: &'a str,
    reference: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_id: Option<&'a str>,
    occurred_at: &'a str,
}

impl CallbackPayload<'_> {
    fn to_callback(&self, kind: CallbackOrigin) -> Option<QueuedCallback> {
        let body = serde_json::to_string(self).ok()?;
        Some(QueuedCallback { event_id: self.event_id.to_owned(), body, kind, tries: 0 })
    }
}

/// Returns the callbacks for one event, in sending order.
pub(super) fn callbacks_for_event(
    seed: u64,
    booking_id: &str,
    booking: &SimulatedBooking,
    event: BookingEvent,
    travel: &CallbackTravel,
    at: DateTime<Utc>,
) -> Vec<QueuedCallback> {
    let reference = booking.reference.as_str();
    let body = CallbackPayload {
        event_id: &travel.event_id,
        kind: event.name(),
        booking_id,
        reference,
        job_id: booking.job_id(),
        driver_id: booking.driver_id(),
        occurred_at: &at.to_rfc3339_opts(SecondsFormat::Millis, true),
    };
    let mut callbacks = Vec::new();
    if travel.forged {
        let job_id = fate::job_id_of(seed, &format!("forged {reference}"));
        callbacks.extend(CallbackPayload { job_id: Some(&job_id), ..body }.to_callback(CallbackOrigin::Forged));
    }
    if travel.unknown_booking {
        let reference = format!("NO-SUCH-ORDER-{}:1", &travel.event_id);
        let booking_id = fate::booking_id(fate::booking_number(seed, &reference));
        let event_id = format!("{}-unknown", travel.event_id);
        let wrong = CallbackPayload { event_id: &event_id, booking_id: &booking_id, reference: &reference, ..body };
        callbacks.extend(wrong.to_callback(CallbackOrigin::Wrong));
    }
    if travel.sent {
        let foreign = travel.foreign_job_id.and_then(|later| {
            let job_id = fate::job_id_of(seed, &next_reference(reference));
            let event_id = format!("{}-foreign", travel.event_id);
            let wrong = CallbackPayload { event_id: &event_id, job_id: Some(&job_id), ..body };
            Some((later, Box::new(wrong.to_callback(CallbackOrigin::Wrong)?)))
        });
        callbacks.extend(body.to_callback(CallbackOrigin::Genuine { doubled: travel.doubled, foreign }));
    }
    callbacks
}

/// Returns the reference of the order's next booking, whose job id a foreign callback carries.
fn next_reference(reference: &str) -> String {
    let next = reference.rsplit_once(':').and_then(|(order, n)| Some((order, n.parse::<u32>().ok()?.checked_add(1)?)));
    next.map_or_else(|| format!("{reference}:2"), |(order, n)| format!("{order}:{n}"))
}

/// Returns the signer of genuine callbacks, for a secret such as `whsec_...`, and the signer of forged ones.
pub(super) fn callback_signers(secret: &str) -> anyhow::Result<(Webhook, Webhook)> {
    let text = secret.trim();
    let key = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).ok();
    let key = key.filter(|key| key.len() >= MIN_KEY_BYTES).with_context(|| {
        format!(
            "the callback secret must be base64 of at least {MIN_KEY_BYTES} bytes, as in \
             whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        )
    });
    let key = key.context("create one with `openssl rand -base64 24`")?;
    Ok((Webhook::from_bytes(key)?, Webhook::from_bytes(FORGERS_KEY.to_vec())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_job_id_belongs_to_next_booking() {
        assert_eq!(next_reference("ORD-1:1"), "ORD-1:2");
        assert_eq!(next_reference("ORD-1:4294967295"), "ORD-1:4294967295:2");
        assert_eq!(next_reference("odd"), "odd:2");
    }
}
