//! Postgres as in production: with a standby that takes over, and restored from a backup.

use std::collections::{BTreeMap, BTreeSet};

use servers::TcpProxy;

use super::{assert_all_well, orders};
use crate::support::{Crowd, Fleet, Receiver, eventually, hire, redis_command};
use app::{App, settings};
use maintenance::recovery::repair;

const COMPLETED: &str = "SELECT count(*) FROM orders WHERE status = 'COMPLETED'";

/// The old primary first refuses writes, as in a planned switchover. Its commits until then have reached the standby.
#[tokio::test]
async fn a_failover_of_postgres_loses_no_order_and_holds_none() {
    let mut fleet = Fleet::start().await;
    let proxy = TcpProxy::start(fleet.postgres.port()).await.unwrap();
    let port = |port: u16| format!(":{port}/");
    let url = fleet.postgres.url().replace(&port(fleet.postgres.port()), &port(proxy.port()));
    let mut config = settings::load_config(Some(&fleet.dir().join("config.toml"))).unwrap();
    config.database.url.clone_from(&url);
    fleet.app = App::connect(config).await.unwrap();
    let standby = fleet.postgres.start_standby().await.unwrap();

    let settings = [("DISPATCHQ_DATABASE__URL", url.as_str())];
    let mut workers = [fleet.worker_with("w1", &settings), fleet.worker_with("w2", &settings)];
    hire(&fleet.app, 40).await;
    orders(&fleet, "ORD", 40).await;
    fleet.reach(40, "SELECT count(*) FROM offers").await;

    fleet.set_read_only(true).await;
    let has_ended = "SELECT current_setting('transaction_read_only') = 'on'
                     AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_xid IS NOT NULL)";
    eventually("the last transactions have ended", || async {
        fleet.postgres.run_statement(has_ended).await.unwrap() == "t"
    })
    .await;
    let end = fleet.postgres.run_statement("SELECT pg_current_wal_lsn()").await.unwrap();
    let has_all = format!("SELECT pg_last_wal_replay_lsn() >= '{end}'");
    eventually("the standby has all", || async { standby.run_statement(&has_all).await.unwrap() == "t" }).await;
    standby.promote().await.unwrap();
    proxy.redirect_to(standby.port());
    let switched = standby.run_statement("SELECT clock_timestamp()").await.unwrap();
    let mut old = std::mem::replace(&mut fleet.postgres, standby);
    old.kill().await;

    fleet.reach(40, "SELECT count(*) FROM orders").await;
    eventually("every timer is there", || async {
        repair::list_missing(&fleet.app.core).await.is_ok_and(|missing| missing.is_empty())
    })
    .await;
    // The documented limit is 10 s; 2 s are added for a loaded machine. Offers expire and new ones are made.
    let in_time = format!(
        "SELECT count(*) FROM order_events WHERE reason IN ('ATTEMPT_TIMEOUT', 'ATTEMPT_STARTED')
         AND at BETWEEN '{switched}' AND timestamptz '{switched}' + interval '12 s'"
    );
    fleet.reach(1, &in_time).await;
    let _crowd = Crowd::start(&fleet.app);
    orders(&fleet, "LATER", 20).await;
    fleet.at_rest().await;
    assert_eq!(fleet.count(COMPLETED).await, 60);
    assert_all_well(&fleet).await;
    for worker in &mut workers {
        worker.terminate();
        assert_eq!(worker.ended().await.code(), Some(0));
    }
}

/// Operators fix the reason in the log. It may change while workers take no jobs.
#[tokio::test]
async fn log_names_each_reason_for_taking_no_job() {
    let mut fleet = Fleet::start().await;
    let mut worker = fleet.running_worker("w1").await;
    let says = async |what: &str, times: usize| {
        eventually(what, || async { worker.log().matches(what).count() >= times }).await;
    };
    fleet.set_read_only(true).await;
    says("Postgres is read-only; no job is taken", 1).await;
    fleet.postgres.stop().await.unwrap();
    says("Postgres does not answer; no job is taken", 1).await;
    fleet.postgres.restart().await.unwrap();
    says("Postgres is read-only; no job is taken", 2).await;
    fleet.set_read_only(false).await;
    says("Postgres takes writes; jobs are taken", 1).await;
    worker.terminate();
    assert_eq!(worker.ended().await.code(), Some(0));
}

/// Returns the message ids of each order's creation, one for each delivery.
fn told_creations(receiver: &Receiver) -> BTreeMap<String, Vec<String>> {
    let mut told = BTreeMap::<String, Vec<String>>::new();
    for message in receiver.received() {
        let order = message.body["data"]["order_id"].as_str().unwrap();
        told.entry(order.to_owned()).or_default().push(message.id);
    }
    told
}

/// Follows docs/BACKUP.md. Changes after the backup are lost. Messages that were pending in the backup are sent again
/// under the same id, so the receiver can drop them.
#[tokio::test]
async fn restored_backup_repeats_messages_under_their_ids() {
    let receiver = Receiver::start().await;
    let producer = format!(
        "[producers.test]\nurl = \"{}\"\nsecret = \"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3\"\n\
         events = [\"order.created\"]\nallow_private = true\n",
        receiver.url("/shop")
    );
    let mut fleet = Fleet::with("1h", &producer).await;
    let mut worker = fleet.worker("w1");
    hire(&fleet.app, 40).await;
    let crowd = Crowd::start(&fleet.app);
    orders(&fleet, "ENDED", 20).await;
    fleet.at_rest().await;
    drop(crowd);

    // The backup is taken while orders are open and messages are in flight.
    receiver.hold();
    orders(&fleet, "OPEN", 20).await;
    eventually("messages are on their way", || async { told_creations(&receiver).len() > 20 }).await;
    let backup = fleet.postgres.take_backup().await.unwrap();
    receiver.release();

    // Later changes are lost.
    let crowd = Crowd::start(&fleet.app);
    orders(&fleet, "LOST", 20).await;
    fleet.at_rest().await;
    assert_eq!(fleet.count(COMPLETED).await, 60);
    drop(crowd);
    let told = told_creations(&receiver);
    worker.kill();
    fleet.postgres.kill().await;

    let port = fleet.postgres.port();
    fleet.postgres = backup.start(Some(port)).await.unwrap();
    redis_command::<()>(&fleet.redis.url(), &["FLUSHALL"]).await;
    for command in [["migrate"].as_slice(), &["reconcile", "run"], &["check", "history"]] {
        let printed = fleet.run(command);
        assert_eq!(printed.code, Some(0), "{printed:?}");
    }
    eventually("it has the orders of the backup", || async { fleet.count("SELECT count(*) FROM orders").await == 40 })
        .await;
    let _worker = fleet.worker("w2");
    let _crowd = Crowd::start(&fleet.app);
    fleet.at_rest().await;
    assert_eq!(fleet.count(COMPLETED).await, 40);
    assert_all_well(&fleet).await;

    let told_again = told_creations(&receiver);
    for (order, ids) in &told_again {
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 1, "{order} was told under {ids:?}");
        assert!(!order.starts_with("ENDED") || ids.len() == 1, "{order} had been told: {ids:?}");
    }
    assert_eq!(told_again.len(), 60);
    assert!(told_again.iter().any(|(order, ids)| ids.len() > told[order].len()), "no message was on its way");
}
