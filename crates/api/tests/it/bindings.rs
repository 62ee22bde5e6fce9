//! Answers to operators of bindings, with real calls to a provider.

mod access;
mod lists;
mod otps;
mod plans;
mod provider_servers;
mod verbs;

use std::ops::Deref;

use provider_sim::{ProviderKnobs, ProviderSim, ProviderSimOptions};
use reqwest::Method;
use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use bindings::servers;
use settings::{Config, ProviderConfig};
use test_support::{Answer, Api, OTP_KEY, TestApp};

pub(super) const BINDINGS: &str = "/api/v1/bindings";
const SERVERS: &str = "/api/v1/provider-servers";

/// Configures a provider `acme` and a key for OTPs.
pub(super) fn configure_bindings(config: &mut Config) {
    let acme = ProviderConfig {
        api_key: "provider-sim-key".to_owned(),
        hosts: vec!["127.0.0.1".to_owned(), "s1.acme.example".to_owned()],
        allow_private: true,
        ..ProviderConfig::default()
    };
    config.providers.insert("acme".into(), acme);
    config.bindings.otp_key = OTP_KEY.to_owned();
}

/// dispatchq with the server S1 of a simulated provider, and the keys of an operator and of support.
struct Desk {
    t: TestApp,
    api: Api,
    /// `None` after the provider is stopped.
    sim: Option<ProviderSim>,
    operator: String,
    support: String,
}

impl Deref for Desk {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.t
    }
}

impl Desk {
    /// Starts with a provider that answers every call with success at once.
    async fn open() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(turn: impl FnOnce(&mut ProviderKnobs)) -> Self {
        let t = TestApp::with(configure_bindings).await;
        let mut options = ProviderSimOptions::default();
        options.knobs.latency = "0s".parse().unwrap();
        turn(&mut options.knobs);
        let sim = ProviderSim::start(&options).await.unwrap();
        let (api, operator) = (Api::start(&t.app).await, t.key(AccountRole::Operator).await);
        let support = t.key(AccountRole::Support).await;
        let desk = Self { t, api, sim: Some(sim), operator, support };
        assert_eq!(desk.create_server("S1").await.status, 201);
        // The reconciler does this every few seconds.
        servers::publish_limits(&desk.app.bindings).await.unwrap();
        desk
    }

    fn provider(&self) -> &ProviderSim {
        self.sim.as_ref().unwrap()
    }

    async fn create_server(&self, id: &str) -> Answer {
        let server =
            json!({ "id": id, "provider": "acme", "base_url": self.provider().server_url(id), "reason": "a test" });
        self.post(SERVERS, server).await
    }

    async fn create(&self, id: &str, config: Value) -> Answer {
        let body = json!({ "id": id, "server_id": "S1", "account_id": format!("A-{id}"), "config": config });
        self.post(BINDINGS, body).await
    }

    /// Creates and starts a binding.
    async fn run_binding(&self, id: &str, config: Value) {
        assert_eq!(self.create(id, config).await.status, 201);
        assert_eq!(self.verb(id, "start").await.status, 200);
    }

    async fn verb(&self, id: &str, verb: &str) -> Answer {
        self.api.send(Method::POST, &format!("{BINDINGS}/{id}/{verb}"), &self.operator, "", "").await
    }

    async fn get(&self, path: &str) -> Answer {
        self.api.get(path, &self.operator).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.api.post(path, &self.operator, body).await
    }

    async fn patch(&self, path: &str, body: Value) -> Answer {
        self.api.send(Method::PATCH, path, &self.operator, "", body.to_string()).await
    }

    async fn delete(&self, id: &str) -> Answer {
        self.api.send(Method::DELETE, &format!("{BINDINGS}/{id}"), &self.operator, "", "").await
    }

    /// Returns the state and phase of a binding.
    async fn standing(&self, id: &str) -> (String, String) {
        let shown = self.get(&format!("{BINDINGS}/{id}")).await;
        (shown.text("state").to_owned(), shown.text("phase").to_owned())
    }
}

/// Returns the state, the `changed` flag and the note of an answer to a verb.
fn outcome(answer: &Answer) -> (&str, bool, &str) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let note = answer.body["note"].as_str().unwrap_or("");
    (answer.body["binding"]["state"].as_str().unwrap(), answer.body["changed"].as_bool().unwrap(), note)
}
