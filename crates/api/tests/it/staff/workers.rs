//! Workers over HTTP: their use of memory and processor, and their drains.

use jobs::queues;
use queue::store::WorkerInfo;
use serde_json::{Value, json};

use super::{because, recorded};
use accounts::api_keys::AccountRole;
use test_support::{Answer, Api, TestApp, secs, worker_info};

const WORKERS: &str = "/api/v1/admin/workers";
const DRAIN: &str = "/api/v1/admin/workers/00000000000000a1/drain";
const RESUME: &str = "/api/v1/admin/workers/00000000000000a1/resume";

/// An operator of the API, and a worker `w1` that serves the queues of drivers and of messages.
struct Fleet {
    t: TestApp,
    api: Api,
    operator: String,
}

impl Fleet {
    async fn start() -> Self {
        let t = TestApp::start().await;
        let api = Api::start(&t.app).await;
        let operator = t.key(AccountRole::Operator).await;
        let fleet = Self { t, api, operator };
        fleet.beat(&own_info()).await;
        fleet
    }

    async fn beat(&self, info: &WorkerInfo) {
        self.t.send_heartbeat("00000000000000a1", "w1", Some(info)).await;
    }

    async fn post(&self, path: &str) -> Answer {
        self.api.post(path, &self.operator, because("a new host")).await
    }

    /// Returns the worker `w1` in the list.
    async fn listed(&self) -> Value {
        let workers = self.api.get(WORKERS, &self.operator).await;
        let find = |list: &Vec<Value>| list.iter().find(|worker| worker["replica"] == "w1").cloned();
        workers.body["workers"].as_array().and_then(find).unwrap_or_default()
    }

    /// Sends a heartbeat that follows the stored request to drain.
    async fn confirm(&self, in_hand: usize) {
        let requested = "SELECT (extract(epoch FROM drained_at) * 1000)::bigint FROM worker_drains";
        let drain_ms = Some(self.t.count(requested).await.cast_unsigned());
        self.beat(&WorkerInfo { drain_ms, in_hand, ..own_info() }).await;
    }

    async fn state(&self) -> Value {
        self.listed().await["state"].clone()
    }
}

fn own_info() -> WorkerInfo {
    worker_info(&[queues::DISPATCH, queues::NOTIFY])
}

#[tokio::test]
async fn workers_are_listed_with_memory_and_processor() {
    let fleet = Fleet::start().await;
    let worker = fleet.listed().await;
    assert_eq!((&worker["resident_bytes"], &worker["cpu_percent"]), (&json!(54_525_952), &json!(12)));
    fleet.beat(&WorkerInfo { resident_bytes: None, cpu_percent: None, ..own_info() }).await;
    let worker = fleet.listed().await;
    assert_eq!((worker.get("resident_bytes"), worker.get("cpu_percent")), (None, None), "not known, not zero");
}

#[tokio::test]
async fn draining_worker_is_drained_after_its_jobs() {
    let fleet = Fleet::start().await;
    assert_eq!(fleet.state().await, "running");
    let drained = fleet.post(DRAIN).await;
    let shown = json!({ "boot": "00000000000000a1", "state": "draining", "changed": true,
                        "unserved_queues": [queues::DISPATCH, queues::NOTIFY] });
    assert_eq!((drained.status, &drained.body), (200, &shown));
    fleet.beat(&own_info()).await;
    assert_eq!(fleet.state().await, "draining", "it has not seen the request");
    fleet.beat(&WorkerInfo { drain_ms: Some(1), ..own_info() }).await;
    assert_eq!(fleet.state().await, "draining", "it has seen an earlier request");
    for (in_hand, state) in [(2, "draining"), (0, "drained")] {
        fleet.confirm(in_hand).await;
        assert_eq!(fleet.state().await, state, "{in_hand}");
    }
    let drain = &fleet.listed().await["drain"];
    assert_eq!((&drain["drained_by"], &drain["reason"]), (&json!("operator:test-operator"), &json!("a new host")));
    assert_eq!(fleet.post(RESUME).await.body["state"], "running");
    assert_eq!(fleet.listed().await.get("drain"), None);
}

#[tokio::test]
async fn workers_are_listed_by_heartbeats_if_drains_cannot_be_read() {
    let fleet = Fleet::start().await;
    fleet.t.sql("ALTER TABLE worker_drains RENAME TO hidden").await;
    assert_eq!(fleet.state().await, "running");
    for (in_hand, state) in [(2, "draining"), (0, "drained")] {
        fleet.beat(&WorkerInfo { drain_ms: Some(1), in_hand, ..own_info() }).await;
        assert_eq!(fleet.state().await, state, "{in_hand}");
    }
}

#[tokio::test]
async fn drain_is_recorded_once_until_resumed() {
    let fleet = Fleet::start().await;
    for (path, changed) in [(DRAIN, true), (DRAIN, false), (RESUME, true), (RESUME, false)] {
        assert_eq!(fleet.post(path).await.body["changed"], changed, "{path}");
    }
    let record = |action: &str| format!("{action} 00000000000000a1 operator:test-operator a new host");
    assert_eq!(recorded(&fleet.t).await, [record("WORKER_DRAINED"), record("WORKER_RESUMED")]);
    let values = "SELECT concat_ws(' ', old_value, new_value) FROM staff_actions ORDER BY id LIMIT 1";
    let values = fleet.t.texts(values).await.concat();
    assert!(values.contains("\"drained\": false") && values.contains("\"replica\": \"w1\""), "{values}");
}

#[tokio::test]
async fn drain_survives_lost_heartbeats_and_a_flush() {
    let fleet = Fleet::start().await;
    fleet.post(DRAIN).await;
    let _: () = fleet.t.redis(&["FLUSHALL"]).await;
    assert_eq!(fleet.listed().await, Value::Null);
    fleet.confirm(0).await;
    assert_eq!(fleet.state().await, "drained");
}

#[tokio::test]
async fn next_process_of_a_drained_replica_runs() {
    let fleet = Fleet::start().await;
    fleet.post(DRAIN).await;
    fleet.t.send_heartbeat("00000000000000a1", "w1", None).await;
    fleet.t.send_heartbeat("00000000000000a2", "w1", Some(&own_info())).await;
    assert_eq!(fleet.state().await, "running");
}

#[tokio::test]
async fn drain_names_queues_without_another_worker() {
    let fleet = Fleet::start().await;
    fleet.t.send_heartbeat("00000000000000b1", "w2", Some(&worker_info(&[queues::NOTIFY]))).await;
    let drained = fleet.post(DRAIN).await;
    assert_eq!(drained.body["unserved_queues"], json!([queues::DISPATCH]));
    let last = fleet.post("/api/v1/admin/workers/00000000000000b1/drain").await;
    assert_eq!(last.body["unserved_queues"], json!([queues::NOTIFY]), "the drained worker does not serve it");
    fleet.post(RESUME).await;
    fleet.t.advance(secs(30)).await;
    fleet.t.send_heartbeat("00000000000000b1", "w2", Some(&worker_info(&[queues::NOTIFY]))).await;
    let silent = fleet.post("/api/v1/admin/workers/00000000000000b1/drain").await;
    assert_eq!(silent.body["unserved_queues"], json!([queues::NOTIFY]), "a silent worker does not serve it");
}

#[tokio::test]
async fn unknown_worker_is_not_drained() {
    let fleet = Fleet::start().await;
    for id in ["00000000000000a2", "w1", "a%2Fb"] {
        for verb in ["drain", "resume"] {
            let path = format!("{WORKERS}/{id}/{verb}");
            assert_eq!(fleet.post(&path).await.error(), (404, "WORKER_NOT_FOUND"), "{path}");
        }
    }
    assert_eq!(fleet.api.post(DRAIN, &fleet.operator, json!({})).await.error(), (422, "INVALID"));
    assert_eq!(fleet.t.count("SELECT count(*) FROM worker_drains").await, 0);
}

#[tokio::test]
async fn staff_with_a_scope_may_not_drain() {
    let fleet = Fleet::start().await;
    let scope = "UPDATE api_keys SET scope = '{\"service_types\": [\"RIDE\"]}' WHERE role = 'operator'";
    fleet.t.sql(scope).await;
    assert_eq!(fleet.post(DRAIN).await.error(), (403, "OUT_OF_SCOPE"));
    assert_eq!(fleet.t.count("SELECT count(*) FROM worker_drains").await, 0);
}
