//! Redis as in production: with TLS, sentinels, a cluster, and full memory.

use serde_json::{Value, json};
use servers::{RedisCluster, RedisServer, SentinelGroup};

use super::{assert_all_well, orders};
use crate::support::{Crowd, Fleet, eventually, hire, redis_command, run_binary, secs, send_until_answered};
use accounts::{api_keys::AccountRole, key_admin};
use app::App;
use queue::store::key_slot;

#[tokio::test]
async fn redis_may_be_encrypted_by_an_authority_of_ones_own() {
    let fleet = Fleet::start().await;
    let tls = fleet.redis.serve_tls().await.unwrap();
    let (url, authority) = (tls.url(), tls.root_certificate().display().to_string());
    let trusting = [("DISPATCHQ_REDIS__URL", url.as_str()), ("DISPATCHQ_REDIS__ROOT_CERTIFICATE", &authority)];
    assert_eq!(run_binary(fleet.dir(), &["config", "check"], &trusting).code, Some(0));
    let doctor = run_binary(fleet.dir(), &["doctor", "--json"], &trusting);
    let findings: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let redis = findings.as_array().unwrap().iter().find(|f| f["what"] == "redis").unwrap();
    assert_eq!((redis["verdict"].as_str(), redis["detail"].as_str()), (Some("ok"), Some(url.as_str())));

    // Without this root certificate no server is trusted.
    let printed = run_binary(fleet.dir(), &["work"], &trusting[..1]);
    assert_eq!(printed.code, Some(1));
    assert!(printed.stderr.contains("cannot reach Redis") && printed.stderr.contains("ertificate"), "{printed:?}");

    let _worker = fleet.worker_with("w1", &trusting);
    hire(&fleet.app, 20).await;
    let _crowd = Crowd::start(&fleet.app);
    orders(&fleet, "ORD", 30).await;
    fleet.at_rest().await;
    assert_all_well(&fleet).await;
}

/// Starts a replica of this primary and waits until it is in sync.
pub(super) async fn start_replica(primary: &RedisServer) -> RedisServer {
    let replica = RedisServer::start().await.unwrap();
    redis_command::<()>(&replica.url(), &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).await;
    redis_command::<()>(&primary.url(), &["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await;
    eventually("the replica follows", || async {
        redis_command::<String>(&replica.url(), &["INFO", "replication"]).await.contains("master_link_status:up")
    })
    .await;
    replica
}

#[tokio::test]
async fn a_failover_to_a_replica_loses_no_order() {
    let mut fleet = Fleet::start().await;
    let _replica = start_replica(&fleet.redis).await;
    let sentinels = SentinelGroup::start(&fleet.redis).await.unwrap();
    let url = sentinels.url();
    let mut config = (*fleet.app.config).clone();
    config.redis.url.clone_from(&url);
    fleet.app = App::connect(config).await.unwrap();
    let settings = [("DISPATCHQ_REDIS__URL", url.as_str())];
    let mut workers = [fleet.worker_with("w1", &settings), fleet.worker_with("w2", &settings)];
    hire(&fleet.app, 40).await;
    orders(&fleet, "ORD", 30).await;
    fleet.reach(30, "SELECT count(*) FROM offers").await;

    fleet.redis.kill().await;
    orders(&fleet, "MEANWHILE", 5).await;
    // The new primary is another process, so all timers are compared. It may lack the latest ones.
    fleet.reach(2, "SELECT count(*) FROM reconcile_log WHERE rebuild").await;
    let _crowd = Crowd::start(&fleet.app);
    orders(&fleet, "LATER", 20).await;
    fleet.at_rest().await;
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await, 55);
    assert_all_well(&fleet).await;
    for worker in &mut workers {
        worker.terminate();
        assert_eq!(worker.ended().await.code(), Some(0));
    }
}

/// The master with the queue's keys dies. Then another master is flushed. Each has some of the waiting sets and
/// indexes.
#[tokio::test]
async fn a_cluster_that_loses_masters_loses_no_order() {
    let mut fleet = Fleet::start().await;
    let mut cluster = RedisCluster::start().await.unwrap();
    let url = cluster.url();
    let mut config = (*fleet.app.config).clone();
    config.redis.url.clone_from(&url);
    fleet.app = App::connect(config).await.unwrap();
    let settings = [("DISPATCHQ_REDIS__URL", url.as_str())];
    let mut workers = [fleet.worker_with("w1", &settings), fleet.worker_with("w2", &settings)];
    hire(&fleet.app, 40).await;
    orders(&fleet, "ORD", 30).await;
    fleet.reach(30, "SELECT count(*) FROM offers").await;

    let queue = RedisCluster::first_owner(key_slot(b"{dq:0}:epoch"));
    cluster.node_mut(queue).kill().await;
    orders(&fleet, "MEANWHILE", 5).await;
    // The replica is another process, so all timers are compared. It may lack the latest ones.
    fleet.reach(2, "SELECT count(*) FROM reconcile_log WHERE rebuild").await;
    redis_command::<()>(&cluster.nodes()[(queue + 1) % 3].url(), &["FLUSHALL"]).await;
    let _crowd = Crowd::start(&fleet.app);
    orders(&fleet, "LATER", 20).await;
    fleet.at_rest().await;
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await, 55);
    assert_all_well(&fleet).await;
    for worker in &mut workers {
        worker.terminate();
        assert_eq!(worker.ended().await.code(), Some(0));
    }
}

#[tokio::test]
async fn the_api_starts_without_redis_and_takes_orders() {
    let mut fleet = Fleet::start().await;
    hire(&fleet.app, 10).await;
    let (_, key) =
        key_admin::create_permanent_key(&fleet.app.core.db, "shop", AccountRole::Producer, None).await.unwrap();
    fleet.redis.kill().await;
    let (mut api, base) = fleet.api().await;
    assert!(api.log().contains("Redis does not respond"), "{}", api.log());
    let client = foundation::outbound::build_client(secs(30)).unwrap();
    let readiness = async || {
        let answer = client.get(format!("{base}/readyz")).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap()["degraded"].as_bool())
    };
    eventually("it is ready without Redis", || async { readiness().await == (200, Some(true)) }).await;
    let ride = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } });
    for _ in 0..5 {
        let order = client.post(format!("{base}/api/v1/orders")).bearer_auth(&key).json(&ride);
        assert_eq!(send_until_answered(order).await.status(), 201);
    }

    // The running process uses Redis as soon as it answers.
    fleet.redis.restart().await.unwrap();
    eventually("Redis is used", || async { readiness().await == (200, Some(false)) }).await;
    let _worker = fleet.running_worker("w1").await;
    let _crowd = Crowd::start(&fleet.app);
    fleet.at_rest().await;
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await, 5);
    assert_all_well(&fleet).await;
    api.terminate();
    assert_eq!(api.ended().await.code(), Some(0));
}

/// Redis evicts nothing: new timers are refused, existing ones fire, and refused ones are enqueued after memory is
/// free.
#[tokio::test]
async fn full_redis_finishes_work_and_delays_new_orders() {
    let fleet = Fleet::start().await;
    let fill = async |bytes: &str| {
        redis_command::<()>(&fleet.redis.url(), &["CONFIG", "SET", "maxmemory", bytes]).await;
    };
    let _workers = [fleet.worker("w1"), fleet.worker("w2")];
    hire(&fleet.app, 40).await;
    orders(&fleet, "ORD", 30).await;
    fleet.reach(30, "SELECT count(*) FROM offers").await;
    fill("1").await;
    orders(&fleet, "LATER", 10).await;
    let _crowd = Crowd::start(&fleet.app);
    fleet.reach(30, "SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await;
    let begun = "SELECT count(*) FROM offers WHERE order_id LIKE 'LATER%'";
    assert_eq!(fleet.count(begun).await, 0, "no timer of theirs went in");

    fill("0").await;
    fleet.at_rest().await;
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await, 40);
    assert_all_well(&fleet).await;
}
