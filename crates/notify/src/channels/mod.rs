//! How one message travels. It goes to configured addresses, and to the phone or e-mail address of the person it is for: no URL
//! ever comes from a request or a row.
//! Design: docs/design/outbox-and-channels.md.
//!
//! * [`webhook`]: a POST of the message as JSON, signed as Standard Webhooks if a secret is configured.
//! * `producer`: an event to a producer that subscribes to it, as a signed webhook.
//! * [`slack`]: its text to a Slack incoming webhook.
//! * [`email`]: its text by SMTP, to its user's own address if there is one.
//! * [`ticket`]: a POST that opens a ticket. [`ticket_address`]: where people open it.
//! * [`voice`]: a phone call that asks for a key.
//! * [`post`]: what those over HTTP have in common: timeouts, and what an answer means.
//! * `build`: what is configured becomes these.
//! * `lanes`: how many messages of one channel are on their way at the same time, and when the others come back.

mod build;
pub mod email;
mod lanes;
pub mod post;
mod producer;
pub mod slack;
pub mod ticket;
pub mod ticket_address;
pub mod voice;
pub mod webhook;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jobs::{BindingId, OrderId};
use metrics::counter;
use model::{
    ids::TicketId,
    messages::{
        ChannelRoutes, MessageSubject, StoredMessage,
        routes::LOG,
        text::{self, MessageText},
    },
};
use uuid::Uuid;

use self::lanes::ChannelLanes;
use foundation::outbound;

pub use self::{build::build_channels, lanes::LanePlace};
use self::{lanes::LaneOutcome, producer::ProducerClients};

/// How one channel delivers.
#[derive(Debug, Clone)]
pub enum MessageChannel {
    /// A line in the log of the worker.
    Log,
    /// Any 2xx is delivered.
    Webhook(webhook::WebhookChannel),
    Producer(producer::ProducerChannel),
    Slack(slack::SlackChannel),
    Email(email::EmailChannel),
    Ticket(ticket::TicketChannel),
    Voice(voice::VoiceChannel),
}

/// A message on its way.
#[derive(Debug, Clone)]
pub struct OutgoingMessage<'a> {
    /// The same whenever the message is sent again, so that its receiver can drop what it has seen before.
    pub id: Uuid,
    pub subject: &'a MessageSubject,
    pub content: &'a StoredMessage,
    /// Of the driver or user it is for.
    pub phone: Option<&'a str>,
    /// Of the user it is for.
    pub email: Option<&'a str>,
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
pub struct MessageChannels {
    client: reqwest::Client,
    /// Connects to public addresses only.
    public_client: reqwest::Client,
    by_name: BTreeMap<String, MessageChannel>,
    lanes: ChannelLanes,
    /// What alerts say of their time.
    routes: Arc<ChannelRoutes>,
}

impl fmt::Debug for MessageChannels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_name.keys()).finish()
    }
}

impl MessageChannels {
    /// A receiver slower than this has not received.
    const TIMEOUT: Duration = Duration::from_secs(10);

    /// `at_once`: messages of all channels on their way at the same time. `routes`: what alerts say of their time.
    pub fn new(
        mut by_name: BTreeMap<String, MessageChannel>,
        at_once: usize,
        routes: ChannelRoutes,
    ) -> Result<Self, reqwest::Error> {
        by_name.entry(LOG.to_owned()).or_insert(MessageChannel::Log);
        Ok(Self {
            client: outbound::build_client(Self::TIMEOUT)?,
            public_client: outbound::build_public_client(Self::TIMEOUT)?,
            by_name,
            lanes: ChannelLanes::new(at_once),
            routes: Arc::new(routes),
        })
    }

    /// Gives a message a place on this channel, or tells how long it should wait. A receiver that hangs must not hold all
    /// that a worker can do at once.
    pub fn enter_lane(&self, name: &str) -> Result<LanePlace, Duration> {
        let place = self.lanes.enter_lane(name);
        if place.is_err() {
            counter!("dispatchq_messages_parked_total", "channel" => name.to_owned()).increment(1);
        }
        place
    }

    /// Delivers one message over one channel, on whose lane it has a place. Returns the ticket that it opened, if its receiver says
    /// which.
    pub async fn deliver_message(
        &self,
        mut place: LanePlace,
        name: &str,
        parcel: &OutgoingMessage<'_>,
    ) -> Result<Option<TicketId>, DeliveryError> {
        let delivered = self.send_message(name, parcel).await;
        match &delivered {
            Ok(_) | Err(DeliveryError::Refused(_) | DeliveryError::Gone(_)) => {
                place.record_outcome(LaneOutcome::Answered);
            }
            Err(DeliveryError::Again { .. }) => place.record_outcome(LaneOutcome::Failed),
            Err(DeliveryError::NoSuchChannel(_)) => {}
        }
        delivered
    }

    async fn send_message(&self, name: &str, parcel: &OutgoingMessage<'_>) -> Result<Option<TicketId>, DeliveryError> {
        let channel = self.by_name.get(name).ok_or_else(|| DeliveryError::NoSuchChannel(name.to_owned()))?;
        let delivered = match channel {
            MessageChannel::Log => {
                tracing::info!(
                    message.uuid = %parcel.id,
                    message.kind = parcel.content.kind,
                    order.id = parcel.subject.order_id().map(OrderId::as_str),
                    binding_id = parcel.subject.binding_id().map(BindingId::as_str),
                    "Message for people."
                );
                Ok(())
            }
            MessageChannel::Webhook(webhook) => webhook.deliver(&self.client, parcel).await,
            MessageChannel::Producer(producer) => {
                let clients = ProducerClients { any: &self.client, public: &self.public_client };
                producer.deliver(&clients, parcel).await
            }
            MessageChannel::Slack(slack) => slack.deliver(&self.client, &self.render_text(parcel)).await,
            MessageChannel::Email(email) => email.deliver(parcel, &self.render_text(parcel)).await,
            MessageChannel::Voice(voice) => voice.deliver(&self.client, parcel).await,
            MessageChannel::Ticket(ticket) => {
                return ticket.deliver(&self.client, parcel, &self.render_text(parcel), &self.routes).await;
            }
        };
        delivered.map(|()| None)
    }

    /// Returns where people open a ticket of the channel of this name, if that is configured.
    pub fn link_to_ticket(&self, name: &str, ticket: &TicketId) -> Option<String> {
        match self.by_name.get(name) {
            Some(MessageChannel::Ticket(channel)) => channel.link_to(ticket),
            _ => None,
        }
    }

    /// The voice channel of this name.
    pub fn voice_channel(&self, name: &str) -> Option<&voice::VoiceChannel> {
        match self.by_name.get(name) {
            Some(MessageChannel::Voice(voice)) => Some(voice),
            _ => None,
        }
    }

    fn render_text(&self, parcel: &OutgoingMessage<'_>) -> MessageText {
        text::render_message(parcel.content, self.routes.escalate.after)
    }
}

/// Where a channel's URL leads, for people's eyes: its path is often its secret.
fn host_of(url: &reqwest::Url) -> &str {
    url.host_str().unwrap_or("?")
}
