//! Recipients of a message: the channels of its route, or each dispatcher by the dispatcher's own channel.

use model::messages::{ChannelRoutes, Message, MessageAudience, MessageKind, StoredMessage, routes::PUSH};
use serde_json::Value;
use sqlx::PgExecutor;

/// Values of one outbox row of a message.
#[derive(Debug)]
pub struct MessageRecipient {
    pub channel: String,
    pub dedupe_key: String,
    pub payload: Value,
}

/// A user who gets the messages to dispatchers.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Dispatcher {
    id: String,
    name: String,
    channel: String,
}

/// Returns the dispatchers, if one of these messages is for them. Otherwise runs no statement.
pub async fn load_dispatchers(db: impl PgExecutor<'_>, messages: &[Message]) -> Result<Vec<Dispatcher>, sqlx::Error> {
    if messages.iter().all(|message| message.audience != MessageAudience::Dispatchers) {
        return Ok(Vec::new());
    }
    sqlx::query_as(
        "-- dispatchers
         SELECT id, name, channel FROM users WHERE role = 'dispatcher' AND disabled_at IS NULL ORDER BY id",
    )
    .fetch_all(db)
    .await
}

/// Returns the rows of a message. An offer also goes to the browsers of its driver, if push is configured. A message to dispatchers has one row per dispatcher, which names the user. The user's
/// address is read when the message is sent. If there is no dispatcher, the message uses its route.
pub fn find_recipients(
    routes: &ChannelRoutes,
    message: &Message,
    stored: &StoredMessage,
    dispatchers: &[Dispatcher],
) -> Vec<MessageRecipient> {
    if message.audience == MessageAudience::Dispatchers && !dispatchers.is_empty() {
        let addressed = dispatchers.iter().map(|user| MessageRecipient {
            channel: user.channel.clone(),
            dedupe_key: format!("{}:{}", message.dedupe_key, user.id),
            payload: stored.addressed_to(&user.id, &user.name).payload,
        });
        return addressed.collect();
    }
    let push = routes.pushes_offers && stored.known_kind() == Some(MessageKind::Offer);
    let channels = routes.channels_for(&message.audience).iter().map(String::as_str).chain(push.then_some(PUSH));
    let by_route = channels.map(|channel| MessageRecipient {
        channel: channel.to_owned(),
        dedupe_key: message.dedupe_key.clone(),
        payload: stored.payload.clone(),
    });
    by_route.collect()
}
