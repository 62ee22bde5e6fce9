//! Webhook endpoints that producers create by API.
//!
//! * `delivery`: which endpoint gets which event. `states`: paused and deleted endpoints. `secrets`: signatures and their
//!   rotation. `addresses`: addresses that become forbidden. `replays`: events that are sent again. `stale`: processes with
//!   old subscriptions. `shares`: places that the endpoints of one producer share.

mod addresses;
mod delivery;
mod replays;
mod secrets;
mod shares;
mod stale;
mod states;

use reqwest::Method;
use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use test_support::{Answer, Api, Received, Receiver, TestApp};

const ENDPOINTS: &str = "/api/v1/webhook-endpoints";

/// The producer `test`, which owns the orders of tests, with a receiver on this machine.
struct Shop {
    t: TestApp,
    api: Api,
    receiver: Receiver,
    key: String,
}

impl Shop {
    async fn open() -> Self {
        let receiver = Receiver::start().await;
        let t = TestApp::with(|config| config.http.local_webhooks = true).await;
        let (api, key) = (Api::start(&t.app).await, t.key_named("test", AccountRole::Producer, None).await);
        Self { t, api, receiver, key }
    }

    /// Creates an endpoint at this path of the receiver.
    async fn create(&self, path: &str, events: &[&str]) -> Answer {
        let body = json!({ "url": self.receiver.url(path), "events": events });
        let made = self.api.post(ENDPOINTS, &self.key, body).await;
        assert_eq!(made.status, 201, "{made:?}");
        made
    }

    async fn post(&self, id: &str, verb: &str, body: Value) -> Answer {
        self.api.post(&format!("{ENDPOINTS}/{id}/{verb}"), &self.key, body).await
    }

    async fn delete(&self, id: &str) -> Answer {
        self.api.send(Method::DELETE, &format!("{ENDPOINTS}/{id}"), &self.key, "", "").await
    }

    /// Returns the cursor at the end of the stream.
    async fn cursor(&self) -> String {
        self.api.get("/api/v1/events?limit=1000", &self.key).await.text("next").to_owned()
    }

    /// Returns type and order of the accepted events at this path, sorted by `seq`.
    fn told(&self, path: &str) -> Vec<String> {
        let mut taken: Vec<Received> = self.receiver.received();
        taken.retain(|message| message.path == path && message.answer == 204);
        taken.sort_by_key(|message| message.body["data"]["seq"].as_i64());
        let told = taken.iter().map(|message| {
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!("{} {}", word(&message.body["type"]), word(&message.body["data"]["order_id"]))
        });
        told.collect()
    }
}
