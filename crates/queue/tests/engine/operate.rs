//! Operators' actions on single jobs.

use crate::support::{Bench, Letter, OTHER, QUEUE, START_MS, due_now, id, millis, secs, timer};
use queue::{
    NewJob,
    store::{CancelVerdict, JobState, LeaseEnd, RescheduleVerdict},
};

const BOTH: [&str; 2] = [OTHER, QUEUE];

/// Creates one job per state; `t:absent` does not exist.
async fn one_of_each() -> Bench {
    let bench = Bench::new().await;
    bench.store.enqueue(&[due_now("t:dead"), timer("t:running", millis(1))]).await.unwrap();
    bench.settle(&bench.take_one().await, LeaseEnd::Dead { error: "broken".to_owned() }).await;
    bench.advance(millis(1));
    bench.take_one().await;
    bench.enqueue(timer("t:due", secs(60))).await;
    bench
}

#[tokio::test]
async fn only_a_due_job_is_cancelled() {
    let bench = one_of_each().await;
    assert_eq!(bench.store.cancel(&id("t:due"), &BOTH).await.unwrap(), CancelVerdict::Removed);
    let before = bench.snapshot().await;
    for (job, answer) in
        [("t:due", CancelVerdict::Absent), ("t:running", CancelVerdict::Running), ("t:dead", CancelVerdict::Dead)]
    {
        assert_eq!(bench.store.cancel(&id(job), &BOTH).await.unwrap(), answer, "{job}");
    }
    assert_eq!(bench.snapshot().await, before);
}

#[tokio::test]
async fn a_cancelled_job_leaves_nothing_behind() {
    let bench = Bench::new().await;
    bench.enqueue(NewJob::now(&Letter(1, "hello".to_owned()))).await;
    let leased = bench.take_of(&[(OTHER, 1)], queue::store::TakeMode::Normal).await.jobs.remove(0);
    bench.settle(&leased, LeaseEnd::Retry { delay: secs(5) }).await;
    assert_eq!(bench.store.cancel(&id("letter:1"), &BOTH).await.unwrap(), CancelVerdict::Removed);
    assert_eq!(bench.snapshot().await.lines().count(), 1, "the epoch");
}

#[tokio::test]
async fn due_job_is_rescheduled_to_the_millisecond() {
    let bench = one_of_each().await;
    for delay in [5, 900, 0] {
        let answer = bench.store.reschedule(&id("t:due"), &BOTH, secs(delay)).await.unwrap();
        assert_eq!(answer, RescheduleVerdict::Moved);
        assert_eq!(bench.find("t:due").await.unwrap().at_ms, bench.now_ms() + 1000 * delay);
    }
    assert_eq!(bench.take_one().await.delivery.due_ms, START_MS + 1);
}

#[tokio::test]
async fn only_due_job_is_rescheduled() {
    let bench = one_of_each().await;
    let before = bench.snapshot().await;
    for (job, answer) in [
        ("t:absent", RescheduleVerdict::Absent),
        ("t:running", RescheduleVerdict::Running),
        ("t:dead", RescheduleVerdict::Dead),
    ] {
        assert_eq!(bench.store.reschedule(&id(job), &BOTH, secs(1)).await.unwrap(), answer, "{job}");
    }
    assert_eq!(bench.snapshot().await, before);
    assert_eq!(bench.find("t:running").await.unwrap().state, JobState::Leased);
}
