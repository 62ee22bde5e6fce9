//! The channel of push messages. Its job is a normal message of the outbox, so it is retried until the offer ends and
//! never delays the dispatch.

use std::{fmt, sync::Arc};

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use model::messages::MessageBody;
use reqwest::{
    StatusCode,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE},
};
use uuid::Uuid;

use super::{
    super::{DeliveryError, OutgoingMessage, post},
    encryption::encrypt_text,
    subscriptions::{StoredSubscription, load_subscriptions, remove_subscriptions},
    vapid::VapidKey,
};
use foundation::db::Pool;

/// The whole message. The page has the offer.
const TEXT: &[u8] = b"new offer";

/// Sends messages about offers to the browsers of drivers. Cheap to clone.
#[derive(Clone)]
pub struct PushChannel {
    db: Pool,
    key: Arc<VapidKey>,
    /// Client for the addresses of browsers.
    client: reqwest::Client,
}

impl fmt::Debug for PushChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushChannel").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Result for one browser.
enum Sent {
    Accepted,
    /// The push service does not know this endpoint any longer.
    Gone(Uuid, String),
    Failed(DeliveryError),
}

impl PushChannel {
    pub fn new(db: Pool, key: Arc<VapidKey>, client: reqwest::Client) -> Self {
        Self { db, key, client }
    }

    /// Returns the public key with which browsers subscribe.
    pub fn public_key(&self) -> String {
        self.key.public_key()
    }

    /// Sends the message to all browsers of the offer's driver. It is delivered if one push service accepts it.
    pub(in super::super) async fn deliver(&self, parcel: &OutgoingMessage<'_>) -> Result<(), DeliveryError> {
        let again = |error: String| DeliveryError::Again { error, pause: None };
        let MessageBody::Offer(offer) = parcel.content.read_body() else { return Ok(()) };
        let browsers =
            load_subscriptions(&self.db, &offer.driver_id).await.map_err(|error| again(error.to_string()))?;
        let sent = join_all(browsers.iter().map(|browser| self.send_to(browser, offer.expires_at))).await;
        let gone = sent
            .iter()
            .filter_map(|one| if let Sent::Gone(id, endpoint) = one { Some((*id, endpoint.as_str())) } else { None });
        let gone: Vec<(Uuid, &str)> = gone.collect();
        if let Err(error) = remove_subscriptions(&self.db, &gone).await {
            tracing::warn!(%error, "Browsers that accept no messages could not be removed; the next message tries again.");
        }
        if sent.iter().any(|one| matches!(one, Sent::Accepted)) {
            return Ok(());
        }
        let failed = sent.into_iter().find_map(|one| if let Sent::Failed(error) = one { Some(error) } else { None });
        Err(failed.unwrap_or_else(|| DeliveryError::Gone("the driver has no browser that accepts messages".to_owned())))
    }

    async fn send_to(&self, browser: &StoredSubscription, expires_at: DateTime<Utc>) -> Sent {
        let left_s = (expires_at - browser.now).num_seconds().max(0);
        let endpoint = &browser.to.endpoint;
        let Ok((body, authorization)) =
            encrypt_text(&browser.to.keys, TEXT).and_then(|body| Ok((body, self.key.authorize(endpoint, Utc::now())?)))
        else {
            // The browser's key is not a point of the curve.
            return Sent::Gone(browser.session, endpoint.to_string());
        };
        let request = self.client.post(endpoint.clone()).header(AUTHORIZATION, authorization);
        let request = request.header(CONTENT_ENCODING, "aes128gcm").header(CONTENT_TYPE, "application/octet-stream");
        let request = request.header("ttl", left_s).header("urgency", "high").body(body);
        let answer = match post::await_untraced(request).await {
            Ok(answer) => answer,
            Err(error) => return Sent::Failed(error),
        };
        match answer.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => Sent::Gone(browser.session, endpoint.to_string()),
            _ => post::classify_answer(&answer).map_or_else(Sent::Failed, |()| Sent::Accepted),
        }
    }
}
