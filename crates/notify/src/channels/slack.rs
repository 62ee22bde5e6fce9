//! Message texts to a Slack incoming webhook. Slack cannot detect a repeated message; the text contains the order id.

use std::fmt;

use model::messages::text::MessageText;
use reqwest::Url;
use serde_json::json;

use super::{DeliveryError, host_of, post};

#[derive(Clone)]
pub struct SlackChannel {
    url: Url,
}

impl SlackChannel {
    pub fn new(url: Url) -> Self {
        Self { url }
    }

    pub(super) async fn deliver(&self, client: &reqwest::Client, text: &MessageText) -> Result<(), DeliveryError> {
        post::send_request(client.post(self.url.clone()).json(&json!({ "text": escape_slack(&text.body) }))).await
    }
}

/// Escapes the three characters that mrkdwn uses for mentions and links. Text from a customer must not mention anyone.
fn escape_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl fmt::Debug for SlackChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slack({})", host_of(&self.url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customer_text_mentions_nobody() {
        assert_eq!(escape_slack("<!channel> R&D"), "&lt;!channel&gt; R&amp;D");
    }
}
