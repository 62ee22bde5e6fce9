//! Jobs that state the slots that they will need, and takes that free slots.

use super::{acquire, bench_with, need, release, take_handed};
use crate::support::{Bench, LEASE, Letter, OTHER, QUEUE, due_now, secs, timer};
use queue::{
    LeaseToken, LeasedJob, NewJob,
    store::{EndedSlots, JobState, LeaseEnd, TakeAnswer, TakeErrands, TakeMode, TakeRequest},
};

/// Returns a due job that states its slots.
fn stating(job: &str, group: &str) -> NewJob {
    due_now(job).with_slots(need(group, job))
}

/// Frees these slots and leases up to `permits` jobs, without looking for expired leases.
async fn take_freeing(bench: &Bench, number: u64, permits: usize, ended: &[EndedSlots]) -> Vec<LeasedJob> {
    let token = LeaseToken::new("freeing", number);
    let request = TakeRequest { queues: &[(QUEUE, permits)], token: &token, lease: LEASE, mode: TakeMode::Normal };
    match bench.store.take_beside(&request, &TakeErrands { ended, finds_expired: false }).await.unwrap() {
        TakeAnswer::Jobs { jobs, .. } => jobs,
        TakeAnswer::NoEpoch => panic!("no epoch"),
    }
}

fn ids(jobs: &[LeasedJob]) -> Vec<&str> {
    jobs.iter().map(|leased| leased.delivery.id.as_str()).collect()
}

#[tokio::test]
async fn due_job_gets_its_stated_slots_or_waits() {
    let bench = bench_with(2, &[("a", 1), ("b", 1)]).await;
    bench.enqueue(timer("t:later", secs(9)).with_slots(need("a", "later"))).await;
    // Older and newer programs read this format.
    let envelope: String = bench.redis(&["HGET", "{dq:0}:jobs", "t:later"]).await;
    assert_eq!(envelope, r#"{"v":1,"slots":"a later 5000"}"#);
    for (job, group) in [("t:1", "a"), ("t:2", "a"), ("t:3", "b")] {
        bench.enqueue(stating(job, group)).await;
    }
    bench.enqueue(due_now("t:4")).await;
    let took = bench.take(10).await;
    assert_eq!(ids(&took.jobs), ["t:1", "t:3", "t:4"]);
    let slots = took.jobs.iter().map(|leased| leased.delivery.slots.as_ref().map(|grant| grant.holder().to_owned()));
    let token = took.jobs[0].token.to_string();
    assert_eq!(slots.collect::<Vec<_>>(), [Some(token.clone()), Some(token), None]);
    assert!(took.jobs.iter().all(|leased| leased.delivery.payload.is_none()));
    assert_eq!(bench.find("t:2").await.unwrap().state, JobState::Parked);

    // The second job gets its slots in turn; afterwards nothing remains.
    let grant = took.jobs[0].delivery.slots.clone().unwrap();
    release(&bench, EndedSlots { job: took.jobs[0].delivery.id.clone(), grant }).await;
    let (second, slots) = take_handed(&bench).await;
    assert_eq!(second.delivery.id.as_str(), "t:2");
    release(&bench, slots).await;
    for leased in took.jobs.iter().chain([&second]) {
        bench.settle(leased, LeaseEnd::Done).await;
    }
    assert_eq!(bench.redis::<Vec<String>>(&["HKEYS", "{dq:0}:jobs"]).await, ["t:later"]);
}

#[tokio::test]
async fn envelope_has_payload_and_slots() {
    let bench = bench_with(1, &[("a", 1)]).await;
    let job = NewJob::now(&Letter(1, "naïve \"slots\"".to_owned())).with_slots(need("a", "1"));
    let payload = job.payload.clone();
    bench.enqueue(job).await;
    let mut took = bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await;
    let delivery = took.jobs.remove(0).delivery;
    assert_eq!((delivery.payload, delivery.slots.is_some()), (payload, true));
}

#[tokio::test]
async fn take_leases_the_jobs_its_freed_slots_serve() {
    let bench = bench_with(1, &[("a", 1)]).await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    for job in ["t:1", "t:2"] {
        bench.enqueue(stating(job, "a")).await;
    }
    assert!(take_freeing(&bench, 1, 9, &[]).await.is_empty());
    let first = take_freeing(&bench, 2, 9, std::slice::from_ref(&held)).await;
    assert_eq!(ids(&first), ["t:1"]);
    // Freeing the slots a second time changes nothing.
    assert!(take_freeing(&bench, 3, 9, &[held]).await.is_empty());
    let grant = first[0].delivery.slots.clone().unwrap();
    let ended = EndedSlots { job: first[0].delivery.id.clone(), grant };
    // Without a permit the job becomes due for other workers.
    assert!(take_freeing(&bench, 4, 0, &[ended]).await.is_empty());
    assert_eq!(bench.find("t:2").await.unwrap().state, JobState::Due);
    let (second, slots) = take_handed(&bench).await;
    assert_eq!((second.delivery.id.as_str(), slots.grant.is_unused()), ("t:2", true));
}

#[tokio::test]
async fn expired_slots_are_granted_without_lease_checks() {
    let bench = bench_with(1, &[("a", 1)]).await;
    std::mem::forget(acquire(&bench, "t:0", &need("a", "0")).await);
    bench.enqueue(stating("t:1", "a")).await;
    assert!(take_freeing(&bench, 1, 9, &[]).await.is_empty());
    bench.advance(secs(5));
    assert_eq!(ids(&take_freeing(&bench, 2, 9, &[]).await), ["t:1"]);
}

/// A producer may write any envelope.
#[tokio::test]
async fn invalid_slot_request_is_leased_without_slots() {
    let bench = bench_with(1, &[("a", 1)]).await;
    let stated = ["z 1 5000", "a - 5000", "a 1 0", "a 1 600001", "a 1 999999999999999", "a 1", "{x} 1 5000"];
    for (n, slots) in stated.iter().enumerate() {
        let id = format!("t:{n}");
        bench.enqueue(due_now(&id)).await;
        let envelope = format!("{{\"v\":1,\"slots\":\"{slots}\"}}");
        bench.redis::<i64>(&["HSET", "{dq:0}:jobs", &id, &envelope]).await;
    }
    let took = bench.take(10).await;
    assert_eq!(took.jobs.len(), stated.len());
    assert!(took.jobs.iter().all(|leased| leased.delivery.slots.is_none()));
    acquire(&bench, "t:0", &need("a", "1")).await;
}
