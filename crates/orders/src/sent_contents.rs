//! Contents of orders in messages about their steps. A stored message has only the mark `has_contents`, and the contents
//! are read when it is sent. So an erasure has nothing to remove from the messages, and a later try sends no erased value.

use std::borrow::Cow;

use foundation::db::Pool;
use model::messages::{MessageKind, StoredMessage};
use serde_json::{Value, json};

use crate::details::load_event_contents;

const MARK: &str = "has_contents";

/// Returns the message as it is sent: the current contents of its order replace the mark. A message without the mark is
/// returned unchanged, without a statement.
pub async fn with_contents<'a>(db: &Pool, message: &'a StoredMessage) -> Result<Cow<'a, StoredMessage>, sqlx::Error> {
    let is_step = matches!(message.known_kind(), Some(MessageKind::Step(_)));
    let Value::Object(payload) = &message.payload else { return Ok(Cow::Borrowed(message)) };
    if !is_step || payload.get(MARK) != Some(&Value::Bool(true)) {
        return Ok(Cow::Borrowed(message));
    }
    let order = payload.get("order_id").and_then(Value::as_str).unwrap_or_default();
    let contents = load_event_contents(db, &[order]).await?.remove(order).unwrap_or_default();
    let mut sent = payload.clone();
    sent.shift_remove(MARK);
    if let Value::Object(members) = json!(contents) {
        sent.extend(members);
    }
    Ok(Cow::Owned(StoredMessage { kind: message.kind.clone(), payload: Value::Object(sent) }))
}
