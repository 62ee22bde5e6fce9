//! Postgres is read-only for a while, as in a failover, and workers recover without help.

use serde_json::json;

use crate::support::{Crowd, Fleet, eventually, hire, millis, redis_command, secs};
use accounts::{api_keys::AccountRole, key_admin};

// Fault F2
#[tokio::test]
async fn workers_outlast_a_postgres_that_is_read_only() {
    let fleet = Fleet::with_lifetime("8s").await;
    let workers = [fleet.worker("w1"), fleet.worker("w2")];
    let (_api, api) = fleet.api().await;
    let key = key_admin::create_permanent_key(&fleet.app.core.db, "test", AccountRole::Producer, None).await.unwrap().1;
    let client = foundation::outbound::build_client(secs(10)).unwrap();
    let create = async |id: &str| {
        let new = json!({ "order_id": id, "service_type": "RIDE", "payment_status": "PAID",
                          "pickup": { "latitude": -6.2, "longitude": 106.8 } });
        let sent = client.post(format!("{api}/api/v1/orders")).bearer_auth(&key).json(&new).send().await.unwrap();
        (sent.status().as_u16(), sent.json::<serde_json::Value>().await.unwrap()["error_code"].clone())
    };
    hire(&fleet.app, 40).await;
    for n in 0..60 {
        assert_eq!(create(&format!("ORD-{n}")).await.0, 201);
    }
    fleet.reach(30, "SELECT count(*) FROM offers").await;

    fleet.set_read_only(true).await;
    for worker in &workers {
        eventually("the gate closes", || async { worker.log().contains("Postgres is read-only") }).await;
    }
    assert_eq!(create("NOT-NOW").await, (503, json!("DISPATCHER_SERVICE_UNAVAILABLE")));
    let ready = client.get(format!("{api}/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), 503);
    assert_eq!(ready.json::<serde_json::Value>().await.unwrap()["postgres"], "read_only");
    // Waits until all lifetimes are over, so that each order is due for its end.
    let in_time = "SELECT count(*) FROM orders WHERE closed_at IS NULL AND lifetime_deadline > now()";
    eventually("all lifetimes are over", || async {
        tokio::time::sleep(millis(200)).await;
        fleet.count(in_time).await == 0
    })
    .await;

    fleet.set_read_only(false).await;
    fleet.at_rest().await;
    let _crowd = Crowd::start(&fleet.app);
    assert_eq!(create("LATER").await.0, 201);
    fleet.at_rest().await;
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE closed_at IS NOT NULL").await, 61);
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE held_for_review").await, 0);
    let alarms = "SELECT count(*) FROM outbox WHERE kind IN ('TIMER_DEAD', 'STATUS_UPDATE_FAILED')";
    assert_eq!(fleet.count(alarms).await, 0);
    let dead: u64 = fleet.app.core.store.queue_stats(&jobs::queues::ALL).await.unwrap().iter().map(|s| s.dead).sum();
    assert_eq!(dead, 0);
    // Each value is `failed lost`. A busy machine may lose a lease.
    let tries: Vec<String> = redis_command(&fleet.redis.url(), &["HVALS", "{dq:0}:tries"]).await;
    assert!(tries.iter().all(|tries| tries.starts_with("0 ")), "a try was spent on an outage: {tries:?}");
    assert_eq!(maintenance::audit::check_history(&fleet.app.maintenance).await.unwrap(), []);
}
