//! Changed, lost and unchanged limits of slots.

use super::{acquire, bench_with, need, park, release, set_limits};

#[tokio::test]
async fn limit_change_keeps_open_slots() {
    let bench = bench_with(3, &[("a", 3)]).await;
    let first = acquire(&bench, "t:0", &need("a", "0")).await;
    let second = acquire(&bench, "t:9", &need("a", "9")).await;
    set_limits(&bench.store, 3, &[("a", 1)]).await;
    for job in ["t:1", "t:2", "t:3"] {
        park(&bench, job, &need("a", job)).await;
    }
    let group = bench.store.slot_stats(&["a"]).await.unwrap().groups.remove(0);
    assert_eq!((group.limit, group.in_use, group.waiting, group.first_waits_ms), (1, 2, 3, Some(0)));
    release(&bench, first).await;
    assert!(bench.take(9).await.jobs.is_empty(), "one slot is still more than enough");
    set_limits(&bench.store, 3, &[("a", 3)]).await;
    assert_eq!(bench.take(9).await.ids(), ["t:1", "t:2"]);
    set_limits(&bench.store, 9, &[]).await;
    assert!(bench.take(9).await.jobs.is_empty());
    release(&bench, second).await;
    assert_eq!(bench.take(9).await.ids(), ["t:3"]);
}

#[tokio::test]
async fn unchanged_limits_are_not_written() {
    let bench = bench_with(1, &[("a", 1), ("b", 2)]).await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    park(&bench, "t:1", &need("a", "one")).await;
    let writes = async || {
        let info: String = bench.redis(&["INFO", "persistence"]).await;
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = writes().await;
    let present = bench.store.slot_stats(&["a", "b"]).await.unwrap();
    set_limits(&bench.store, 1, &[("a", 1), ("b", 2)]).await;
    assert_eq!(writes().await, before);
    assert_eq!((present.limit, present.groups[0].limit, present.groups[1].limit), (1, 1, 2));

    bench.redis::<()>(&["DEL", "{dq:0}:slot_limits"]).await;
    release(&bench, held).await;
    assert!(bench.take(9).await.jobs.is_empty(), "without limits nothing is handed out");
    set_limits(&bench.store, 1, &[("a", 1), ("b", 2)]).await;
    assert_eq!(bench.take(9).await.ids(), ["t:1"]);
}
