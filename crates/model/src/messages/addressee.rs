//! The dispatcher that a message is for. Each dispatcher gets a separate message with their own name.

use serde::{Deserialize, Serialize};

use super::body::StoredMessage;

/// Dispatcher that a message is for. Empty if the message was sent by the route alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addressee {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
}

impl StoredMessage {
    /// Returns the message addressed to this user.
    #[must_use]
    pub fn addressed_to(&self, id: &str, name: &str) -> Self {
        let mut addressed = self.clone();
        if let Some(fields) = addressed.payload.as_object_mut() {
            fields.insert("user_id".to_owned(), id.into());
            fields.insert("user_name".to_owned(), name.into());
        }
        addressed
    }
}
