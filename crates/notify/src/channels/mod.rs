//! Delivery of one message over one channel. Addresses come from the configuration, or are the phone number or e-mail
//! address of the recipient. Only the URL of a webhook endpoint comes from a row: see [`endpoints`](crate::endpoints). Design: docs/design/outbox-and-channels.md.
//!
//! * [`webhook`]: a POST of the message as JSON, signed with Standard Webhooks if a secret is configured.
//! * `producer`: an event to a producer that subscribes to it, as a signed webhook.
//! * [`slack`]: the text to a Slack incoming webhook.
//! * [`email`]: the text by SMTP, to the user's own address if there is one.
//! * [`ticket`]: a POST that opens a ticket. [`ticket_address`]: web addresses of tickets.
//! * [`voice`]: a phone call that asks for a key.
//! * [`push`]: a message that wakes the browser of a driver.
//! * [`post`]: common code of the HTTP channels: sending, and the meaning of responses.
//! * `build`: channels from the configuration.
//! * `lanes`: number of messages that each channel delivers at the same time, and the pause of the others.

mod build;
pub mod email;
mod lanes;
pub mod post;
pub(crate) mod producer;
pub mod push;
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
        routes::{LOG, PUSH},
        text::{self, MessageText},
    },
};
use uuid::Uuid;

use self::{
    lanes::ChannelLanes,
    push::{channel::PushChannel, vapid::VapidKey},
};
use foundation::{db::Pool, outbound};

pub use self::{build::build_channels, lanes::LanePlace};
use self::{lanes::LaneOutcome, producer::ProducerClients};
use crate::endpoints::{EndpointId, owners::EndpointOwners};

/// Delivery method of one channel.
#[derive(Debug, Clone)]
pub enum MessageChannel {
    /// A line in the worker's log.
    Log,
    /// A POST; any 2xx means delivered.
    Webhook(webhook::WebhookChannel),
    Producer(producer::ProducerChannel),
    Slack(slack::SlackChannel),
    Email(email::EmailChannel),
    Ticket(ticket::TicketChannel),
    Voice(voice::VoiceChannel),
}

/// A message during its delivery.
#[derive(Debug, Clone)]
pub struct OutgoingMessage<'a> {
    /// Id that stays the same when the message is sent again, so that the receiver can drop duplicates.
    pub id: Uuid,
    pub subject: &'a MessageSubject,
    pub content: &'a StoredMessage,
    /// Phone number of the driver or user that the message is for.
    pub phone: Option<&'a str>,
    /// E-mail address of the user that the message is for.
    pub email: Option<&'a str>,
}

/// Reason that a message was not delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    #[error("no channel '{0}' is configured; add it under [channels] in config.toml")]
    NoSuchChannel(String),
    /// A temporary failure. The next try waits at least for the pause that the receiver asked for.
    #[error("{error}")]
    Again { error: String, pause: Option<Duration> },
    /// The receiver rejects the message. Another try would probably fail too.
    #[error("{0}")]
    Refused(String),
    /// The receiver accepts no messages any longer.
    #[error("{0}")]
    Gone(String),
    /// The receiver was deleted. The message expires, and no person has to act.
    #[error("{0}")]
    Withdrawn(String),
}

/// The configured channels by name.
#[derive(Clone)]
pub struct MessageChannels {
    client: reqwest::Client,
    /// Client that connects to public addresses only.
    public_client: reqwest::Client,
    by_name: BTreeMap<String, MessageChannel>,
    lanes: ChannelLanes,
    /// Channel [`PUSH`] to the browsers of drivers, if it is configured.
    push: Option<PushChannel>,
    /// Escalation times that the texts of alerts mention.
    routes: Arc<ChannelRoutes>,
}

impl fmt::Debug for MessageChannels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_name.keys()).finish()
    }
}

impl MessageChannels {
    /// Timeout for one delivery request.
    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Creates the channels. `at_once` is the maximum number of messages in delivery on all channels together. `routes`
    /// has the times that the texts of alerts mention.
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
            lanes: ChannelLanes::new(at_once, EndpointOwners::default()),
            push: None,
            routes: Arc::new(routes),
        })
    }

    /// Makes the endpoints of each producer share places, as `owners` groups them.
    #[must_use]
    pub(crate) fn with_owners(mut self, owners: EndpointOwners) -> Self {
        self.lanes = self.lanes.with_owners(owners);
        self
    }

    /// Adds the channel [`PUSH`]. `allow_private`: browsers may have addresses of this machine.
    #[must_use]
    pub fn with_push(mut self, db: &Pool, key: VapidKey, allow_private: bool) -> Self {
        let client = if allow_private { &self.client } else { &self.public_client };
        self.push = Some(PushChannel::new(db.clone(), Arc::new(key), client.clone()));
        self
    }

    /// Returns the channel to the browsers of drivers, if it is configured.
    pub fn push_channel(&self) -> Option<&PushChannel> {
        self.push.as_ref()
    }

    /// Returns whether the channel needs the phone number or address of a person, which only Postgres has.
    pub fn needs_recipient(&self, name: &str) -> bool {
        let is_push = name == PUSH && self.push.is_some();
        !is_push && matches!(self.by_name.get(name), None | Some(MessageChannel::Email(_) | MessageChannel::Voice(_)))
    }

    /// Reserves a place on this channel, or returns how long the message must wait. This keeps a receiver that hangs
    /// from occupying the whole worker.
    pub fn enter_lane(&self, name: &str) -> Result<LanePlace, Duration> {
        let place = self.lanes.enter_lane(name);
        if place.is_err() {
            // The ids of endpoints are not used as labels, because producers create endpoints.
            let label = if EndpointId::of_channel(name).is_some() { "endpoint" } else { name };
            counter!("dispatchq_messages_parked_total", "channel" => label.to_owned()).increment(1);
        }
        place
    }

    /// Reserves a place on this channel for a message that its job sends otherwise. Returns `None` if there is none.
    pub fn try_enter_lane(&self, name: &str) -> Option<LanePlace> {
        self.lanes.try_enter(name)
    }

    /// Delivers one message over one channel, using its place on the lane. Returns the ticket that the message opened,
    /// if the response contains one.
    pub async fn deliver_message(
        &self,
        place: LanePlace,
        name: &str,
        parcel: &OutgoingMessage<'_>,
    ) -> Result<Option<TicketId>, DeliveryError> {
        let delivered = self.send_message(name, parcel).await;
        record_outcome(place, &delivered);
        delivered
    }

    /// Delivers one event to an endpoint, using its place on the lane.
    pub(crate) async fn deliver_event(
        &self,
        place: LanePlace,
        endpoint: &producer::ProducerChannel,
        parcel: &OutgoingMessage<'_>,
    ) -> Result<Option<TicketId>, DeliveryError> {
        let delivered = endpoint.deliver(&self.producer_clients(), parcel).await.map(|()| None);
        record_outcome(place, &delivered);
        delivered
    }

    fn producer_clients(&self) -> ProducerClients<'_> {
        ProducerClients { any: &self.client, public: &self.public_client }
    }

    async fn send_message(&self, name: &str, parcel: &OutgoingMessage<'_>) -> Result<Option<TicketId>, DeliveryError> {
        if let Some(push) = self.push.as_ref().filter(|_| name == PUSH) {
            return push.deliver(parcel).await.map(|()| None);
        }
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
            MessageChannel::Producer(producer) => producer.deliver(&self.producer_clients(), parcel).await,
            MessageChannel::Slack(slack) => slack.deliver(&self.client, &self.render_text(parcel)).await,
            MessageChannel::Email(email) => email.deliver(parcel, &self.render_text(parcel)).await,
            MessageChannel::Voice(voice) => voice.deliver(&self.client, parcel).await,
            MessageChannel::Ticket(ticket) => {
                return ticket.deliver(&self.client, parcel, &self.render_text(parcel), &self.routes).await;
            }
        };
        delivered.map(|()| None)
    }

    /// Returns the URL of a producer's channel without its path, which may be a secret.
    pub fn shown_url(&self, name: &str) -> Option<String> {
        match self.by_name.get(name) {
            Some(MessageChannel::Producer(channel)) => Some(channel.shown_url()),
            _ => None,
        }
    }

    /// Returns the web address of a ticket, if the channel has one configured.
    pub fn link_to_ticket(&self, name: &str, ticket: &TicketId) -> Option<String> {
        match self.by_name.get(name) {
            Some(MessageChannel::Ticket(channel)) => channel.link_to(ticket),
            _ => None,
        }
    }

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

/// Records on the lane what a delivery showed about its receiver.
fn record_outcome(mut place: LanePlace, delivered: &Result<Option<TicketId>, DeliveryError>) {
    match delivered {
        Ok(_) | Err(DeliveryError::Refused(_) | DeliveryError::Gone(_)) => place.record_outcome(LaneOutcome::Answered),
        Err(DeliveryError::Again { .. }) => place.record_outcome(LaneOutcome::Failed),
        Err(DeliveryError::NoSuchChannel(_) | DeliveryError::Withdrawn(_)) => {}
    }
}

/// Returns the host of a channel's URL for display. The path is often a secret.
fn host_of(url: &reqwest::Url) -> &str {
    url.host_str().unwrap_or("?")
}
