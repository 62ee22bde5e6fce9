//! Number of workers that a real worker reports to an autoscaler, also during an outage of Redis.

use reqwest::Client;
use serde_json::Value;

use super::orders;
use crate::support::{Fleet, PATIENCE, millis, secs};

/// KEDA's metrics-api scaler with a target of 1. It applies `replicas` of a successful response, and keeps the replica
/// count after any other response.
struct KedaScaler {
    client: Client,
    url: String,
    replicas: u64,
}

impl KedaScaler {
    async fn poll(&mut self) -> u16 {
        let answer = self.client.get(&self.url).send().await.unwrap();
        let status = answer.status().as_u16();
        if status == 200 {
            let body: Value = answer.json().await.unwrap();
            self.replicas = body["replicas"].as_u64().unwrap_or_else(|| panic!("no number: {body}"));
        }
        assert!(self.replicas >= 1, "a number is never none");
        status
    }

    /// Polls until it gets this status and runs this many replicas.
    async fn reach(&mut self, status: u16, replicas: u64) {
        let reached = async {
            while (self.poll().await, self.replicas) != (status, replicas) {
                tokio::time::sleep(millis(50)).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, reached).await.is_ok();
        assert!(in_time, "{} replicas, not {replicas} with {status}", self.replicas);
    }
}

/// The worker serves another queue, so the jobs of orders wait. The result does not depend on the machine's speed: 300
/// jobs of an assumed 50 ms within a minute are a quarter of a job at a time, with a target use of 10 % of one slot.
#[tokio::test]
async fn autoscaler_follows_load_and_survives_redis_loss() {
    let mut fleet = Fleet::with("1h", "[scale]\nmin = 1\nmax = 5\ntarget = 10\nper_worker = 1000\n").await;
    let (_worker, address) = fleet.spawn_showing("w1", &["work", "--queues", "periodic-queue"]).await;
    let group = "queues=dispatch-queue&concurrency=1";
    let client = foundation::outbound::build_client(secs(30)).unwrap();
    let mut keda = KedaScaler { client, url: format!("http://{address}/admin/scale?{group}"), replicas: 1 };
    keda.reach(200, 1).await;

    orders(&fleet, "ORD", 300).await;
    keda.reach(200, 3).await;
    // Another process, to which a Service may also route, answers the same.
    let (_api, of_api) = fleet.spawn_showing("api", &["serve"]).await;
    let mut other =
        KedaScaler { client: keda.client.clone(), url: format!("http://{of_api}/admin/scale?{group}"), replicas: 1 };
    other.reach(200, 3).await;

    // The data in the restarted Redis is complete only after a rebuild from the rows.
    fleet.redis.kill().await;
    keda.reach(503, 3).await;
    fleet.redis.restart().await.unwrap();
    fleet.reach(2, "SELECT count(*) FROM reconcile_log WHERE rebuild").await;
    keda.reach(200, 3).await;

    orders(&fleet, "MORE", 400).await;
    keda.reach(200, 5).await;
    let most: Value = keda.client.get(&keda.url).send().await.unwrap().json().await.unwrap();
    assert_eq!((&most["bound"], &most["by_load"]), (&"max".into(), &6.into()), "{most}");
    assert_eq!(most["queues"][0]["due"], 700, "{most}");

    // An invalid query returns an error and no number.
    let asked = async |query: &str| {
        let url = format!("http://{address}/admin/scale?{query}");
        keda.client.get(url).send().await.unwrap().status().as_u16()
    };
    assert_eq!(asked("queues=mail-queue").await, 404);
    assert_eq!(asked("queue=dispatch-queue").await, 422);
    assert_eq!(asked("").await, 200, "all queues");
}
