//! Leasing due jobs.

use std::collections::HashSet;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;

use crate::support::{Bench, LEASE, Letter, OTHER, QUEUE, START_MS, due_now, millis, rebuild, secs, timer};
use queue::{
    LeaseToken, LeasedJob, LuaScript, NewJob, SettleRequest, Store,
    store::{JobState, LeaseEnd, SettleVerdict, TakeAnswer, TakeMode, TakeRequest},
};

#[tokio::test]
async fn job_is_leased_exactly_when_due() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:1", millis(50))).await;
    bench.advance(millis(49));
    let took = bench.take(10).await;
    assert_eq!((took.ids().len(), took.next_due_ms), (0, Some(START_MS + 50)));
    bench.advance(millis(1));
    assert_eq!(bench.take_one().await.delivery.due_ms, START_MS + 50);
}

#[tokio::test]
async fn taken_job_has_due_tries_and_payload() {
    let bench = Bench::new().await;
    let plain = |name, delay| NewJob { queue: OTHER, ..timer(name, delay) };
    let jobs = [
        plain("letter:1", secs(1)),
        NewJob::after(&Letter(2, "two".to_owned()), secs(2)),
        plain("letter:3", secs(2)),
        NewJob::after(&Letter(4, "four".to_owned()), secs(3)),
    ];
    bench.store.enqueue(&jobs).await.unwrap();
    bench.redis::<()>(&["HSET", "{dq:0}:tries", "letter:3", "2 1"]).await;
    bench.advance(secs(3));
    let taken = bench.take_of(&[(QUEUE, 10), (OTHER, 10)], TakeMode::Normal).await.jobs;
    let seen: Vec<_> = taken
        .iter()
        .map(|LeasedJob { delivery, .. }| {
            (delivery.id.as_str(), delivery.due_ms - START_MS, delivery.failed, delivery.lost, delivery.payload.clone())
        })
        .collect();
    let expected = [
        ("letter:1", 1_000, 0, 0, None),
        ("letter:2", 2_000, 0, 0, Some(json!("two"))),
        ("letter:3", 2_000, 2, 1, None),
        ("letter:4", 3_000, 0, 0, Some(json!("four"))),
    ];
    assert_eq!(seen, expected);
}

/// Uses Redis' own clock and compares it with this machine's clock, which is the same.
#[tokio::test]
async fn no_job_is_ever_early() {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    let mut random = StdRng::seed_from_u64(7);
    let mut wanted = std::collections::HashMap::new();
    for n in 0..500 {
        let delay = std::time::Duration::from_micros(random.random_range(0..300_000));
        let job = timer(&format!("t:{n}"), delay);
        wanted.insert(job.id.clone(), std::time::Instant::now() + delay);
        store.enqueue(&[job]).await.unwrap();
    }
    let mut sequence = 0;
    while !wanted.is_empty() {
        sequence += 1;
        let token = LeaseToken::new("test", sequence);
        let request = TakeRequest { queues: &[(QUEUE, 10)], token: &token, lease: LEASE, mode: TakeMode::Normal };
        let TakeAnswer::Jobs { jobs, .. } = store.take(&request).await.unwrap() else { panic!("no epoch") };
        for leased in jobs {
            let earliest = wanted.remove(&leased.delivery.id).unwrap();
            assert!(std::time::Instant::now() >= earliest, "{leased:?}");
        }
    }
}

#[tokio::test]
async fn oldest_jobs_are_taken_up_to_the_permits() {
    let bench = Bench::new().await;
    for (id, delay) in [("t:c", 3), ("t:a", 1), ("t:b", 2)] {
        bench.enqueue(timer(id, secs(delay))).await;
    }
    bench.advance(secs(10));
    assert_eq!(bench.take(2).await.ids(), ["t:a", "t:b"]);
    assert_eq!(bench.take(2).await.ids(), ["t:c"]);
}

#[tokio::test]
async fn take_applies_permits_per_queue() {
    let bench = Bench::new().await;
    for n in 0..3 {
        bench.enqueue(due_now(&format!("t:{n}"))).await;
        bench.enqueue(NewJob { queue: OTHER, ..due_now(&format!("o:{n}")) }).await;
    }
    let took = bench.take_of(&[(QUEUE, 0), (OTHER, 2)], TakeMode::Normal).await;
    assert_eq!(took.ids(), ["o:0", "o:1"]);
    assert_eq!(took.next_due_ms, None, "no queue has a permit left");
    let took = bench.take_of(&[(QUEUE, 2), (OTHER, 2)], TakeMode::Normal).await;
    assert_eq!(took.ids(), ["t:0", "t:1", "o:2"]);
}

/// Late messages have their own queue and permits, so they delay no offer.
#[tokio::test]
async fn late_jobs_are_leased_by_queue_then_by_age() {
    let bench = Bench::new().await;
    let message = |n: u64| NewJob { queue: OTHER, ..timer(&format!("m:{n:03}"), millis(n)) };
    bench.store.enqueue(&(0..500).map(message).collect::<Vec<_>>()).await.unwrap();
    bench.advance(secs(5));
    for job in ["t:1", "t:2", "t:3"] {
        bench.enqueue(due_now(job)).await;
        bench.advance(millis(1));
    }
    let first = bench.take_of(&[(QUEUE, 2), (OTHER, 3)], TakeMode::Normal).await;
    assert_eq!(first.ids(), ["t:1", "t:2", "m:000", "m:001", "m:002"]);
    let next = bench.take_of(&[(QUEUE, 2), (OTHER, 0)], TakeMode::Normal).await;
    assert_eq!(next.ids(), ["t:3"], "all permits of messages are in use");
}

#[tokio::test]
async fn next_due_covers_queues_with_permits() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:1", secs(20))).await;
    bench.enqueue(NewJob { queue: OTHER, ..timer("o:1", secs(5)) }).await;
    let both = bench.take_of(&[(QUEUE, 1), (OTHER, 1)], TakeMode::Normal).await;
    assert_eq!(both.next_due_ms, Some(START_MS + 5_000));
    let one = bench.take_of(&[(QUEUE, 1), (OTHER, 0)], TakeMode::Normal).await;
    assert_eq!(one.next_due_ms, Some(START_MS + 20_000));
}

#[tokio::test]
async fn missing_epoch_stops_leases() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    bench.redis::<()>(&["DEL", "{dq:0}:epoch"]).await;
    let token = LeaseToken::new("test", 1);
    let request = TakeRequest { queues: &[(QUEUE, 9)], token: &token, lease: LEASE, mode: TakeMode::Normal };
    assert!(matches!(bench.store.take(&request).await.unwrap(), TakeAnswer::NoEpoch));
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Due);
}

#[tokio::test]
async fn paused_queue_is_rescued_but_not_leased() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    bench.take_one().await;
    bench.enqueue(due_now("t:2")).await;
    assert!(bench.store.pause_queue(QUEUE).await.unwrap());
    bench.advance(LEASE);
    let took = bench.take(10).await;
    assert_eq!((took.ids().len(), took.next_due_ms), (0, None));
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Due);
    assert!(bench.store.resume_queue(QUEUE).await.unwrap());
    assert_eq!(bench.take(10).await.ids(), ["t:1", "t:2"]);
}

#[tokio::test]
async fn take_reports_due_jobs_beyond_its_bound() {
    let bench = Bench::new().await;
    let jobs: Vec<NewJob> = (0..1_500).map(|n| due_now(&format!("t:{n}"))).collect();
    bench.store.enqueue(&jobs).await.unwrap();
    let took = bench.take(5_000).await;
    assert_eq!((took.jobs.len(), took.next_due_ms), (1_000, Some(START_MS)));
    let took = bench.take(5_000).await;
    assert_eq!((took.jobs.len(), took.next_due_ms), (500, None));
}

#[tokio::test]
async fn ten_thousand_jobs_due_at_once_drain_in_batches() {
    let bench = Bench::new().await;
    let jobs: Vec<NewJob> = (0..10_000).map(|n| due_now(&format!("t:{n}"))).collect();
    bench.store.enqueue(&jobs).await.unwrap();
    let mut seen = HashSet::new();
    loop {
        let took = bench.take(5_000).await;
        if took.jobs.is_empty() {
            break;
        }
        assert!(took.jobs.len() <= 1_000);
        let done = |leased: &queue::LeasedJob| {
            SettleRequest::new(leased, queue::Outcome::done(), &queue::RetryPolicy::DEFAULT, 0.5)
        };
        let settles: Vec<SettleRequest> = took.jobs.iter().map(done).collect();
        for verdict in bench.store.settle(&settles).await.unwrap() {
            assert_eq!(verdict, SettleVerdict::Settled { dead_follow_ups: Vec::new() });
        }
        seen.extend(took.jobs.into_iter().map(|leased| leased.delivery.id));
    }
    assert_eq!(seen.len(), 10_000);
    let keys: Vec<String> = bench.redis(&["KEYS", "*"]).await;
    assert_eq!(keys, ["{dq:0}:epoch"], "nothing is left behind");
}

#[tokio::test]
async fn payload_is_returned_unchanged() {
    let bench = Bench::new().await;
    let text = "naïve \"quoted\"\n\u{1F69A} \0";
    bench.enqueue(NewJob::now(&Letter(1, text.to_owned()))).await;
    let took = bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await;
    assert_eq!(took.jobs[0].delivery.payload, Some(json!(text)));
}

#[tokio::test]
async fn unreadable_envelope_dies_and_newer_one_waits() {
    let bench = Bench::new().await;
    for (id, envelope) in [("t:1", "{nonsense"), ("t:2", r#"{"v":2,"body":1}"#)] {
        bench.enqueue(due_now(id)).await;
        bench.redis::<()>(&["HSET", "{dq:0}:jobs", id, envelope]).await;
    }
    let took = bench.take(10).await;
    assert!(took.jobs.is_empty());
    assert!(matches!(took.unreadable[0].end, LeaseEnd::Dead { .. }), "{:?}", took.unreadable);
    assert_eq!(took.unreadable[1].end, LeaseEnd::Snooze { delay: secs(60) });
    bench.store.settle(&took.unreadable).await.unwrap();
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Dead);
    assert_eq!(bench.find("t:2").await.unwrap().at_ms, START_MS + 60_000);
}

#[tokio::test]
async fn scripts_are_loaded_again_after_a_script_flush() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    bench.redis::<()>(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(bench.take(10).await.ids(), ["t:1"]);
}

#[tokio::test]
async fn script_of_a_capability_is_loaded_when_missing() {
    static ADD: LuaScript = LuaScript::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    let bench = Bench::new().await;
    for sum in [2, 4] {
        bench.redis::<()>(&["SCRIPT", "FLUSH"]).await;
        let mut add = ADD.call(["sum"]);
        add.arg(2);
        assert_eq!(bench.store.run_command::<i64>("add", &add).await.unwrap(), sum);
    }
}
