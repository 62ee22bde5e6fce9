//! How one message travels. It goes to configured addresses only: no URL ever comes from a request or a row.
//!
//! * [`webhook`]: a POST of the message as JSON, signed as Standard Webhooks if a secret is configured.
//! * [`slack`]: its text to a Slack incoming webhook.
//! * [`email`]: its text by SMTP.
//! * [`ticket`]: a POST that opens a ticket.
//! * [`voice`]: a phone call that asks for a key.
//! * [`post`]: what those over HTTP have in common: timeouts, and what an answer means.
//! * `lanes`: how many messages of one channel are on their way at the same time, and when the others come back.

pub mod email;
mod lanes;
pub mod post;
pub mod slack;
pub mod ticket;
pub mod voice;
pub mod webhook;

use std::{collections::BTreeMap, fmt, time::Duration};

use metrics::counter;
use serde_json::Value;
use uuid::Uuid;

use self::lanes::Lanes;
use super::{
    routes::LOG,
    text::{self, Text},
};
use crate::outbound;

pub use self::lanes::Place;
use self::lanes::Tried;

/// How one channel delivers.
#[derive(Debug, Clone)]
pub enum Channel {
    /// A line in the log of the worker.
    Log,
    /// Any 2xx is delivered.
    Webhook(webhook::Webhook),
    Slack(slack::Slack),
    Email(email::Email),
    Ticket(ticket::Ticket),
    Voice(voice::Voice),
}

/// A message on its way.
#[derive(Debug, Clone)]
pub struct Parcel<'a> {
    /// The same whenever the message is sent again, so that its receiver can drop what it has seen before.
    pub id: Uuid,
    pub order_id: &'a str,
    pub kind: &'a str,
    pub payload: &'a Value,
    /// Of the driver it is for.
    pub phone: Option<&'a str>,
}

/// Why a message did not arrive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    #[error("no channel '{0}' is configured; add it under [channels] in config.toml")]
    NoSuchChannel(String),
    /// May go better later, but not before the pause the receiver asked for.
    #[error("{error}")]
    Again { error: String, pause: Option<Duration> },
    /// The receiver does not want it like this: it will hardly go better by itself.
    #[error("{0}")]
    Refused(String),
    /// The receiver wants nothing more.
    #[error("{0}")]
    Gone(String),
}

/// The configured channels by name.
#[derive(Clone)]
pub struct Channels {
    client: reqwest::Client,
    by_name: BTreeMap<String, Channel>,
    lanes: Lanes,
    sla: Duration,
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_name.keys()).finish()
    }
}

impl Channels {
    /// A receiver slower than this has not received.
    const TIMEOUT: Duration = Duration::from_secs(10);

    /// `at_once`: messages of all channels on their way at the same time. `sla`: what alerts say of their time.
    pub fn new(mut by_name: BTreeMap<String, Channel>, at_once: usize, sla: Duration) -> Result<Self, reqwest::Error> {
        by_name.entry(LOG.to_owned()).or_insert(Channel::Log);
        Ok(Self { client: outbound::client(Self::TIMEOUT)?, by_name, lanes: Lanes::new(at_once), sla })
    }

    /// Gives a message a place on this channel, or tells how long it should wait. A receiver that hangs must not hold all
    /// that a worker can do at once.
    pub fn enter(&self, name: &str) -> Result<Place, Duration> {
        let place = self.lanes.enter(name);
        if place.is_err() {
            counter!("dispatchq_messages_parked_total", "channel" => name.to_owned()).increment(1);
        }
        place
    }

    /// Delivers one message over one channel, on whose lane it has a place.
    pub async fn deliver(&self, mut place: Place, name: &str, parcel: &Parcel<'_>) -> Result<(), DeliveryError> {
        let delivered = self.send(name, parcel).await;
        match &delivered {
            Ok(()) | Err(DeliveryError::Refused(_) | DeliveryError::Gone(_)) => place.record(Tried::Answered),
            Err(DeliveryError::Again { .. }) => place.record(Tried::Failed),
            Err(DeliveryError::NoSuchChannel(_)) => {}
        }
        delivered
    }

    async fn send(&self, name: &str, parcel: &Parcel<'_>) -> Result<(), DeliveryError> {
        let channel = self.by_name.get(name).ok_or_else(|| DeliveryError::NoSuchChannel(name.to_owned()))?;
        match channel {
            Channel::Log => {
                tracing::info!(
                    message.uuid = %parcel.id,
                    message.kind = parcel.kind,
                    order.id = parcel.order_id,
                    "Message for people."
                );
                Ok(())
            }
            Channel::Webhook(webhook) => webhook.deliver(&self.client, parcel).await,
            Channel::Slack(slack) => slack.deliver(&self.client, &self.text(parcel)).await,
            Channel::Email(email) => email.deliver(parcel, &self.text(parcel)).await,
            Channel::Voice(voice) => voice.deliver(&self.client, parcel).await,
            Channel::Ticket(ticket) => ticket.deliver(&self.client, parcel, &self.text(parcel), self.sla).await,
        }
    }

    /// The voice channel of this name.
    pub fn voice(&self, name: &str) -> Option<&voice::Voice> {
        match self.by_name.get(name) {
            Some(Channel::Voice(voice)) => Some(voice),
            _ => None,
        }
    }

    fn text(&self, parcel: &Parcel<'_>) -> Text {
        text::render(parcel.kind, parcel.payload, self.sla)
    }
}

/// Where a channel's URL leads, for people's eyes: its path is often its secret.
fn host_of(url: &reqwest::Url) -> &str {
    url.host_str().unwrap_or("?")
}
