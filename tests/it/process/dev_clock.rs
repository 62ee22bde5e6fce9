//! The test clock of a real `dispatchq dev`.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::Client;
use serde_json::{Value, json};

use super::dev::line;
use crate::support::{Child, eventually, http_client, secs};

/// Much longer than the life takes, which is less than a second on a usual machine.
const GENEROUS: Duration = secs(60);

/// A running `dispatchq dev`.
struct Dev {
    client: Client,
    base: String,
    key: String,
}

impl Dev {
    async fn get(&self, path: &str) -> Value {
        let answer = self.client.get(format!("{}{path}", self.base)).bearer_auth(&self.key).send().await.unwrap();
        answer.json().await.unwrap()
    }

    /// Sends a request that must succeed.
    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.base)).bearer_auth(&self.key).json(&body);
        let answer = request.send().await.unwrap();
        let (status, body): (_, Value) = (answer.status(), answer.json().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {body}");
        body
    }

    async fn advance(&self, order: &str, to: &str) {
        self.post("/dev/advance", json!({ "order": order, "to": to })).await;
    }

    async fn hire(&self, driver: &str, latitude: f64) {
        let driver = json!({ "id": driver, "service_types": ["RIDE"], "latitude": latitude, "longitude": 106.8456,
                             "available": true, "reason": "test" });
        self.post("/api/v1/drivers", driver).await;
    }

    /// Waits until the order is offered to the driver, and returns the offer's id.
    async fn offer_to(&self, driver: &str) -> String {
        let path = format!("/api/v1/drivers/{driver}/offers?wait_sec=0");
        let offers = async || self.get(&path).await["offers"].as_array().cloned().unwrap_or_default();
        eventually("the driver has an offer", || async { !offers().await.is_empty() }).await;
        offers().await[0]["offer_id"].as_str().unwrap().to_owned()
    }

    async fn create(&self, order: &str, pickup_at: Option<DateTime<Utc>>) {
        let place = json!({ "latitude": -6.2088, "longitude": 106.8456 });
        let mut body = json!({ "order_id": order, "service_type": "RIDE", "pickup": place });
        if let Some(pickup_at) = pickup_at {
            body["pickup_at"] = pickup_at.to_rfc3339().into();
        }
        self.post("/api/v1/orders", body).await;
    }
}

#[tokio::test]
async fn dev_drives_whole_lives_with_its_test_clock() {
    // Postgres may have to run as another user, who needs access to the directory.
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in("/var/tmp").unwrap();
    let args = ["dev", "--bind", "127.0.0.1:0", "--speed", "2"];
    let mut process = Child::spawn(dir.path(), "dev", &args, &[]);
    eventually("dev is up", || async { process.log().contains("Press Ctrl-C to stop") }).await;
    let base = line(&process, "API").strip_suffix("/api/v1/orders").unwrap().to_owned();
    let dev = Dev { client: http_client(), base, key: line(&process, "Key") };
    assert_eq!(line(&process, "Speed"), "2");
    let settings = std::fs::read_to_string(dir.path().join(".dispatchq/config.toml")).unwrap();
    assert_eq!(settings.parse::<toml::Table>().unwrap()["dispatch"]["lifetime"].as_str(), Some("15m"));
    dev.hire("NEAR", -6.2080).await;
    dev.hire("FAR", -6.2000).await;

    let begun = Instant::now();
    dev.create("LATER", Some(Utc::now() + TimeDelta::days(1))).await;
    dev.advance("LATER", "pickup_at").await;
    dev.offer_to("NEAR").await;
    dev.advance("LATER", "attempt_deadline").await;
    let offer = dev.offer_to("FAR").await;
    dev.post("/api/v1/orders/LATER/accept", json!({ "driver_id": "FAR", "offer_id": offer })).await;
    dev.post("/api/v1/orders/LATER/pickup", json!({ "driver_id": "FAR" })).await;
    let ended = dev.post("/api/v1/orders/LATER/complete", json!({ "driver_id": "FAR" })).await;
    assert_eq!(ended["status"], "COMPLETED");
    let life = begun.elapsed();
    println!("A whole life took {life:?}.");
    assert!(life < GENEROUS, "{life:?}");

    dev.create("ENDED", None).await;
    dev.advance("ENDED", "lifetime").await;
    eventually("the order ends with its lifetime", || async {
        dev.get("/api/v1/orders/ENDED").await["status"] == "CANCELLED_BY_SYSTEM"
    })
    .await;
    let checked = dev.get("/api/v1/admin/history-check").await;
    // The bindings of `dev` run at the same time.
    let of_orders = |violation: &&Value| ["LATER", "ENDED"].iter().any(|order| violation["subject"] == **order);
    let violations: Vec<&Value> = checked["violations"].as_array().unwrap().iter().filter(of_orders).collect();
    assert!(violations.is_empty(), "{violations:?}");
    process.terminate();
    assert_eq!(process.ended().await.code(), Some(0));
}
