//! Number of workers that an autoscaler needs one minute ahead, with a clock moved by hand. `process::scale` tests it
//! over HTTP and through an outage.

use std::{collections::BTreeMap, fs};

use jobs::{PollPartner, queues};

use desk::reports::scale::{WorkerGroup, read_scale};
use queue::NewJob;
use settings::{Config, PartnerConfig, ScaleConfig};
use test_support::{TestApp, id, secs, workspace};

/// Uses one percent of a replica with one slot, so that a few jobs need many replicas.
const SCALE: ScaleConfig = ScaleConfig { min: 1, max: 1_000, target: 1, per_worker: 100_000 };

fn group_of(queue: &'static str) -> WorkerGroup {
    WorkerGroup { queues: vec![queue], concurrency: Some(1) }
}

/// Returns the replicas for this many jobs per minute of 50 ms each. The time is an assumption, because no worker has
/// measured a job.
fn wanted_for(jobs: u64) -> u64 {
    (jobs * 50).div_ceil(60).div_ceil(10).max(1)
}

/// Returns the number of rides in each ten minutes of the sample's evening, from its start until after the rush hour.
fn rides_of_the_evening() -> Vec<usize> {
    let file = workspace().join("crates/lab/src/replay/sample/rides.csv");
    let rides = fs::read_to_string(file).unwrap();
    let mut counts = BTreeMap::<&str, usize>::new();
    // The key is, for example, `2024-06-14 17:1`. Some rides have no valid date.
    for ride in rides.lines().filter(|ride| ride.starts_with("2024-06-14 1")) {
        *counts.entry(&ride[.."2024-06-14 17:1".len()]).or_default() += 1;
    }
    counts.into_values().take(9).collect()
}

/// Ten minutes of the sample are one minute here. No driver answers, so an attempt ends after two minutes and another
/// one starts.
#[tokio::test]
async fn scale_advice_leads_the_rush_by_minute() {
    let t = TestApp::with(|config| config.scale = SCALE).await;
    let names: Vec<String> = (0..600).map(|n| format!("D{n}")).collect();
    let drivers: Vec<(&str, f64)> =
        names.iter().zip(100..).map(|(name, metres)| (name.as_str(), f64::from(metres))).collect();
    t.drivers(&drivers).await;
    let group = group_of(queues::DISPATCH_TIMEOUT);
    let (mut told, mut came) = (Vec::new(), Vec::new());
    for (minute, rides) in rides_of_the_evening().into_iter().enumerate() {
        came.push(t.app.core.store.queue_stats(&[queues::DISPATCH_TIMEOUT]).await.unwrap()[0].due);
        t.run_due().await;
        for n in 0..rides {
            t.order(&format!("ORD-{minute}-{n}")).await;
        }
        t.run_due().await;
        told.push(read_scale(&t.app.desk, &group).await.unwrap().unwrap().replicas);
        t.advance(secs(60)).await;
    }
    assert_eq!(came[..2], [0, 0], "the first attempts run for two minutes");
    let ahead: Vec<u64> = came[1..].iter().map(|jobs| wanted_for(*jobs)).collect();
    assert_eq!(told[..ahead.len()], ahead, "a minute before: {came:?}");
    assert!(ahead.iter().max() >= Some(&4), "there is no rush: {ahead:?}");

    // An unknown value is not reported as a number.
    t.redis::<()>(&["FLUSHALL"]).await;
    assert_eq!(read_scale(&t.app.desk, &group).await.unwrap(), None);
}

#[tokio::test]
async fn questions_to_partners_want_no_more_than_partners_let_through() {
    let with_rate = |config: &mut Config, per_s| {
        config.scale = SCALE;
        let partner =
            PartnerConfig { rate_per_s: per_s, max_concurrent: 1, ..PartnerConfig::with_url("http://127.0.0.1:9") };
        config.partners.insert("bbd".into(), partner);
    };
    let t = TestApp::with(|config| with_rate(config, 1)).await;
    let polls: Vec<NewJob> =
        (0..600).map(|n| NewJob::now(&PollPartner { order: id(&format!("ORD-{n}")), number: 1 })).collect();
    t.app.core.store.enqueue(&polls).await.unwrap();
    let group = group_of(queues::JOBID_POLL);
    for (per_s, replicas, capped) in [(1, 5, true), (4, 20, true), (100, 50, false)] {
        let app = t.reconfigured(|config| with_rate(config, per_s));
        let advice = read_scale(&app.desk, &group).await.unwrap().unwrap();
        assert_eq!((advice.replicas, advice.queues[0].capped), (replicas, capped), "{per_s} a second: {advice:?}");
    }
    // Jobs of other queues do not wait for a partner.
    let others = read_scale(&t.app.desk, &group_of(queues::NOTIFY)).await.unwrap().unwrap();
    assert_eq!((others.replicas, others.queues[0].capped), (1, false), "{others:?}");
}
