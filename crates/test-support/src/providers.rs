//! Bindings on a simulated provider.

use model::binding::{Binding, BindingCommand, BindingId, StopReason, TransactionHeader};
use provider_sim::{ProviderKnobs, ProviderSim, ProviderSimOptions};
use serde_json::{Value, json};

use crate::{TestApp, by};
use bindings::{
    change::ChangedBinding,
    commands::{self, NewBinding},
    otp_seal::PlainOtp,
    servers,
    store::servers::ServerSettings,
};
use settings::{Config, ProviderConfig};

/// 32 bytes in base64.
pub const OTP_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// The application, and the provider that its bindings call.
#[derive(Debug)]
pub struct ProviderStage {
    pub t: TestApp,
    pub sim: ProviderSim,
}

impl ProviderStage {
    /// Starts with a stopped clock, a provider that answers without delay, and server `S1`.
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(configure: impl FnOnce(&mut Config)) -> Self {
        let options = ProviderSimOptions::default();
        let sim = ProviderSim::start(&options).await.unwrap();
        sim.change_knobs(|knobs| knobs.latency = "0ms".parse().unwrap()).unwrap();
        let t = TestApp::with(|config| {
            let provider = ProviderConfig {
                api_key: options.api_key.clone(),
                hosts: vec!["127.0.0.1".to_owned()],
                allow_private: true,
                ..ProviderConfig::default()
            };
            config.providers.insert("sim".into(), provider);
            config.bindings.otp_key = OTP_KEY.to_owned();
            configure(config);
        })
        .await;
        let stage = Self { t, sim };
        stage.create_server("S1", 2).await;
        stage
    }

    pub async fn create_server(&self, id: &str, max_concurrent: i32) {
        let settings = ServerSettings {
            provider: Some("sim".into()),
            base_url: Some(self.sim.server_url(id)),
            max_concurrent: Some(max_concurrent),
            ..ServerSettings::default()
        };
        servers::create_server(&self.t.app.bindings, &id.parse().unwrap(), &settings, &by("operator:ops"))
            .await
            .unwrap();
    }

    /// Creates a binding with an account of its own and these settings.
    pub async fn create_binding(&self, id: &str, server: &str, config: Value) -> Binding {
        let new = json!({ "id": id, "server_id": server, "account_id": format!("acct-{id}"), "config": config });
        let new: NewBinding = serde_json::from_value(new).unwrap();
        commands::create_binding(&self.t.app.bindings, &new, &by("operator:ops")).await.unwrap()
    }

    /// Like [`create_binding`](Self::create_binding), and starts the binding.
    pub async fn run_binding(&self, id: &str, server: &str, config: Value) -> Binding {
        self.create_binding(id, server, config).await;
        self.command(id, BindingCommand::Start).await
    }

    pub async fn command(&self, id: &str, command: BindingCommand) -> Binding {
        let actor = by("operator:ops");
        let changed = commands::command_binding(&self.t.app.bindings, &binding_id(id), &command, &actor).await.unwrap();
        changed.binding().clone()
    }

    pub async fn stop(&self, id: &str) -> Binding {
        self.command(id, BindingCommand::Stop { reason: StopReason::ManualStop }).await
    }

    pub async fn submit_otp(
        &self,
        id: &str,
        trx_id: &str,
        otp: &str,
    ) -> Result<ChangedBinding, bindings::error::BindingError> {
        let otp = PlainOtp::parse(otp.to_owned()).unwrap();
        let trx_id = trx_id.parse().unwrap();
        commands::submit_otp(&self.t.app.bindings, &binding_id(id), &trx_id, &otp, &by("support:desk")).await
    }

    pub async fn binding(&self, id: &str) -> Binding {
        self.t.app.bindings.rows.load_binding(&binding_id(id)).await.unwrap().expect("the binding exists").binding
    }

    /// Returns the transaction headers of a binding, by cycle.
    pub async fn headers(&self, id: &str) -> Vec<TransactionHeader> {
        let mut headers =
            bindings::list::list_transactions(&self.t.app.core, &binding_id(id), None, None, 1000).await.unwrap();
        headers.reverse();
        headers
    }

    /// Returns `action result` for each call of a binding, in order. The result of an open call is '-'.
    pub async fn calls(&self, id: &str) -> Vec<String> {
        self.t
            .texts(&format!(
                "SELECT c.action || ' ' || coalesce(e.result, '-') FROM transaction_snapshots c
                 LEFT JOIN transaction_snapshots e
                   ON (e.binding_id, e.cycle, e.call_no, e.part) = (c.binding_id, c.cycle, c.call_no, 'end')
                 WHERE c.binding_id = '{id}' AND c.part = 'claim' ORDER BY c.call_no"
            ))
            .await
    }

    pub fn turn_knobs(&self, change: impl FnOnce(&mut ProviderKnobs)) {
        self.sim.change_knobs(change).unwrap();
    }

    /// Asserts that the provider saw no overlap, no excess admission, no differing key, no gap and no cycle that goes
    /// backwards.
    pub fn assert_judge_content(&self) {
        let judge = self.sim.read_report().judge;
        let faults = [judge.overlaps, judge.over_admissions, judge.keys_differing, judge.gaps, judge.cycles_backwards];
        assert_eq!(faults, [0; 5], "{judge:?}");
    }
}

pub fn binding_id(id: &str) -> BindingId {
    id.parse().unwrap()
}
