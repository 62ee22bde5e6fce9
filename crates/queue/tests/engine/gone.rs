//! Slots of a process that has ended without a drain.

use servers::RedisServer;

use crate::{
    process::{Process, SLOTTED},
    runtime::Worker,
    slots::{acquire, bench_with, need, park},
    support::{LEASE, Letter, OTHER, QUEUE, due_now, eventually, id, outcome_of, rebuild, secs},
};
use queue::{
    LeaseToken, NewJob, Outcome, Registry, Runtime, SlotNeed, Store, run_with_slots,
    store::{JobState, SlotLimits, TakeMode, TakeRequest},
};

#[tokio::test]
async fn only_slots_of_dead_process_are_freed() {
    let bench = bench_with(1, &[("a", 2)]).await;
    // Slots that the process asked for, slots that came with a take, and a job of another process.
    let asked = acquire(&bench, "t:0", &need("a", "0")).await;
    park(&bench, "t:1", &need("a", "1")).await;
    bench.store.set_slot_limits(&SlotLimits::for_shard(2)).await.unwrap();
    let handed = bench.take_one().await.delivery;
    assert!(handed.slots.is_some());
    bench.enqueue(due_now("t:2")).await;
    let token = LeaseToken::new("other", 0);
    let request = TakeRequest { queues: &[(QUEUE, 1)], token: &token, lease: LEASE, mode: TakeMode::Normal };
    bench.store.take(&request).await.unwrap();

    let in_use = async || bench.store.slot_stats(&["a"]).await.unwrap().in_use;
    let (name, _) = asked.grant.holder().split_once('.').unwrap();
    assert_eq!(bench.store.free_slots_of("other", "another").await.unwrap(), 0);
    assert_eq!(bench.store.free_slots_of("test", "another").await.unwrap(), 1);
    assert_eq!(in_use().await, 1);
    assert_eq!(bench.store.free_slots_of("other", name).await.unwrap(), 1);
    assert_eq!(in_use().await, 0);

    // The leases stay until they end by time, and then count as lost, because a job may have killed its worker.
    for job in ["t:1", "t:2"] {
        assert_eq!(bench.find(job).await.unwrap().state, JobState::Leased, "{job}");
    }
}

/// Returns a need whose slots do not end during the test.
fn long_need() -> SlotNeed {
    SlotNeed::new("a", "letter", secs(600)).unwrap()
}

#[tokio::test]
async fn frozen_process_keeps_slots_and_killed_one_frees() {
    let redis = RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    store.set_slot_limits(&SlotLimits::for_shard(1).with_group("a", 1).unwrap()).await.unwrap();
    let still = Process::start(&redis.url());
    store.enqueue(&[NewJob::now(&Letter(1, SLOTTED.to_owned()))]).await.unwrap();
    let holders = async || store.list_slot_holders(0, 9).await.unwrap();
    eventually("it has its slots", async || holders().await.iter().any(|held| !held.reserved)).await;
    let before = holders().await;
    still.signal("STOP");

    let slots = store.clone();
    let registry = Registry::new().register::<Letter, _, _>(move |_, delivery| {
        let store = slots.clone();
        async move {
            let need = long_need();
            outcome_of(run_with_slots(&store, &delivery, &need, |_| async { Outcome::done() }).await)
        }
    });
    let other = Worker::start(Runtime::new(store.clone(), registry).queues([(OTHER, 4)]));
    // Its lease has expired by then, and the other process has checked it throughout.
    let parked = async || store.queue_stats(&[OTHER]).await.unwrap()[0].parked;
    eventually("the job waits for the slots", async || parked().await == 1).await;
    assert_eq!(holders().await, before);

    still.signal("KILL");
    eventually("the other has the slots", async || {
        holders().await.is_empty() && store.find_job(&id("letter:1"), &[OTHER]).await.unwrap().is_none()
    })
    .await;
    assert_eq!(other.drain().await.settled, 2, "it was parked, and done");
}
