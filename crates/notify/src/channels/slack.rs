//! The text of a message to a Slack incoming webhook. Slack cannot tell a repeated message; the order id is in the text.

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

/// The three characters by which mrkdwn mentions and links; what a customer wrote must mention no one.
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
    fn nobody_is_mentioned_by_what_a_customer_wrote() {
        assert_eq!(escape_slack("<!channel> R&D"), "&lt;!channel&gt; R&amp;D");
    }
}
