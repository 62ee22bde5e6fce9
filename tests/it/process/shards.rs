//! Several shards of one Redis with real processes, while the number of shards changes and while one shard is lost.

use serde_json::Value;

use super::{assert_all_well, orders};
use crate::support::{Crowd, Fleet, eventually, hire, redis_command};

/// Returns the output of `dispatchq shards list --json`.
fn list(fleet: &Fleet) -> Value {
    let printed = fleet.run(&["shards", "list", "--json"]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    serde_json::from_str(&printed.stdout).unwrap()
}

fn set(fleet: &Fleet, count: &str) {
    let printed = fleet.run(&["shards", "set", count, "--reason", "a test"]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
}

/// Reloads the shards in this process, which creates orders, as `serve` would.
async fn follow(fleet: &Fleet) {
    fleet.app.core.shards.reload(&fleet.app.core.db).await.unwrap();
}

async fn until_derived(fleet: &Fleet, generation: i64) {
    let derived =
        format!("SELECT count(*) FROM shard_generations WHERE generation = {generation} AND derived_at IS NOT NULL");
    fleet.reach(1, &derived).await;
}

#[tokio::test]
async fn the_number_of_shards_changes_under_a_working_fleet() {
    let fleet = Fleet::with_lifetime("20s").await;
    let mut workers = [fleet.running_worker("w1").await, fleet.running_worker("w2").await];
    hire(&fleet.app, 40).await;
    let _crowd = Crowd::start(&fleet.app);
    orders(&fleet, "ONE", 40).await;

    set(&fleet, "4");
    orders(&fleet, "UNHEARD", 20).await;
    follow(&fleet).await;
    orders(&fleet, "FOUR", 40).await;
    until_derived(&fleet, 2).await;
    follow(&fleet).await;
    let standing = list(&fleet);
    assert_eq!(standing["generation"], 2);
    assert_eq!((standing["shards"].as_u64(), standing["settled"].as_bool()), (Some(4), Some(true)));
    let each = standing["each"].as_array().unwrap();
    assert!(each.len() == 4 && each.iter().all(|shard| shard["epoch"] == true), "{standing}");

    set(&fleet, "2");
    let refused = fleet.run(&["shards", "set", "8"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("still under way"), "{refused:?}");
    orders(&fleet, "LATE", 20).await;
    follow(&fleet).await;
    orders(&fleet, "TWO", 40).await;
    until_derived(&fleet, 3).await;
    eventually("what is left over is drained", || async {
        let printed = fleet.run(&["shards", "drain"]);
        printed.code == Some(0)
    })
    .await;
    follow(&fleet).await;
    fleet.at_rest().await;
    let standing = list(&fleet);
    assert_eq!((standing["settled"].as_bool(), standing["each"].as_array().unwrap().len()), (Some(true), 2));
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE closed_at IS NOT NULL").await, 160);
    assert_all_well(&fleet).await;
    for worker in &mut workers {
        worker.terminate();
        assert_eq!(worker.ended().await.code(), Some(0));
        assert!(worker.settled_and_refused().0 > 10, "one worker did it all");
    }
}

/// The row is written, and then the process that derives the timers dies.
#[tokio::test]
async fn another_process_derives_timers_after_a_crash() {
    let fleet = Fleet::with_lifetime("20s").await;
    hire(&fleet.app, 20).await;
    orders(&fleet, "ORD", 30).await;
    set(&fleet, "4");
    let mut first = fleet.worker_with("w1", &[("CRASH_AT", "shards.derive")]);
    assert!(!first.ended().await.success());
    assert!(first.log().contains("CRASH_AT=shards.derive"), "{}", first.log());
    assert_eq!(list(&fleet)["settled"], false);
    let refused = fleet.run(&["shards", "drain"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");

    let _second = fleet.running_worker("w2").await;
    until_derived(&fleet, 2).await;
    follow(&fleet).await;
    let _crowd = Crowd::start(&fleet.app);
    orders(&fleet, "LATER", 10).await;
    fleet.at_rest().await;
    assert_all_well(&fleet).await;
}

#[tokio::test]
async fn one_shard_is_lost_and_the_others_go_on() {
    let fleet = Fleet::with_lifetime("20s").await;
    set(&fleet, "4");
    let _workers = [fleet.running_worker("w1").await, fleet.running_worker("w2").await];
    until_derived(&fleet, 2).await;
    follow(&fleet).await;
    hire(&fleet.app, 40).await;
    orders(&fleet, "ORD", 60).await;
    fleet.reach(30, "SELECT count(*) FROM offers").await;
    let epochs = async || -> Vec<Option<String>> {
        let mut epochs = Vec::new();
        for shard in 0..4 {
            epochs.push(redis_command(&fleet.redis.url(), &["GET", &format!("{{dq:{shard}}}:epoch")]).await);
        }
        epochs
    };
    let before = epochs().await;
    for key in redis_command::<Vec<String>>(&fleet.redis.url(), &["KEYS", "{dq:3}:*"]).await {
        redis_command::<u64>(&fleet.redis.url(), &["DEL", &key]).await;
    }
    eventually("it is rebuilt", || async {
        let now = epochs().await;
        now[3].is_some() && now[3] != before[3]
    })
    .await;
    assert_eq!(epochs().await[..3], before[..3], "the others were not");
    let _crowd = Crowd::start(&fleet.app);
    orders(&fleet, "LATER", 20).await;
    fleet.at_rest().await;
    assert_all_well(&fleet).await;
}

#[test]
fn a_number_that_is_no_power_of_two_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let printed = crate::support::run_binary(dir.path(), &["shards", "set", "3"], &[]);
    assert_eq!(printed.code, Some(2), "{printed:?}");
    assert!(printed.stderr.contains("power of two"), "{printed:?}");
}
