//! `dispatchq run`: the API and a worker in one process.

use foundation::outbound::build_client;
use serde_json::json;

use crate::support::{Fleet, Printed, run_binary, secs};

const WITHDRAWN: &str = "SELECT count(*) FROM orders WHERE closed_at IS NOT NULL";

#[tokio::test]
async fn run_creates_orders_and_ends_them() {
    let mut fleet = Fleet::with_lifetime("2s").await;
    let key = fleet.run(&["apikey", "create", "shop", "--role", "producer"]).stdout.trim().to_owned();
    fleet.redis.kill().await;
    let (mut process, base) = fleet.listening("run", &["run"], &[]).await;
    let order =
        json!({ "order_id": "ORD-1", "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } });
    let client = build_client(secs(30)).unwrap();
    let answer = client.post(format!("{base}/api/v1/orders")).bearer_auth(&key).json(&order).send().await.unwrap();
    assert_eq!(answer.status(), 201, "run accepts orders without Redis");
    fleet.redis.restart().await.unwrap();
    fleet.reach(1, WITHDRAWN).await;
    process.terminate();
    assert_eq!(process.ended().await.code(), Some(0));
    assert!(process.settled_and_refused().0 > 0, "{}", process.log());
}

#[tokio::test]
async fn failing_half_stops_run() {
    let fleet = Fleet::start().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let Printed { code, stderr, .. } = run_binary(fleet.dir(), &["run", "--bind", &address], &[]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("cannot listen") && stderr.contains(&address), "{stderr}");
    let unknown = fleet.run(&["run", "--queues", "odd-queue"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("no queue 'odd-queue'"), "{unknown:?}");
}
