//! Outcomes and follow-ups.

use serde_json::json;

use crate::support::{Bench, LEASE, Letter, OTHER, QUEUE, START_MS, address, due_now, id, secs, timer};
use queue::{
    NewJob, Outcome, RetryPolicy, SettleRequest,
    store::{JobState, LeaseEnd, SettleVerdict, TakeMode},
};

#[tokio::test]
async fn done_job_leaves_no_keys() {
    let bench = Bench::new().await;
    bench.enqueue(NewJob::now(&Letter(1, "hello".to_owned()))).await;
    let take = async || bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await.jobs.remove(0);
    bench.settle(&take().await, LeaseEnd::Retry { delay: secs(0) }).await;
    bench.settle(&take().await, LeaseEnd::Done).await;
    let keys: Vec<String> = bench.redis(&["KEYS", "*"]).await;
    assert_eq!(keys, ["{dq:0}:epoch"]);
}

#[tokio::test]
async fn follow_ups_are_inserted_with_the_settle() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    let then = vec![timer("t:2", secs(2)), NewJob::after(&Letter(3, "hi".to_owned()), secs(3))];
    let verdict = bench.settle_then(&bench.take_one().await, LeaseEnd::Done, then).await;
    assert_eq!(verdict, SettleVerdict::Settled { dead_follow_ups: Vec::new() });
    assert!(bench.find("t:1").await.is_none());
    assert_eq!(bench.find("t:2").await.unwrap().at_ms, START_MS + 2_000);
    let letter = bench.find("letter:3").await.unwrap();
    assert_eq!((letter.queue.as_str(), letter.at_ms), (OTHER, START_MS + 3_000));
}

#[tokio::test]
async fn job_may_follow_itself_or_a_batch_mate() {
    let bench = Bench::new().await;
    bench.store.enqueue(&[due_now("t:1"), due_now("t:2")]).await.unwrap();
    let jobs = bench.take(10).await.jobs;
    let then = [vec![timer("t:1", secs(1)), timer("t:2", secs(2))], Vec::new()];
    let settle = |(leased, then)| SettleRequest::new(leased, Outcome::then_enqueue(then), &RetryPolicy::DEFAULT, 0.5);
    let settles: Vec<SettleRequest> = jobs.iter().zip(then).map(settle).collect();
    bench.store.settle(&settles).await.unwrap();
    assert_eq!(bench.find("t:1").await.unwrap().at_ms, START_MS + 1_000);
    assert_eq!(bench.find("t:2").await.unwrap().at_ms, START_MS + 2_000);
}

#[tokio::test]
async fn settles_of_one_batch_have_own_verdicts() {
    let bench = Bench::new().await;
    let names = ["t:1", "t:2", "t:3", "t:4"];
    bench.store.enqueue(&names.map(due_now)).await.unwrap();
    let jobs = bench.take(10).await.jobs;
    // The job is enqueued again while it is leased.
    bench.enqueue(timer("t:2", secs(5))).await;
    let end = |n: usize, end| SettleRequest::end_lease(QUEUE, jobs[n].delivery.id.clone(), jobs[n].token.clone(), end);
    let settles = [
        end(0, LeaseEnd::Done),
        end(0, LeaseEnd::Done),
        end(1, LeaseEnd::Done),
        end(2, LeaseEnd::Retry { delay: secs(1) }),
        end(3, LeaseEnd::Done),
    ];
    let settled = || SettleVerdict::Settled { dead_follow_ups: Vec::new() };
    let verdicts = bench.store.settle(&settles).await.unwrap();
    assert_eq!(verdicts, [settled(), SettleVerdict::Refused, settled(), settled(), settled()]);
    assert!(bench.find("t:1").await.is_none() && bench.find("t:4").await.is_none());
    let again = bench.find("t:2").await.unwrap();
    assert_eq!((again.state, again.at_ms), (JobState::Due, START_MS + 5_000));
    assert_eq!(bench.find("t:3").await.unwrap().at_ms, START_MS + 1_000);
}

#[tokio::test]
async fn one_refused_settle_does_not_touch_its_batch_mates() {
    let bench = Bench::new().await;
    bench.store.enqueue(&[due_now("t:1"), due_now("t:2")]).await.unwrap();
    let stale = bench.take(1).await.jobs.remove(0);
    bench.advance(LEASE);
    let fresh = bench.take(10).await.jobs;
    let done = |leased: &queue::LeasedJob| {
        SettleRequest::new(leased, Outcome::then_enqueue(vec![timer("t:9", secs(1))]), &RetryPolicy::DEFAULT, 0.5)
    };
    let verdicts = bench.store.settle(&[done(&stale), done(&fresh[1])]).await.unwrap();
    assert_eq!(verdicts, [SettleVerdict::Refused, SettleVerdict::Settled { dead_follow_ups: Vec::new() }]);
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Leased);
    assert!(bench.find("t:2").await.is_none());
}

#[tokio::test]
async fn dead_follow_up_is_reported() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:dead")).await;
    bench.settle(&bench.take_one().await, LeaseEnd::Dead { error: "broken".to_owned() }).await;
    bench.enqueue(due_now("t:1")).await;
    let verdict =
        bench.settle_then(&bench.take_one().await, LeaseEnd::Done, vec![due_now("t:dead"), due_now("t:2")]).await;
    assert_eq!(verdict, SettleVerdict::Settled { dead_follow_ups: vec![id("t:dead")] });
    assert_eq!(bench.find("t:2").await.unwrap().state, JobState::Due);
}

#[tokio::test]
async fn snooze_keeps_tries_and_clears_lost() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    bench.settle(&bench.take_one().await, LeaseEnd::Retry { delay: secs(0) }).await;
    bench.take_one().await;
    bench.advance(LEASE);
    let leased = bench.take_one().await;
    assert_eq!((leased.delivery.failed, leased.delivery.lost), (1, 1));
    bench.settle(&leased, LeaseEnd::Snooze { delay: secs(2) }).await;
    bench.advance(secs(2));
    let leased = bench.take_one().await;
    assert_eq!((leased.delivery.failed, leased.delivery.lost), (1, 0));
}

#[tokio::test]
async fn last_failed_try_is_dead() {
    let bench = Bench::new().await;
    let policy = RetryPolicy { max_tries: 3, jitter: 0.0, ..RetryPolicy::DEFAULT };
    bench.enqueue(due_now("t:1")).await;
    for (failed, delay) in [(0, 1), (1, 2)] {
        let leased = bench.take_one().await;
        assert_eq!(leased.delivery.failed, failed);
        let settle = SettleRequest::new(&leased, Outcome::Retry("no luck".to_owned()), &policy, 0.5);
        assert_eq!(settle.end, LeaseEnd::Retry { delay: secs(delay) });
        bench.store.settle(&[settle]).await.unwrap();
        bench.advance(secs(delay));
    }
    let settle = SettleRequest::new(&bench.take_one().await, Outcome::Retry("no luck".to_owned()), &policy, 0.5);
    bench.store.settle(&[settle]).await.unwrap();
    let record = bench.find("t:1").await.unwrap().dead.unwrap();
    assert_eq!((record.failed, record.error.as_str()), (3, "failed 3 tries; last: no luck"));
}

#[tokio::test]
async fn dead_job_keeps_payload_error_and_tries() {
    let bench = Bench::new().await;
    let text = "a \"text\" with [] and {}";
    bench.enqueue(NewJob::now(&Letter(1, text.to_owned()))).await;
    let leased = bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await.jobs.remove(0);
    bench.advance(secs(1));
    bench.settle(&leased, LeaseEnd::Dead { error: "line 1\n\"line\" 2 ü".to_owned() }).await;
    let record = bench.find("letter:1").await.unwrap().dead.unwrap();
    assert_eq!(record.queue, OTHER);
    assert_eq!(record.error, "line 1\n\"line\" 2 ü");
    assert_eq!((record.failed, record.lost, record.due_ms, record.died_ms), (0, 0, START_MS, START_MS + 1_000));
    assert_eq!(record.payload, json!({ "v": 1, "payload": text }));
    let left: usize = bench.redis(&["EXISTS", "{dq:0}:jobs", "{dq:0}:tries", "{dq:0}:leases"]).await;
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_very_long_error_is_shortened() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    let outcome = Outcome::Dead("ü".repeat(5_000));
    let settle = SettleRequest::new(&bench.take_one().await, outcome, &RetryPolicy::DEFAULT, 0.5);
    bench.store.settle(&[settle]).await.unwrap();
    let error = bench.find("t:1").await.unwrap().dead.unwrap().error;
    assert_eq!(error, format!("{}…", "ü".repeat(1_000)));
}

#[tokio::test]
async fn settle_after_a_flush_is_refused() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    let leased = bench.take_one().await;
    bench.redis::<()>(&["FLUSHALL"]).await;
    assert_eq!(
        bench.settle_then(&leased, LeaseEnd::Retry { delay: secs(1) }, vec![due_now("t:2")]).await,
        SettleVerdict::Refused
    );
    assert_eq!(bench.snapshot().await, "");
    assert_eq!(bench.store.queue_stats(&[QUEUE]).await.unwrap()[0].due, 0);
}

#[tokio::test]
async fn superseded_jobs_are_cancelled_with_the_settle() {
    let bench = Bench::new().await;
    bench.store.enqueue(&[due_now("t:1"), timer("t:old", secs(5))]).await.unwrap();
    let verdict = bench
        .settle_superseding(&bench.take_one().await, LeaseEnd::Done, vec![timer("t:2", secs(2))], &["t:old"])
        .await;
    assert_eq!(verdict, SettleVerdict::Settled { dead_follow_ups: Vec::new() });
    assert!(bench.find("t:old").await.is_none());
    assert_eq!(bench.find("t:2").await.unwrap().at_ms, START_MS + 2_000);
}

/// A job that supersedes itself needs no cancel, and a refused settle changes nothing.
#[tokio::test]
async fn refused_settle_cancels_nothing() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    let stale = bench.take_one().await;
    let outcome =
        Outcome::Done { then: Vec::new(), superseded: vec![address("t:1"), address("t:old"), address("t:1")] };
    let settle = SettleRequest::new(&stale, outcome, &RetryPolicy::DEFAULT, 0.5);
    assert_eq!(settle.superseded, [address("t:old")]);
    bench.advance(LEASE);
    bench.take_one().await;
    bench.enqueue(timer("t:old", secs(5))).await;
    let before = bench.snapshot().await;
    assert_eq!(bench.store.settle(&[settle]).await.unwrap(), [SettleVerdict::Refused]);
    assert_eq!(bench.snapshot().await, before);
}

/// Two orders progress in one call. Each cancels the jobs it supersedes, even a job whose lease ended in the same call.
#[tokio::test]
async fn batch_cancels_a_job_wanted_again() {
    let bench = Bench::new().await;
    bench.store.enqueue(&[due_now("t:1"), due_now("t:2")]).await.unwrap();
    let jobs = bench.take(10).await.jobs;
    bench.enqueue(due_now("t:1")).await;
    let done = |leased, superseded: &[&str]| {
        let superseded = superseded.iter().copied().map(address).collect();
        SettleRequest::new(leased, Outcome::Done { then: Vec::new(), superseded }, &RetryPolicy::DEFAULT, 0.5)
    };
    let verdicts = bench.store.settle(&[done(&jobs[0], &[]), done(&jobs[1], &["t:1"])]).await.unwrap();
    assert_eq!(
        verdicts,
        [
            SettleVerdict::Settled { dead_follow_ups: Vec::new() },
            SettleVerdict::Settled { dead_follow_ups: Vec::new() }
        ]
    );
    assert_eq!(bench.snapshot().await.lines().count(), 1, "the epoch");
}
