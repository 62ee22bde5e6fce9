//! Dead jobs.

use std::collections::{BTreeMap, HashSet};

use crate::support::{Bench, Letter, OTHER, QUEUE, START_MS, due_now, id, secs, timer};
use queue::{
    NewJob, Outcome, RetryPolicy, SettleRequest,
    store::{
        DeadCursor, DeadEntry, DeadFilter, DiscardVerdict, EnqueueVerdict, JobState, LeaseEnd, RequeueVerdict,
        RestoreVerdict, TakeMode,
    },
};

const BOTH: [&str; 2] = [OTHER, QUEUE];

/// Creates `n` dead jobs `t:<prefix>-<number>`, all dead in the same millisecond.
async fn bury(bench: &Bench, prefix: &str, n: usize, error: &str) {
    let jobs: Vec<NewJob> = (0..n).map(|number| due_now(&format!("t:{prefix}-{number}"))).collect();
    bench.store.enqueue(&jobs).await.unwrap();
    loop {
        let leased = bench.take(500).await.jobs;
        if leased.is_empty() {
            return;
        }
        let dead = |leased| SettleRequest::new(leased, Outcome::Dead(error.to_owned()), &RetryPolicy::DEFAULT, 0.5);
        bench.store.settle(&leased.iter().map(dead).collect::<Vec<_>>()).await.unwrap();
    }
}

/// Reads all pages. Returns the ids and the number of pages.
async fn all(bench: &Bench, filter: &DeadFilter) -> (Vec<String>, usize) {
    let (mut ids, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let page = bench.store.list_dead(QUEUE, filter, after.as_ref()).await.unwrap();
        ids.extend(page.entries.into_iter().map(|entry| entry.id));
        pages += 1;
        after = page.next;
        if after.is_none() {
            return (ids, pages);
        }
    }
}

#[tokio::test]
async fn dead_jobs_of_one_instant_page_once() {
    let bench = Bench::new().await;
    bury(&bench, "a", 1_300, "broken").await;
    let (ids, pages) = all(&bench, &DeadFilter::default()).await;
    assert_eq!((ids.len(), pages), (1_300, 3));
    assert_eq!(ids.into_iter().collect::<HashSet<_>>().len(), 1_300);
}

#[tokio::test]
async fn removals_between_pages_skip_no_entry() {
    let bench = Bench::new().await;
    bury(&bench, "a", 1_200, "broken").await;
    let everything = DeadFilter::default();
    let first = bench.store.list_dead(QUEUE, &everything, None).await.unwrap();
    let ids: Vec<String> = first.entries.into_iter().map(|entry| entry.id).collect();
    assert_eq!(ids.len(), 500);
    bench.store.discard(&ids, &BOTH).await.unwrap();
    // The cursor is converted to text, and its job no longer exists.
    let after: DeadCursor = first.next.unwrap().to_string().parse().unwrap();
    let second = bench.store.list_dead(QUEUE, &everything, Some(&after)).await.unwrap();
    let third = bench.store.list_dead(QUEUE, &everything, second.next.as_ref()).await.unwrap();
    assert_eq!((second.entries.len(), third.entries.len(), third.next), (500, 200, None));
}

#[tokio::test]
async fn dead_jobs_are_filtered_by_error_and_age() {
    let bench = Bench::new().await;
    bury(&bench, "old", 2, "no \"route\" to host").await;
    bench.advance(secs(60));
    bury(&bench, "new", 600, "timed out").await;
    let error = |text: &str| DeadFilter { error: Some(text.to_owned()), ..DeadFilter::default() };
    assert_eq!(all(&bench, &error("\"route\"")).await, (vec!["t:old-0".to_owned(), "t:old-1".to_owned()], 2));
    assert_eq!(all(&bench, &error("timed")).await.0.len(), 600);
    let older_than = |age| DeadFilter { older_than: secs(age), ..DeadFilter::default() };
    assert_eq!(all(&bench, &older_than(60)).await.0.len(), 2);
    assert_eq!(all(&bench, &older_than(61)).await, (Vec::new(), 1));
}

#[tokio::test]
async fn requeued_job_keeps_payload_and_regains_tries() {
    let bench = Bench::new().await;
    bench.enqueue(NewJob::now(&Letter(1, "naïve \"x\",\"payload\":{}}".to_owned()))).await;
    let envelope = bench.find("letter:1").await.unwrap().envelope;
    let take = async || bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await.jobs.remove(0);
    bench.settle(&take().await, LeaseEnd::Retry { delay: secs(0) }).await;
    bench.settle(&take().await, LeaseEnd::Spent { error: "x,\"payload\":y".to_owned() }).await;
    let answers = bench.store.requeue(&[id("letter:1"), id("t:none")], &BOTH, secs(7)).await.unwrap();
    assert_eq!(answers, [RequeueVerdict::Requeued, RequeueVerdict::NotDead]);
    let found = bench.find("letter:1").await.unwrap();
    assert_eq!((found.state, found.at_ms, found.failed, found.lost), (JobState::Due, START_MS + 7_000, 0, 0));
    assert_eq!((found.envelope, found.dead), (envelope, None));
    let left: usize = bench.redis(&["EXISTS", "{dq:0}:dead", "{dq:0}:dead:others"]).await;
    assert_eq!(left, 0);
    let put_off: String = bench.redis(&["HGET", "{dq:0}:tries", "letter:1"]).await;
    assert_eq!(put_off, "0 0", "repair leaves it where it was put");
}

#[tokio::test]
async fn unreadable_payload_stays_as_it_is() {
    let bench = Bench::new().await;
    bury(&bench, "a", 1, "broken").await;
    bench.enqueue(due_now("t:b")).await;
    let raw = "{nonsense\",\"payload\":\\";
    bench.redis::<()>(&["HSET", "{dq:0}:jobs", "t:b", raw]).await;
    bench.store.settle(&bench.take(1).await.unreadable).await.unwrap();

    let listed = bench.store.list_jobs(QUEUE, JobState::Dead, 0, 10).await.unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed[1].error.as_ref().unwrap().contains("cannot be read"), "{listed:?}");
    assert_eq!(bench.find("t:b").await.unwrap().dead.unwrap().payload, raw);
    let page = bench.store.list_dead(QUEUE, &DeadFilter::default(), None).await.unwrap();
    assert_eq!(page.entries[1].record.payload, raw);

    bench.store.requeue(&["t:b"], &BOTH, secs(0)).await.unwrap();
    assert_eq!(bench.redis::<String>(&["HGET", "{dq:0}:jobs", "t:b"]).await, raw);
}

#[tokio::test]
async fn only_dead_jobs_are_requeued_or_discarded() {
    let bench = Bench::new().await;
    bench.store.enqueue(&[due_now("t:running"), timer("t:due", secs(5))]).await.unwrap();
    bench.take_one().await;
    let before = bench.snapshot().await;
    let ids = ["t:running", "t:due", "t:absent"];
    assert_eq!(bench.store.requeue(&ids, &BOTH, secs(0)).await.unwrap(), [RequeueVerdict::NotDead; 3]);
    assert_eq!(bench.store.discard(&ids, &BOTH).await.unwrap(), [DiscardVerdict::NotDead; 3]);
    assert_eq!(bench.snapshot().await, before);
}

#[tokio::test]
async fn discarded_job_can_be_enqueued_again() {
    let bench = Bench::new().await;
    bury(&bench, "a", 1, "broken").await;
    assert_eq!(bench.enqueue(due_now("t:a-0")).await, EnqueueVerdict::Dead);
    assert_eq!(
        bench.store.discard(&["t:a-0", "t:a-0"], &BOTH).await.unwrap(),
        [DiscardVerdict::Discarded, DiscardVerdict::NotDead]
    );
    assert_eq!(bench.snapshot().await.lines().count(), 1, "the epoch");
    assert_eq!(bench.enqueue(due_now("t:a-0")).await, EnqueueVerdict::Inserted);
}

#[tokio::test]
async fn retention_discards_the_oldest_bounded_per_call() {
    let bench = Bench::new().await;
    bury(&bench, "old", 700, "broken").await;
    bench.advance(secs(60));
    bury(&bench, "new", 3, "broken").await;
    let discard = async |limit| bench.store.discard_dead_older_than(QUEUE, secs(60), limit).await.unwrap();
    assert_eq!([discard(10).await, discard(10_000).await, discard(10_000).await, discard(1).await], [10, 500, 190, 0]);
    assert_eq!(all(&bench, &DeadFilter::default()).await.0, ["t:new-0", "t:new-1", "t:new-2"]);
    assert_eq!(bench.redis::<usize>(&["HLEN", "{dq:0}:dead"]).await, 3);
}

/// Returns the dead jobs of both queues, as listed.
async fn entries(bench: &Bench) -> Vec<DeadEntry> {
    let mut entries = Vec::new();
    for queue in BOTH {
        let page = bench.store.list_dead(queue, &DeadFilter::default(), None).await.unwrap();
        assert_eq!(page.next, None);
        entries.extend(page.entries);
    }
    entries
}

async fn records(bench: &Bench) -> BTreeMap<String, String> {
    bench.redis(&["HGETALL", "{dq:0}:dead"]).await
}

#[tokio::test]
async fn dead_jobs_are_restored_byte_for_byte() {
    let bench = Bench::new().await;
    bury(&bench, "a", 3, "no \"route\",\"payload\":{}\n\u{1}é").await;
    bench.enqueue(NewJob::now(&Letter(1, "1.0 naïve \"x\"".to_owned()))).await;
    bench.enqueue(due_now("t:b")).await;
    bench.redis::<()>(&["HSET", "{dq:0}:jobs", "t:b", "{nonsense\",\"payload\":\\"]).await;
    bench.redis::<()>(&["HSET", "{dq:0}:tries", "letter:1", "3 1"]).await;
    let letter = bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await.jobs.remove(0);
    bench.settle(&letter, LeaseEnd::Spent { error: String::new() }).await;
    bench.store.settle(&bench.take(1).await.unreadable).await.unwrap();
    let (before, dead) = (records(&bench).await, entries(&bench).await);
    assert_eq!(dead.len(), 5);

    bench.redis::<()>(&["FLUSHALL"]).await;
    crate::support::rebuild(&bench.store).await;
    bench.advance(secs(60));
    for again in [RestoreVerdict::Restored, RestoreVerdict::Dead] {
        for queue in BOTH {
            let of_queue: Vec<_> = dead.iter().filter(|entry| entry.record.queue == queue).cloned().collect();
            let answers = bench.store.restore_dead(queue, &of_queue).await.unwrap();
            assert_eq!(answers, vec![again; of_queue.len()]);
        }
        assert_eq!(records(&bench).await, before);
        assert_eq!(entries(&bench).await, dead);
    }
    let after: DeadCursor = dead[1].cursor();
    let rest = bench.store.list_dead(&dead[1].record.queue, &DeadFilter::default(), Some(&after)).await.unwrap();
    assert_eq!(rest.entries[0], dead[2]);
}

#[tokio::test]
async fn live_job_is_not_restored_as_dead() {
    let bench = Bench::new().await;
    bury(&bench, "a", 2, "broken").await;
    let dead = entries(&bench).await;
    bench.store.discard(&["t:a-0", "t:a-1"], &BOTH).await.unwrap();
    bench.enqueue(due_now("t:a-0")).await;
    bench.take_one().await;
    bench.enqueue(timer("t:a-1", secs(60))).await;
    let before = bench.snapshot().await;
    assert_eq!(bench.store.restore_dead(QUEUE, &dead).await.unwrap(), [RestoreVerdict::Lives; 2]);
    assert_eq!(bench.snapshot().await, before);
}
