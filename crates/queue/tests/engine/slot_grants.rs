//! Slots of work that ends abnormally.

use std::sync::{Arc, atomic::AtomicU64};

use servers::RedisServer;
use tokio::sync::Notify;

use crate::{
    runtime::Worker,
    slots::need,
    support::{LEASE, Letter, OTHER, QUEUE, START_MS, due_now, eventually, id, millis, patient_store, raw, rebuild},
};
use queue::{
    Delivery, LeaseToken, NewJob, RedisConfig, Registry, Runtime, ScriptClock, SlotNeed, Store, StoreError,
    store::{EndedSlots, JobState, SlotLimits, SlotVerdict, TakeAnswer, TakeMode, TakeRequest, WaitingJob},
};

/// Returns a fixed clock, so that slots do not end by time.
fn standing_clock() -> ScriptClock {
    ScriptClock::Fixed(Arc::new(AtomicU64::new(START_MS)))
}

async fn start_store(redis: &RedisServer) -> Store {
    let store = patient_store(&redis.url()).await.with_clock(standing_clock());
    rebuild(&store).await;
    let limits = SlotLimits::for_shard(1).with_group("a", 1).unwrap();
    store.set_slot_limits(&limits).await.unwrap();
    // The script is loaded.
    assert_eq!(store.acquire_slots(QUEUE, &id("t:0"), &need("unknown", "0")).await.unwrap(), SlotVerdict::Busy);
    store
}

/// Returns a need longer than the test, so that slots are freed only explicitly.
fn long_need() -> SlotNeed {
    SlotNeed::new("a", "own", SlotNeed::LONGEST).unwrap()
}

/// Pauses scripts that write, without blocking reads.
async fn pause(redis: &RedisServer) {
    raw::<()>(&redis.url(), &["CLIENT", "PAUSE", "60000", "WRITE"]).await;
}

async fn go_on(redis: &RedisServer) {
    raw::<()>(&redis.url(), &["CLIENT", "UNPAUSE"]).await;
}

async fn is_asked(redis: &RedisServer) -> bool {
    raw::<String>(&redis.url(), &["CLIENT", "LIST"]).await.contains(" flags=b ")
}

async fn slots_in_use(store: &Store) -> u64 {
    store.slot_stats(&["a"]).await.unwrap().in_use
}

#[tokio::test]
async fn slots_whose_answer_is_lost_are_freed() {
    let redis = RedisServer::start().await.unwrap();
    let store = start_store(&redis).await;
    let config = RedisConfig { response_timeout: millis(100), ..RedisConfig::new(redis.url()) };
    let hasty = Store::with_config(config).unwrap().with_clock(standing_clock());
    eventually("connected", async || hasty.ping().await.is_ok()).await;
    pause(&redis).await;
    let asked = hasty.acquire_slots(QUEUE, &id("t:1"), &long_need()).await;
    assert!(matches!(asked, Err(StoreError::Slow { .. })), "{asked:?}");
    eventually("asked", async || is_asked(&redis).await).await;
    go_on(&redis).await;
    eventually("freed", async || slots_in_use(&store).await == 0).await;
}

#[tokio::test]
async fn slots_of_cancelled_caller_are_freed() {
    let redis = RedisServer::start().await.unwrap();
    let store = start_store(&redis).await;
    pause(&redis).await;
    let caller = tokio::spawn({
        let store = store.clone();
        async move { store.acquire_slots(QUEUE, &id("t:1"), &long_need()).await }
    });
    eventually("asked", async || is_asked(&redis).await).await;
    caller.abort();
    let ended = caller.await;
    assert!(ended.is_err() || ended.is_ok_and(|asked| asked.is_err()), "it was never answered");
    go_on(&redis).await;
    eventually("freed", async || slots_in_use(&store).await == 0).await;
}

/// Creates a letter with reserved slots.
async fn park_letter(store: &Store) {
    let wait = WaitingJob { job: NewJob::now(&Letter(1, "x".to_owned())), need: long_need() };
    store.park_jobs(&[wait]).await.unwrap();
    assert_eq!(slots_in_use(store).await, 1);
}

#[tokio::test]
async fn unreadable_job_frees_its_slots() {
    let redis = RedisServer::start().await.unwrap();
    let store = start_store(&redis).await;
    park_letter(&store).await;
    raw::<()>(&redis.url(), &["HSET", "{dq:0}:jobs", "letter:1", r#"{"v":2,"body":1}"#]).await;
    let worker = Worker::start(Runtime::new(store.clone(), Registry::new()).queues([(OTHER, 1)]));
    eventually("freed", async || slots_in_use(&store).await == 0).await;
    worker.drain().await;
    assert_eq!(store.find_job(&id("letter:1"), &[OTHER]).await.unwrap().unwrap().state, JobState::Due);
}

#[tokio::test]
async fn drain_frees_slots_of_unused_grant() {
    let redis = RedisServer::start().await.unwrap();
    let store = start_store(&redis).await;
    park_letter(&store).await;
    let begun = Arc::new(Notify::new());
    let notify = begun.clone();
    let registry = Registry::new().register::<Letter, _, _>(move |_, delivery| {
        assert!(delivery.slots.is_some());
        notify.notify_one();
        std::future::pending()
    });
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(OTHER, 1)]).grace(millis(1)));
    begun.notified().await;
    assert_eq!(worker.drain().await.released, 1);
    eventually("freed", async || slots_in_use(&store).await == 0).await;
}

/// Uses Redis' clock, which is finer than the ends of slots.
#[tokio::test]
async fn no_slot_ends_before_its_holder_must() {
    let redis = RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    store.set_slot_limits(&SlotLimits::for_shard(1).with_group("a", 1).unwrap()).await.unwrap();
    let now_us = async || {
        let (secs, micros): (u64, u64) = raw(&redis.url(), &["TIME"]).await;
        secs * 1_000_000 + micros
    };
    let hold_us = u64::try_from(SlotNeed::LONGEST.as_micros()).unwrap();
    for number in 0..20 {
        let asked = now_us().await;
        let SlotVerdict::Granted(grant) = store.acquire_slots(QUEUE, &id("t:0"), &long_need()).await.unwrap() else {
            panic!("busy")
        };
        let ends = store.list_slot_holders(0, 1).await.unwrap()[0].ends_ms;
        assert!(ends * 1000 >= asked + hold_us, "asked at {asked}, ends at {ends}");
        store.release_slots(&[EndedSlots { job: id("t:0"), grant }]).await.unwrap();

        let (job, need) = (due_now(&format!("t:{number}")), long_need());
        store.park_jobs(&[WaitingJob { job, need }]).await.unwrap();
        let token = LeaseToken::new("test", number);
        let request = TakeRequest { queues: &[(QUEUE, 1)], token: &token, lease: LEASE, mode: TakeMode::Normal };
        let asked = now_us().await;
        let TakeAnswer::Jobs { mut jobs, .. } = store.take(&request).await.unwrap() else { panic!("no epoch") };
        let Delivery { id: job, slots, .. } = jobs.remove(0).delivery;
        let ends = store.list_slot_holders(0, 1).await.unwrap()[0].ends_ms;
        assert!(ends * 1000 >= asked + hold_us, "taken at {asked}, ends at {ends}");
        store.release_slots(&[EndedSlots { job, grant: slots.unwrap() }]).await.unwrap();
    }
}
