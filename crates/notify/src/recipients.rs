//! Recipients of a message: the channels of its route, or each dispatcher by the dispatcher's own channel.

use model::messages::{ChannelRoutes, Message, MessageAudience, StoredMessage};
use serde_json::Value;

use foundation::db::Connection;

/// Values of one outbox row of a message.
pub(super) struct MessageRecipient {
    pub(super) channel: String,
    pub(super) dedupe_key: String,
    pub(super) payload: Value,
}

/// Returns the rows of a message. A message to dispatchers has one row per dispatcher, which names the user. The user's
/// address is read when the message is sent.
pub(super) async fn find_recipients(
    tx: &mut Connection,
    routes: &ChannelRoutes,
    message: &Message,
    stored: &StoredMessage,
) -> Result<Vec<MessageRecipient>, sqlx::Error> {
    if message.audience == MessageAudience::Dispatchers {
        let users: Vec<(String, String, String)> = sqlx::query_as(
            "-- dispatchers
             SELECT channel, id, name FROM users WHERE role = 'dispatcher' AND disabled_at IS NULL ORDER BY id",
        )
        .fetch_all(tx)
        .await?;
        // If there is no dispatcher, the message uses its route.
        if !users.is_empty() {
            let recipients = users.into_iter().map(|(channel, id, name)| MessageRecipient {
                channel,
                dedupe_key: format!("{}:{id}", message.dedupe_key),
                payload: stored.addressed_to(&id, &name).payload,
            });
            return Ok(recipients.collect());
        }
    }
    let by_route = routes.channels_for(&message.audience).iter().map(|channel| MessageRecipient {
        channel: channel.clone(),
        dedupe_key: message.dedupe_key.clone(),
        payload: stored.payload.clone(),
    });
    Ok(by_route.collect())
}
