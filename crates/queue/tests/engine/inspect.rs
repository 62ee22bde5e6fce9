//! Operators' view of queues and jobs.

use std::collections::BTreeMap;

use crate::support::{Bench, LEASE, OTHER, QUEUE, START_MS, due_now, id, secs, timer};
use queue::store::{
    Heartbeat, JobState, LatenessCounts, LatenessSummary, LeaseEnd, OldestDue, RepairVerdict, WorkerInfo,
};

#[tokio::test]
async fn stats_count_each_state() {
    let bench = Bench::new().await;
    for job in ["t:dead", "t:leased"] {
        bench.enqueue(due_now(job)).await;
    }
    let leased = bench.take(10).await.jobs;
    bench.settle(&leased[0], LeaseEnd::Dead { error: "x".to_owned() }).await;
    for (job, delay) in [("t:due", 0), ("t:soon", 60), ("t:later", 75)] {
        bench.enqueue(timer(job, secs(delay))).await;
    }
    bench.advance(secs(10));
    bench.store.pause_queue(OTHER).await.unwrap();
    let stats = bench.store.queue_stats(&[QUEUE, OTHER]).await.unwrap();
    let timers = &stats[0];
    assert_eq!((timers.due, timers.scheduled, timers.leased, timers.dead), (1, 2, 1, 1));
    assert_eq!((timers.oldest_due_ms, timers.next_minute, timers.paused), (Some(10_000), 1, false));
    assert_eq!(timers.falling_due, 2, "those due in 50 s and in 65 s");
    assert_eq!((stats[1].oldest_due_ms, stats[1].due, stats[1].paused), (None, 0, true));
    assert!(serde_json::to_string(&stats).unwrap().contains("\"queue\":\"timers\""));
}

#[tokio::test]
async fn oldest_due_job_excludes_suspects_and_later_jobs() {
    let bench = Bench::new().await;
    for (job, delay) in [("t:suspect", 0), ("t:late", 1), ("t:soon", 60)] {
        bench.enqueue(timer(job, secs(delay))).await;
    }
    bench.redis::<()>(&["ZREM", "{dq:0}:due:timers", "t:suspect"]).await;
    bench.redis::<()>(&["ZADD", "{dq:0}:suspects:timers", "1", "t:suspect"]).await;
    let oldest = async || bench.store.oldest_due(&[QUEUE, OTHER]).await.unwrap();
    assert_eq!(oldest().await, [OldestDue::default(), OldestDue::default()]);
    bench.advance(secs(3));
    let late = OldestDue { id: Some("t:late".to_owned()), late_ms: 2_000, is_served: false };
    assert_eq!(oldest().await[0], late);
    bench.enqueue(timer("t:later", secs(0))).await;
    assert_eq!(bench.take(1).await.ids(), ["t:late"]);
    let later = OldestDue { id: Some("t:later".to_owned()), late_ms: 0, is_served: true };
    assert_eq!(oldest().await[0], later);
    bench.advance(LEASE);
    assert_eq!(oldest().await[0], OldestDue { late_ms: 8_000, is_served: false, ..later }, "the lease has ended");
}

#[tokio::test]
async fn lists_are_paged_by_time() {
    let bench = Bench::new().await;
    for n in 0..5 {
        bench.enqueue(timer(&format!("t:{n}"), secs(n))).await;
    }
    let page = bench.store.list_jobs(QUEUE, JobState::Due, 1, 2).await.unwrap();
    let page: Vec<_> = page.iter().map(|entry| (entry.id.as_str(), entry.at_ms)).collect();
    assert_eq!(page, [("t:1", START_MS + 1_000), ("t:2", START_MS + 2_000)]);
    assert!(bench.store.list_jobs(QUEUE, JobState::Due, 5, 2).await.unwrap().is_empty());
    assert!(bench.store.list_jobs(QUEUE, JobState::Leased, 0, 2).await.unwrap().is_empty());
}

#[tokio::test]
async fn dead_jobs_are_listed_with_error() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    bench.settle(&bench.take_one().await, LeaseEnd::Spent { error: "no luck".to_owned() }).await;
    let dead = bench.store.list_jobs(QUEUE, JobState::Dead, 0, 10).await.unwrap();
    assert_eq!((dead[0].id.as_str(), dead[0].failed, dead[0].error.as_deref()), ("t:1", 1, Some("no luck")));
}

#[tokio::test]
async fn repair_preview_matches_and_changes_nothing() {
    let bench = Bench::new().await;
    for job in ["t:dead", "t:leased"] {
        bench.enqueue(due_now(job)).await;
    }
    let leased = bench.take(10).await.jobs;
    bench.settle(&leased[0], LeaseEnd::Dead { error: "x".to_owned() }).await;
    bench.enqueue(due_now("t:due")).await;
    let mut wanted: Vec<_> = (0..600).map(|n| due_now(&format!("t:{n}"))).collect();
    wanted.extend(["t:dead", "t:leased", "t:due"].map(due_now));
    bench.enqueue(timer("t:late", secs(60))).await;
    wanted.push(due_now("t:late"));
    let preview = bench.store.preview_repair(&wanted).await.unwrap();
    assert_eq!(preview[..600], [RepairVerdict::Inserted; 600]);
    assert_eq!(preview[600..], [RepairVerdict::Dead, RepairVerdict::Fine, RepairVerdict::Fine, RepairVerdict::Moved]);
    assert!(bench.find("t:0").await.is_none(), "asking inserts nothing");
    assert_eq!(bench.store.repair(&wanted).await.unwrap(), preview);
}

#[tokio::test]
async fn a_leased_job_shows_its_lease() {
    let bench = Bench::new().await;
    assert!(bench.find("t:1").await.is_none());
    bench.enqueue(due_now("t:1")).await;
    bench.take_one().await;
    bench.enqueue(timer("t:1", secs(4))).await;
    let found = bench.store.find_job(&id("t:1"), &[OTHER, QUEUE]).await.unwrap().unwrap();
    assert_eq!((found.queue.as_str(), found.state, found.at_ms), (QUEUE, JobState::Leased, START_MS + 8_000));
    assert_eq!((found.leased_due_ms, found.again_ms), (Some(START_MS), Some(START_MS + 4_000)));
    assert_eq!(found.token.as_deref(), Some("test:0"));
}

// Fault F17
#[tokio::test]
async fn unseen_replica_is_forgotten_after_a_minute() {
    let bench = Bench::new().await;
    let info = WorkerInfo {
        host: "h".to_owned(),
        pid: 1,
        version: "1".to_owned(),
        queues: vec![QUEUE.to_owned()],
        in_hand: 3,
        drain_ms: None,
        runs: BTreeMap::new(),
        resident_bytes: None,
        cpu_percent: None,
        life: None,
        started_ms: 0,
    };
    let none = LatenessCounts::default();
    let beat = async |replica: &str, info: Option<&WorkerInfo>| {
        bench
            .store
            .send_heartbeat(&Heartbeat {
                boot: "1f",
                replica,
                up: secs(10),
                info,
                lateness: &none,
                now_ms: bench.now_ms(),
            })
            .await
            .unwrap();
    };
    let names = async || {
        let workers = bench.store.list_workers().await.unwrap();
        workers.into_iter().map(|worker| worker.replica).collect::<Vec<_>>()
    };
    beat("a", Some(&info)).await;
    bench.advance(secs(40));
    beat("b", Some(&info)).await;
    assert_eq!(names().await, ["a", "b"]);
    let started =
        bench.store.list_workers().await.unwrap().iter().map(|worker| worker.info.started_ms).collect::<Vec<_>>();
    assert_eq!(started, [START_MS - 10_000, START_MS + 30_000]);
    bench.advance(secs(21));
    beat("b", Some(&info)).await;
    assert_eq!(names().await, ["b"]);
    beat("b", None).await;
    assert!(names().await.is_empty());

    // After a failover to a clock that is an hour behind, the dead worker would appear alive for an hour.
    beat("dead", Some(&info)).await;
    bench.step_back(secs(3_600));
    beat("alive", Some(&info)).await;
    assert_eq!(names().await, ["alive"]);
}

#[tokio::test]
async fn lateness_is_summed_up_over_replicas_and_hours() {
    let bench = Bench::new().await;
    let beat = async |latenesses: &[u64]| {
        let mut lateness = LatenessCounts::default();
        latenesses.iter().for_each(|ms| lateness.record_lateness(*ms));
        let beat = Heartbeat {
            boot: "1f",
            replica: "a",
            up: secs(10),
            info: None,
            lateness: &lateness,
            now_ms: bench.now_ms(),
        };
        bench.store.send_heartbeat(&beat).await.unwrap();
    };
    assert_eq!(bench.store.read_lateness().await.unwrap(), LatenessSummary::default());
    beat(&[1; 60]).await;
    beat(&[4; 39]).await;
    bench.advance(secs(3600));
    beat(&[1_234]).await;
    let summary = bench.store.read_lateness().await.unwrap();
    assert_eq!(summary, LatenessSummary { count: 100, p50_ms: 1, p99_ms: 4, max_ms: 1_234 });
    bench.advance(secs(3600));
    assert_eq!(bench.store.read_lateness().await.unwrap().count, 1);
}
