//! The proof that Redis still has all jobs.

use crate::support::Bench;

#[tokio::test]
async fn a_finished_rebuild_writes_the_epoch() {
    let bench = Bench::new().await;
    let first = bench.store.epoch().await.unwrap().unwrap();
    assert_eq!(first.run_id, bench.store.run_id().await.unwrap());
    let marker = bench.store.begin_rebuild().await.unwrap();
    assert!(bench.store.finish_rebuild(&marker, &first.run_id).await.unwrap());
    let second = bench.store.epoch().await.unwrap().unwrap();
    assert_ne!(first.id, second.id);
}

#[tokio::test]
async fn flush_during_rebuild_voids_it() {
    let bench = Bench::new().await;
    let marker = bench.store.begin_rebuild().await.unwrap();
    bench.redis::<()>(&["FLUSHALL"]).await;
    assert!(!bench.store.finish_rebuild(&marker, "run").await.unwrap());
    assert_eq!(bench.store.epoch().await.unwrap(), None);
}

#[tokio::test]
async fn later_rebuild_voids_the_earlier() {
    let bench = Bench::new().await;
    let earlier = bench.store.begin_rebuild().await.unwrap();
    let later = bench.store.begin_rebuild().await.unwrap();
    assert!(!bench.store.finish_rebuild(&earlier, "run").await.unwrap());
    assert!(bench.store.finish_rebuild(&later, "run").await.unwrap());
}

#[tokio::test]
async fn restart_changes_the_run_id() {
    let mut bench = Bench::new().await;
    bench.redis.restart().await.unwrap();
    let epoch = loop {
        // The first call may still use the old connection.
        if let Ok(epoch) = bench.store.epoch().await {
            break epoch.unwrap();
        }
    };
    assert_ne!(epoch.run_id, bench.store.run_id().await.unwrap());
}
