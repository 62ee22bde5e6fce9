//! A rebuild in progress: workers take only jobs that are due up to its horizon.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

use crate::{
    runtime::{Worker, counting},
    support::{Bench, LEASE, QUEUE, START_MS, Tick, due_now, eventually, millis, raw, rebuild, secs, timer},
};
use queue::{
    LeaseToken, NewJob, Store,
    store::{DueJob, JobState, RepairVerdict, TakeAnswer, TakeMode, TakeRequest, Takeable},
};

fn due_job(text: &str, due_ms: u64) -> DueJob {
    DueJob { job: due_now(text), due_ms }
}

/// Creates an empty Redis with a started rebuild.
async fn flushed() -> (Bench, queue::store::RebuildMarker) {
    let bench = Bench::new().await;
    bench.redis::<()>(&["FLUSHALL"]).await;
    let marker = bench.store.begin_rebuild().await.unwrap();
    (bench, marker)
}

async fn takes_nothing(store: &Store) -> bool {
    let token = LeaseToken::new("test", 1);
    let request = TakeRequest { queues: &[(QUEUE, 9)], token: &token, lease: LEASE, mode: TakeMode::Normal };
    matches!(store.take(&request).await.unwrap(), TakeAnswer::NoEpoch)
}

#[tokio::test]
async fn rebuild_without_horizon_allows_no_takes() {
    let (bench, marker) = flushed().await;
    let inserted = bench.store.rebuild_jobs(&marker, &[due_job("t:1", START_MS)]).await.unwrap();
    assert_eq!(inserted, Some(vec![RepairVerdict::Inserted]));
    assert_eq!(bench.store.takeable().await.unwrap(), Takeable::Nothing);
    assert!(takes_nothing(&bench.store).await);
    // A horizon without its marker does not count either.
    bench.redis::<()>(&["DEL", "{dq:0}:rebuilding"]).await;
    assert!(!bench.store.publish_horizon(&marker, START_MS).await.unwrap());
    assert!(takes_nothing(&bench.store).await);
}

#[tokio::test]
async fn jobs_beyond_the_horizon_wait() {
    let (bench, marker) = flushed().await;
    let jobs = [due_job("t:1", START_MS - 10), due_job("t:2", START_MS + 1_000), due_job("t:3", START_MS + 2_000)];
    bench.store.rebuild_jobs(&marker, &jobs).await.unwrap();
    assert!(bench.store.publish_horizon(&marker, START_MS + 1_000).await.unwrap());
    assert_eq!(bench.store.takeable().await.unwrap(), Takeable::UpTo(START_MS + 1_000));
    let took = bench.take(9).await;
    assert_eq!((took.ids(), took.next_due_ms), (vec!["t:1"], Some(START_MS + 1_000)), "never early");
    bench.advance(secs(3));
    let took = bench.take(9).await;
    assert_eq!(took.ids(), ["t:2"], "what is due beyond the horizon may have others before it that are not in yet");
    assert_eq!(took.next_due_ms, Some(bench.now_ms() + 50), "a worker looks again, but does not spin");

    assert!(bench.store.publish_horizon(&marker, START_MS + 2_000).await.unwrap());
    assert_eq!(bench.take(9).await.ids(), ["t:3"]);
}

#[tokio::test]
async fn the_epoch_lifts_the_horizon() {
    let (bench, marker) = flushed().await;
    bench.store.rebuild_jobs(&marker, &[due_job("t:1", START_MS)]).await.unwrap();
    bench.store.publish_horizon(&marker, START_MS - 1).await.unwrap();
    assert!(bench.take(9).await.jobs.is_empty());
    assert!(bench.store.finish_rebuild(&marker, &bench.store.run_id().await.unwrap()).await.unwrap());
    assert_eq!(bench.store.takeable().await.unwrap(), Takeable::All);
    assert_eq!(bench.take(9).await.ids(), ["t:1"]);
    let keys: Vec<String> = bench.redis(&["KEYS", "{dq:0}:rebuilding"]).await;
    assert_eq!(keys, Vec::<String>::new(), "nothing of the rebuild is left behind");
}

#[tokio::test]
async fn a_flush_voids_the_marker_and_its_horizon() {
    let (bench, marker) = flushed().await;
    bench.store.rebuild_jobs(&marker, &[due_job("t:1", START_MS)]).await.unwrap();
    bench.store.publish_horizon(&marker, START_MS).await.unwrap();
    bench.redis::<()>(&["FLUSHALL"]).await;
    assert!(takes_nothing(&bench.store).await);
    assert_eq!(bench.store.rebuild_jobs(&marker, &[due_job("t:2", START_MS)]).await.unwrap(), None);
    assert!(!bench.store.publish_horizon(&marker, START_MS).await.unwrap());
    assert!(!bench.store.finish_rebuild(&marker, "run").await.unwrap());
    let keys: Vec<String> = bench.redis(&["KEYS", "*"]).await;
    assert_eq!(keys, Vec::<String>::new(), "a rebuild that no longer counts writes nothing");
}

#[tokio::test]
async fn later_rebuild_voids_the_earlier_horizon() {
    let (bench, earlier) = flushed().await;
    bench.store.publish_horizon(&earlier, START_MS).await.unwrap();
    let later = bench.store.begin_rebuild().await.unwrap();
    assert!(takes_nothing(&bench.store).await);
    assert_eq!(bench.store.rebuild_jobs(&earlier, &[due_job("t:1", START_MS)]).await.unwrap(), None);
    assert!(!bench.store.publish_horizon(&earlier, START_MS).await.unwrap());
    assert_eq!(
        bench.store.rebuild_jobs(&later, &[due_job("t:1", START_MS)]).await.unwrap(),
        Some(vec![RepairVerdict::Inserted])
    );
    assert!(bench.store.publish_horizon(&later, START_MS).await.unwrap());
    assert_eq!(bench.take(9).await.ids(), ["t:1"]);
}

/// The rebuilding process has died. Its jobs are taken, and are rescued from dead workers.
#[tokio::test]
async fn leases_below_the_horizon_work_as_usual() {
    let (bench, marker) = flushed().await;
    bench.store.rebuild_jobs(&marker, &[due_job("t:1", START_MS), due_job("t:2", START_MS)]).await.unwrap();
    bench.store.publish_horizon(&marker, START_MS).await.unwrap();
    let took = bench.take(9).await;
    assert_eq!(took.ids(), ["t:1", "t:2"]);
    bench.settle_then(&took.jobs[0], queue::store::LeaseEnd::Done, vec![timer("t:3", secs(1)), due_now("t:4")]).await;
    bench.advance(LEASE);
    let took = bench.take(9).await;
    assert_eq!(took.ids(), ["t:2", "t:4"], "its follow-up is due by now, but beyond the horizon");
    assert_eq!(bench.find("t:3").await.unwrap().state, JobState::Due);
}

#[tokio::test]
async fn rebuilt_job_is_restored_only_once() {
    let (bench, marker) = flushed().await;
    let job = [due_job("t:1", START_MS)];
    bench.store.rebuild_jobs(&marker, &job).await.unwrap();
    bench.store.publish_horizon(&marker, START_MS).await.unwrap();
    assert_eq!(bench.store.rebuild_jobs(&marker, &job).await.unwrap(), Some(vec![RepairVerdict::Fine]), "due");
    let leased = bench.take_one().await;
    assert_eq!(bench.store.rebuild_jobs(&marker, &job).await.unwrap(), Some(vec![RepairVerdict::Fine]), "leased");
    bench.settle(&leased, queue::store::LeaseEnd::Dead { error: "broken".to_owned() }).await;
    assert_eq!(bench.store.rebuild_jobs(&marker, &job).await.unwrap(), Some(vec![RepairVerdict::Dead]));
    let later = [due_job("t:2", START_MS + 9_000), due_job("t:2", START_MS + 1_000)];
    bench.store.rebuild_jobs(&marker, &later[..1]).await.unwrap();
    assert_eq!(bench.store.rebuild_jobs(&marker, &later[1..]).await.unwrap(), Some(vec![RepairVerdict::Moved]));
}

#[tokio::test]
async fn many_jobs_are_restored_in_one_call() {
    let (bench, marker) = flushed().await;
    let jobs: Vec<DueJob> = (0..1_700).map(|n| due_job(&format!("t:{n}"), START_MS + n)).collect();
    assert_eq!(bench.store.rebuild_jobs(&marker, &jobs).await.unwrap(), Some(vec![RepairVerdict::Inserted; 1_700]));
    assert_eq!(bench.store.rebuild_jobs(&marker, &jobs).await.unwrap(), Some(vec![RepairVerdict::Fine; 1_700]));
    let stats = bench.store.queue_stats(&[QUEUE]).await.unwrap().remove(0);
    assert_eq!(stats.due + stats.scheduled, 1_700);
}

/// A worker follows the horizon, and reports as long as the rebuild is not finished.
#[tokio::test]
async fn a_worker_follows_the_horizon() {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    let (count, missing) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let runtime =
        queue::Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 4)]).on_missing_epoch(missing.clone());
    let worker = Worker::start(runtime);
    let performed = async |many: usize| {
        eventually("performed", async || count.load(Ordering::SeqCst) == many).await;
    };
    raw::<()>(&redis.url(), &["FLUSHALL"]).await;
    missing.notified().await;
    let marker = store.begin_rebuild().await.unwrap();
    let now_ms = store.now_ms_rounded_up().await.unwrap();
    let due = |number: u64, due_ms: u64| DueJob { job: NewJob::now(&Tick(number)), due_ms };
    let jobs = [due(1, now_ms - 20), due(2, now_ms - 10), due(3, now_ms - 5)];
    store.rebuild_jobs(&marker, &jobs[..1]).await.unwrap();
    assert!(store.publish_horizon(&marker, now_ms - 20).await.unwrap());
    performed(1).await;
    store.rebuild_jobs(&marker, &jobs[1..]).await.unwrap();
    assert!(store.publish_horizon(&marker, now_ms).await.unwrap());
    performed(3).await;
    assert_eq!(store.epoch().await.unwrap(), None);
    tokio::time::timeout(millis(20_000), missing.notified()).await.expect("the worker still misses the epoch");
    worker.drain().await;
}
