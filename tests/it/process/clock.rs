//! Workers whose clocks are an hour ahead or behind. Due times use Redis' clock plus a delay, and deadlines use
//! Postgres' clock, so orders are not affected.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use chrono::{DateTime, Utc};

use super::{assert_all_well, orders};
use crate::support::{Child, Crowd, Fleet, eventually, hire};

const HOUR_SECS: i64 = 3600;

/// Compiles a library that shifts the clock of its process, with the compiler that links Rust programs.
fn shifting_library(dir: &Path) -> PathBuf {
    let library = dir.join("clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/process/clock.c");
    let output =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).args([source, "-ldl"]).output();
    let output = output.expect("cc is there, for Rust needs it too");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// Returns the offset of the worker's clock, from the time of its first log line.
fn offset_secs(worker: &Child) -> i64 {
    let log = worker.log();
    let time: DateTime<Utc> = log.split_whitespace().next().expect("a log line").parse().unwrap();
    (time - Utc::now()).num_seconds()
}

#[tokio::test]
async fn workers_an_hour_off_are_neither_early_nor_late() {
    let fleet = Fleet::start().await;
    let library = shifting_library(fleet.dir());
    let shifted = |name: &str, secs: i64| {
        let offset = secs.to_string();
        let settings = [("LD_PRELOAD", library.to_str().unwrap()), ("TEST_CLOCK_OFFSET_SECS", &offset)];
        fleet.worker_with(name, &settings)
    };
    let mut workers = [shifted("ahead", HOUR_SECS), shifted("behind", -HOUR_SECS)];
    eventually("both show up", || async { fleet.app.core.store.list_workers().await.unwrap().len() == 2 }).await;
    hire(&fleet.app, 30).await;
    let _crowd = Crowd::start(&fleet.app);
    orders(&fleet, "ORD", 60).await;
    fleet.at_rest().await;
    assert_all_well(&fleet).await;
    assert!((offset_secs(&workers[0]) - HOUR_SECS).abs() < 600, "the first clock is off");
    assert!((offset_secs(&workers[1]) + HOUR_SECS).abs() < 600, "the second clock is off");

    // No offer expired early, and none an hour late.
    let given_up = "SELECT count(*) FROM offers WHERE state = 'expired'";
    assert!(fleet.count(given_up).await > 0);
    let off_time = "AND (responded_at < expires_at OR responded_at > expires_at + interval '1 minute')";
    assert_eq!(fleet.count(&format!("{given_up} {off_time}")).await, 0);
    // No message was delayed by an hour, or sent as if it were an hour old.
    assert_eq!(fleet.app.core.store.read_lateness().await.unwrap().max_ms / 60_000, 0);
    for worker in &mut workers {
        worker.terminate();
        assert_eq!(worker.ended().await.code(), Some(0));
        let (settled, refused) = worker.settled_and_refused();
        assert!(settled > 10 && refused == 0, "settled {settled}, refused {refused}");
    }
}
