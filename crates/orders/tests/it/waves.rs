//! Waves of an attempt: each asks further drivers in a wider circle, and the attempt has one deadline and one outcome.

use jobs::{Job, NewJob, StartWave};
use maintenance::recovery::{reconciler, repair};
use model::{decide::actions, order::OfferState};
use queue::Outcome;
use settings::{Config, WaveConfig};
use test_support::{TestApp, id, ids, retry_as_shipped, secs};

/// Distances of eight drivers from the pickup: three within 500 m, three within 2 km, two within 5 km.
const EIGHT: [(&str, f64); 8] = [
    ("D1", 100.0),
    ("D2", 200.0),
    ("D3", 300.0),
    ("D4", 1_000.0),
    ("D5", 1_500.0),
    ("D6", 1_900.0),
    ("D7", 3_000.0),
    ("D8", 4_000.0),
];

fn wave(ask: u16, within: f64, lasts_secs: u64) -> WaveConfig {
    WaveConfig { ask, within, lasts: (lasts_secs > 0).then(|| secs(lasts_secs)) }
}

/// Asks 2 drivers within 500 m, after 20 s 2 within 2 km, and after 30 s more 3 within 5 km.
fn three_waves(config: &mut Config) {
    retry_as_shipped(config);
    let waves = vec![wave(2, 500.0, 20), wave(2, 2_000.0, 30), wave(3, 5_000.0, 0)];
    config.service_types.entry("RIDE".into()).or_default().waves = Some(waves);
}

async fn start_with_three_waves() -> TestApp {
    let t = TestApp::with(three_waves).await;
    t.drivers(&EIGHT).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t
}

/// Returns the wave and the driver of each offer of an attempt.
async fn asked(t: &TestApp, attempt: i32) -> Vec<String> {
    let sql = "SELECT concat_ws(' ', wave, driver_id) FROM offers WHERE attempt_no =";
    t.texts(&format!("{sql} {attempt} ORDER BY wave, rank, driver_id")).await
}

async fn decline(t: &TestApp, driver: &str) {
    let offer = t.live_offers("ORD-1").await.into_iter().find(|o| o.driver_id == driver).expect("is being asked");
    t.act("ORD-1", |s| actions::decline_offer(s, &driver.into(), offer.id, None)).await.unwrap();
}

fn wave_job(attempt: u32, wave: u32) -> NewJob {
    NewJob::now(&StartWave { order: id("ORD-1"), attempt, wave })
}

async fn wave_timers(t: &TestApp) -> Vec<String> {
    t.timers().await.into_keys().filter(|id| id.starts_with("wave:")).collect()
}

#[tokio::test]
async fn each_wave_asks_further_drivers_in_a_wider_circle() {
    let t = start_with_three_waves().await;
    assert_eq!(asked(&t, 1).await, ["1 D1", "1 D2"]);
    assert_eq!(wave_timers(&t).await, ["wave:ORD-1:1:2"]);
    t.run_for(secs(19)).await;
    assert_eq!(asked(&t, 1).await.len(), 2, "a wave is never early");
    t.run_for(secs(1)).await;
    let second = ["1 D1", "1 D2", "2 D3", "2 D4"];
    assert_eq!(asked(&t, 1).await, second);
    t.run_for(secs(29)).await;
    assert_eq!(asked(&t, 1).await, second);
    t.run_for(secs(1)).await;
    assert_eq!(asked(&t, 1).await, ["1 D1", "1 D2", "2 D3", "2 D4", "3 D5", "3 D6", "3 D7"]);
    assert_eq!(wave_timers(&t).await, Vec::<String>::new(), "the last wave lasts until the deadline");
    assert_eq!(t.live_offers("ORD-1").await.len(), 7);
    assert_eq!(t.count("SELECT count(DISTINCT expires_at) FROM offers").await, 1);

    t.run_for(secs(69)).await;
    assert_eq!(t.live_offers("ORD-1").await.len(), 7);
    t.run_for(secs(1)).await;
    assert_eq!(asked(&t, 2).await, ["3 D8"], "waves without a further driver are skipped");
    let history =
        ["ORDER_CREATED", "ATTEMPT_STARTED", "WAVE_STARTED", "WAVE_STARTED", "ATTEMPT_TIMEOUT", "ATTEMPT_STARTED"];
    assert_eq!(t.reasons("ORD-1").await, history);
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_of_an_earlier_wave_may_accept_later() {
    let t = start_with_three_waves().await;
    t.run_for(secs(20)).await;
    let offer = t.live_offers("ORD-1").await.into_iter().find(|offer| offer.driver_id == "D1").unwrap();
    t.accept("ORD-1", "D1", offer.id).await.unwrap();
    let states: Vec<_> = t.offers("ORD-1").await.into_iter().map(|(_, state)| state).collect();
    let lost = OfferState::Superseded;
    assert_eq!(states, [OfferState::Accepted, lost, lost, lost]);
    assert_eq!(wave_timers(&t).await, Vec::<String>::new());
    t.run_for(secs(120)).await;
    assert_eq!(t.reasons("ORD-1").await.last().unwrap(), "OFFER_ACCEPTED");
    t.assert_sound().await;
}

#[tokio::test]
async fn next_wave_starts_after_redis_was_flushed() {
    let t = start_with_three_waves().await;
    let _: () = t.redis(&["FLUSHALL"]).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
    assert_eq!(wave_timers(&t).await, ["wave:ORD-1:1:2"]);
    t.run_for(secs(20)).await;
    assert_eq!(asked(&t, 1).await, ["1 D1", "1 D2", "2 D3", "2 D4"]);
    t.advance(secs(29)).await;
    let _: () = t.redis(&["FLUSHALL"]).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
    t.run_for(secs(1)).await;
    assert_eq!(asked(&t, 1).await.len(), 7);
    assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), []);
    t.assert_sound().await;
}

#[tokio::test]
async fn overdue_wave_is_found_by_the_reconciler() {
    let t = start_with_three_waves().await;
    let timer = wave_job(1, 2);
    let _: i64 = t.redis(&["ZREM", "{dq:0}:due:dispatch-timeout-queue", timer.id.as_str()]).await;
    assert_eq!(wave_timers(&t).await, Vec::<String>::new());
    t.advance(secs(24)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
    t.run_due().await;
    assert_eq!(asked(&t, 1).await, ["1 D1", "1 D2", "2 D3", "2 D4"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn next_wave_starts_when_every_asked_driver_declined() {
    let t = start_with_three_waves().await;
    decline(&t, "D1").await;
    assert_eq!(ids(&t.run_due().await), Vec::<&str>::new());
    decline(&t, "D2").await;
    assert_eq!(ids(&t.run_due().await)[0], "wave:ORD-1:1:2");
    assert_eq!(asked(&t, 1).await, ["1 D1", "1 D2", "2 D3", "2 D4"]);
    let history = ["ORDER_CREATED", "ATTEMPT_STARTED", "DRIVER_DECLINED", "DRIVER_DECLINED", "WAVE_STARTED"];
    assert_eq!(t.reasons("ORD-1").await, history, "the attempt has no outcome yet");
    t.assert_sound().await;

    for driver in ["D3", "D4"] {
        decline(&t, driver).await;
    }
    t.run_due().await;
    for driver in ["D5", "D6", "D7"] {
        decline(&t, driver).await;
    }
    t.run_due().await;
    assert_eq!(
        t.reasons("ORD-1").await[8..],
        ["DRIVER_DECLINED", "DRIVER_DECLINED", "OFFER_DECLINED", "ATTEMPT_STARTED"]
    );
    assert_eq!(asked(&t, 2).await, ["3 D8"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn declined_wave_without_a_further_driver_ends_the_attempt() {
    let t = TestApp::with(three_waves).await;
    t.drivers(&EIGHT[..2]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    for driver in ["D1", "D2"] {
        decline(&t, driver).await;
    }
    t.run_due().await;
    assert_eq!(t.reasons("ORD-1").await[4..], ["OFFER_DECLINED", "SEARCH_AGAIN"]);
    assert_eq!(t.timers().await.into_keys().collect::<Vec<_>>(), ["dispatch:ORD-1:2", "lifetime:ORD-1"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_who_arrives_is_asked_by_a_later_wave() {
    let t = TestApp::with(three_waves).await;
    t.drivers(&EIGHT[..2]).await;
    t.order("ORD-1").await;
    t.run_for(secs(20)).await;
    assert_eq!(asked(&t, 1).await, ["1 D1", "1 D2"], "the second wave finds no further driver");
    t.drivers(&[("D9", 4_500.0)]).await;
    t.run_for(secs(30)).await;
    assert_eq!(asked(&t, 1).await, ["1 D1", "1 D2", "3 D9"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn stale_early_and_repeated_wave_jobs_change_nothing() {
    let t = start_with_three_waves().await;
    let before = t.dump().await;
    t.app.core.store.enqueue(&[wave_job(1, 2), wave_job(1, 3), wave_job(2, 2), wave_job(1, 1)]).await.unwrap();
    let ran = t.run_due().await;
    let snoozed: Vec<_> = ran.iter().filter(|ran| matches!(ran.outcome, Outcome::Snooze { .. })).collect();
    assert_eq!((ran.len(), snoozed.len()), (4, 1), "{ran:?}");
    assert_eq!(snoozed[0].id, StartWave { order: id("ORD-1"), attempt: 1, wave: 2 }.id().as_str());
    assert_eq!(t.dump().await, before);

    t.advance(secs(20)).await;
    let jobs = t.take().await;
    let leased = jobs.iter().find(|job| job.delivery.id.as_str() == "wave:ORD-1:1:2").unwrap();
    let outcome = t.perform(leased).await;
    let after = t.dump().await;
    t.perform(leased).await;
    assert_eq!(t.dump().await, after, "a repeated job changes nothing");
    t.settle(leased, outcome).await;
    assert_eq!(asked(&t, 1).await, ["1 D1", "1 D2", "2 D3", "2 D4"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn held_order_starts_no_wave() {
    let t = start_with_three_waves().await;
    t.act("ORD-1", |s| model::decide::review::hold_order(s, &test_support::by("operator:test"), "wait")).await.unwrap();
    assert_eq!(t.live_offers("ORD-1").await.len(), 0);
    t.run_for(secs(120)).await;
    assert_eq!(asked(&t, 1).await.len(), 2);
    t.assert_sound().await;
}
