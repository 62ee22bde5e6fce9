//! Commands for bindings and servers, and the answers to commands that are refused.

use model::binding::{BindingCommand, BindingConflict, BindingPhase, BindingState, StopReason};
use provider_sim::{ProviderSim, ProviderSimOptions};
use serde_json::json;

use bindings::{
    change::ChangedBinding,
    commands::{self, NewBinding},
    error::BindingError,
    explain::gather,
    registry::{RedisWorkerRegistry, WorkerRegistry},
    servers,
    store::servers::ServerSettings,
};
use test_support::{ProviderStage, binding_id, by, eventually, secs};

async fn refused(stage: &ProviderStage, id: &str, command: BindingCommand) -> BindingError {
    commands::command_binding(&stage.t.app.bindings, &binding_id(id), &command, &by("operator:ops")).await.unwrap_err()
}

const STOP: BindingCommand = BindingCommand::Stop { reason: StopReason::ManualStop };

#[tokio::test]
async fn refused_binding_command_names_the_cure() {
    let stage = ProviderStage::start().await;
    stage.create_binding("B", "S1", json!({})).await;
    let not_running = |error| matches!(error, BindingError::Conflict(BindingConflict::NotRunning));
    assert!(not_running(refused(&stage, "B", BindingCommand::Pause).await));
    assert!(not_running(refused(&stage, "B", BindingCommand::Resume).await));
    let actor = by("operator:ops");
    let again = commands::command_binding(&stage.t.app.bindings, &binding_id("B"), &STOP, &actor).await.unwrap();
    assert!(matches!(again, ChangedBinding::No(_, "STOPPED already")), "{again:?}");
    assert_eq!(stage.command("B", BindingCommand::Start).await.state, BindingState::Running);
    assert_eq!(stage.command("B", BindingCommand::Start).await.version, 1, "a second start writes nothing");
    assert_eq!(stage.command("B", BindingCommand::Pause).await.state, BindingState::Paused);
    let paused = refused(&stage, "B", BindingCommand::Start).await;
    assert!(paused.to_string().contains("resume it"), "{paused}");
    let delete = refused(&stage, "B", BindingCommand::Delete).await;
    assert!(delete.to_string().contains("stop it"), "{delete}");
    stage.stop("B").await;
    stage.command("B", BindingCommand::Delete).await;
    assert!(matches!(
        refused(&stage, "B", BindingCommand::Start).await,
        BindingError::Conflict(BindingConflict::Deleted)
    ));
    assert!(matches!(refused(&stage, "X", BindingCommand::Start).await, BindingError::NotFound(_)));
}

#[tokio::test]
async fn bad_bindings_and_servers_are_refused_with_their_cure() {
    let stage = ProviderStage::start().await;
    let create = async |new: serde_json::Value| {
        let new: NewBinding = serde_json::from_value(new).unwrap();
        commands::create_binding(&stage.t.app.bindings, &new, &by("operator:ops")).await
    };
    let binding = |id: &str, server: &str, config: serde_json::Value| json!({ "id": id, "server_id": server, "account_id": "A", "config": config });
    let said = async |new| create(new).await.unwrap_err().to_string();
    assert!(said(binding("B", "nowhere", json!({}))).await.contains("server 'nowhere' does not exist"));
    assert!(said(binding("B", "S1", json!({ "interval_ms": [0, 0] }))).await.contains("expected 1 to"));
    create(binding("B", "S1", json!({}))).await.unwrap();
    assert!(matches!(create(binding("B", "S1", json!({}))).await, Err(BindingError::Exists(_))));

    let set = async |id: &str, settings: ServerSettings| {
        let id = id.parse().unwrap();
        servers::create_server(&stage.t.app.bindings, &id, &settings, &by("operator:ops"))
            .await
            .unwrap_err()
            .to_string()
    };
    let good = ServerSettings {
        provider: Some("sim".into()),
        base_url: Some("http://127.0.0.1:1/x".to_owned()),
        ..ServerSettings::default()
    };
    assert!(set("S1", good.clone()).await.contains("exists already"));
    assert!(
        set("S9", ServerSettings { provider: Some("acme".into()), ..good.clone() }).await.contains("[providers.acme]")
    );
    assert!(set("S9", ServerSettings { base_url: Some("ftp://x".to_owned()), ..good.clone() }).await.contains("http"));
    assert!(set("S9", ServerSettings { max_concurrent: Some(0), ..good.clone() }).await.contains("disable the server"));
    assert!(set("S9", ServerSettings { base_url: None, ..good }).await.contains("needs provider and base_url"));
    let limit = servers::change_total_limit(&stage.t.app.bindings, Some(0), &by("operator:ops")).await.unwrap_err();
    assert!(limit.to_string().contains("expected 1 to"), "{limit}");
}

#[tokio::test]
async fn a_disabled_server_stops_its_bindings_at_their_next_cycle() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({})).await;
    stage.t.run_for(secs(2)).await;
    let disable = |enabled| ServerSettings { enabled: Some(enabled), ..ServerSettings::default() };
    let (server, actor) = ("S1".parse().unwrap(), by("operator:ops"));
    servers::change_server(&stage.t.app.bindings, &server, &disable(false), &actor).await.unwrap();
    let begun = stage.headers("B").await.len();
    stage.t.run_for(secs(5)).await;
    let row = stage.binding("B").await;
    assert_eq!((row.state, row.reason), (BindingState::Stopped, Some(StopReason::ServerDisabled)));
    assert_eq!(stage.headers("B").await.len(), begun);
    let error = refused(&stage, "B", BindingCommand::Start).await;
    assert!(error.to_string().contains("enable it first"), "{error}");
    servers::change_server(&stage.t.app.bindings, &server, &disable(true), &actor).await.unwrap();
    assert_eq!(stage.command("B", BindingCommand::Start).await.state, BindingState::Running);
}

// Rule F33: Bindings on a row whose host the configuration does not list stop with a clear reason, and nothing is sent
// there.
#[tokio::test]
async fn unlisted_host_stops_its_bindings_unsent() {
    let stage = ProviderStage::start().await;
    let elsewhere = ProviderSim::start(&ProviderSimOptions::default()).await.unwrap();
    stage.run_binding("B", "S1", json!({})).await;
    stage.t.run_for(secs(2)).await;
    let begun = stage.headers("B").await.len();
    // The API never writes this address, but SQL can.
    let url = elsewhere.server_url("S1").replace("127.0.0.1", "localhost");
    stage.t.sql(&format!("UPDATE provider_servers SET base_url = '{url}', version = version + 1")).await;
    stage.t.run_for(secs(5)).await;
    let row = stage.binding("B").await;
    assert_eq!((row.state, row.reason), (BindingState::Stopped, Some(StopReason::ServerNotAllowed)));
    assert_eq!((stage.headers("B").await.len(), elsewhere.read_report().judge.calls), (begun, 0));
    let explained = gather::explain_binding(&stage.t.app.bindings, &binding_id("B")).await.unwrap();
    assert!(explained.why.contains("does not allow calls to the address of server S1"), "{}", explained.why);
    let cure = explained.to_do.iter().map(|advice| advice.text.as_str()).collect::<Vec<_>>().join("; ");
    assert!(cure.contains("hosts does not list the host localhost"), "{cure}");
}

#[tokio::test]
async fn limits_can_be_set_while_calls_are_made() {
    let stage = ProviderStage::start().await;
    for n in 0..8 {
        stage.run_binding(&format!("B{n}"), "S1", json!({ "interval_ms": [100, 100] })).await;
    }
    let settings = ServerSettings { max_concurrent: Some(1), ..ServerSettings::default() };
    servers::change_server(&stage.t.app.bindings, &"S1".parse().unwrap(), &settings, &by("operator:ops"))
        .await
        .unwrap();
    servers::change_total_limit(&stage.t.app.bindings, Some(1), &by("operator:ops")).await.unwrap();
    stage.turn_knobs(|knobs| (knobs.max_open, knobs.max_open_per_server) = (1, 1));
    stage.t.run_for(secs(2)).await;
    let stats = stage.t.app.core.store.slot_stats(&["S1"]).await.unwrap();
    assert_eq!((stats.limit, stats.groups[0].limit), (1, 1));
    let limit = servers::change_total_limit(&stage.t.app.bindings, None, &by("operator:ops")).await.unwrap();
    assert_eq!((limit.max_concurrent_calls, limit.set_by_operator), (50, false));
    stage.assert_judge_content();
}

// Rule L3: The Redis keys of bindings have the types of the plan, and the worker writes the heartbeat.
#[tokio::test]
async fn worker_registry_contract_holds() {
    let stage = ProviderStage::start().await;
    stage.create_binding("B", "S1", json!({})).await;
    let (id, config) = (binding_id("B"), serde_json::from_value(json!({ "interval_ms": [1000, 1000] })).unwrap());
    let registry = RedisWorkerRegistry::new(stage.t.app.bindings.clone(), by("operator:ops"));
    assert!(registry.start(&id, config).await.unwrap());
    assert!(registry.pause(&id).await.unwrap() && !registry.pause(&id).await.unwrap());
    assert!(registry.resume(&id).await.unwrap());
    stage.t.run_for(secs(3)).await;
    let copied = async |key: &str, field: &str| {
        stage.t.redis::<Option<String>>(&["HGET", &format!("wrk:{key}:B"), field]).await.unwrap_or_default()
    };
    let row = stage.binding("B").await;
    eventually("the copies are those of the row", || async {
        copied("state", "version").await == row.version.to_string()
    })
    .await;
    assert_eq!(
        (copied("state", "state").await, copied("cfg", "interval_ms").await),
        ("RUNNING".into(), "[1000,1000]".into())
    );
    assert_eq!(
        (copied("state", "cycle").await, copied("state", "phase").await),
        (row.cycle.to_string(), "IDLE".into())
    );
    let kinds = async |key: &str| stage.t.redis::<String>(&["TYPE", &format!("wrk:{key}:B")]).await;
    assert_eq!([kinds("state").await, kinds("cfg").await, kinds("hb").await], ["hash", "hash", "string"]);
    let beat: i64 = stage.t.redis(&["GET", "wrk:hb:B"]).await;
    assert!((row.updated_at.timestamp_millis() - beat).abs() <= 3_000, "the worker was at work at {beat}");
    let commands: i64 = stage.t.redis(&["XLEN", "wrk:cmd"]).await;
    assert_eq!(commands, 3, "start, pause, resume");
    assert!(registry.stop(&id, StopReason::ManualStop).await.unwrap());
    let state = registry.get_state(&id).await.unwrap();
    assert_eq!((state.state.as_str(), state.reason.as_deref(), state.stale), ("STOPPED", Some("manual_stop"), false));

    assert!(!registry.acquire_lock(&id, "me", secs(30)).await.unwrap(), "no call is open");
}

#[tokio::test]
async fn state_is_marked_stale_without_postgres() {
    let mut stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({})).await;
    eventually("the copy is there", || async { stage.t.redis::<i64>(&["EXISTS", "wrk:state:B"]).await == 1 }).await;
    let registry = RedisWorkerRegistry::new(stage.t.app.bindings.clone(), by("operator:ops"));
    stage.t.postgres.kill().await;
    let state = registry.get_state(&binding_id("B")).await.unwrap();
    assert_eq!((state.state.as_str(), state.stale), ("RUNNING", true));
}

// Rule L3: `acquire_lock` follows the claim of the row: only the owner holds the lock while the owner's call is open.
#[tokio::test]
async fn lock_is_the_claim_of_the_row() {
    let stage = ProviderStage::start().await;
    stage.turn_knobs(|knobs| knobs.latency = "1500ms".parse().unwrap());
    stage.run_binding("B", "S1", json!({})).await;
    let (id, registry) = (binding_id("B"), RedisWorkerRegistry::new(stage.t.app.bindings.clone(), by("operator:ops")));
    let looking = async {
        eventually("a call is open", || async { stage.binding("B").await.phase == BindingPhase::Calling }).await;
        let owner = &stage.t.texts("SELECT owner FROM transaction_snapshots WHERE part = 'claim'").await[0];
        assert!(registry.acquire_lock(&id, owner, secs(30)).await.unwrap());
        assert!(registry.refresh_lock(&id, owner, secs(30)).await.unwrap());
        assert!(!registry.acquire_lock(&id, "another", secs(30)).await.unwrap());
        assert!(!registry.release_lock(&id, owner).await.unwrap(), "its call is open");
        owner.clone()
    };
    let (_, owner) = tokio::join!(stage.t.run_due(), looking);
    assert!(!registry.acquire_lock(&id, &owner, secs(30)).await.unwrap(), "the call has ended");
    assert!(registry.release_lock(&id, &owner).await.unwrap());
}
