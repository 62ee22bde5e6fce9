//! The reason for dispatchq's own scripts: with 8,000 jobs due at once, the take of stock apalis-redis fails
//! permanently.
//!
//! One minute of outage at 140 orders per second is enough. If this test fails, upstream has fixed the stall.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use apalis_core::{backend::TaskSink, worker::builder::WorkerBuilder};
use apalis_redis::{Config, RedisStorage};
use redis::{AsyncCommands, aio::ConnectionManagerConfig};
use servers::RedisServer;

const DUE_AT_ONCE: u64 = 8_000;
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn stock_apalis_stalls_with_8000_due_jobs() {
    let server = RedisServer::start().await.unwrap();
    let config = Config::default().queue("herd");
    // Same as `apalis_redis::connect`, with a longer timeout: half a second is too short on a busy machine.
    let patient = ConnectionManagerConfig::new().set_response_timeout(Some(STALL_TIMEOUT));
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection_manager_with_config(patient).await.unwrap();
    let mut storage = RedisStorage::<u64>::new(connection.clone()).with_config(config.clone());
    let jobs: Vec<u64> = (0..DUE_AT_ONCE).collect();
    for batch in jobs.chunks(500) {
        storage.push_bulk(batch.to_vec()).await.unwrap();
    }

    let performed = Arc::new(AtomicU64::new(0));
    // A supervisor would restart the worker; restarting does not help.
    for attempt in 1..=3 {
        let count = performed.clone();
        let backend = RedisStorage::<u64>::new(connection.clone()).with_config(config.clone());
        let worker = WorkerBuilder::new(format!("worker-{attempt}")).backend(backend).build(move |_: u64| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        });
        let ended = tokio::time::timeout(STALL_TIMEOUT, worker.run()).await;
        let performed = performed.load(Ordering::Relaxed);
        assert_eq!(performed, 0, "{}", mended(performed));
        let Ok(Err(error)) = ended else { panic!("it fails differently now, without an error: {ended:?}") };
        let error = error.to_string();
        assert!(error.contains("too many results to unpack"), "it fails differently now: {error}");
    }
    let waiting: u64 = connection.zcard(config.scheduled_jobs_set()).await.unwrap();
    assert_eq!(waiting, DUE_AT_ONCE);
}

fn mended(performed: u64) -> String {
    format!(
        "apalis-redis performed {performed} of {DUE_AT_ONCE} jobs due at once and its worker lives: upstream has mended \
         the stall. Update docs/BENCHMARKS.md, push jobs in bench-peers the normal way, and check whether \
         dispatchq still needs its own `take`"
    )
}
