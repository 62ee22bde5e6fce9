//! Inserting and repairing.

use serde_json::json;

use crate::support::{Bench, Letter, OTHER, QUEUE, START_MS, address, due_now, id, millis, secs, timer};
use queue::{
    JobAddress, NewJob, SlotNeed,
    store::{EnqueueVerdict, JobState, LeaseEnd, RepairVerdict, SlotLimits, TakeMode},
};

#[tokio::test]
async fn enqueued_twice_is_one_job() {
    let bench = Bench::new().await;
    assert_eq!(bench.enqueue(timer("t:1", secs(2))).await, EnqueueVerdict::Inserted);
    assert_eq!(bench.enqueue(timer("t:1", secs(2))).await, EnqueueVerdict::Kept);
    let both = [timer("t:2", secs(1)), timer("t:2", secs(1))];
    assert_eq!(bench.store.enqueue(&both).await.unwrap(), [EnqueueVerdict::Inserted, EnqueueVerdict::Kept]);
    assert_eq!(bench.store.queue_stats(&["timers"]).await.unwrap()[0].scheduled, 2);
}

#[tokio::test]
async fn the_earlier_due_is_kept() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:1", secs(5))).await;
    assert_eq!(bench.enqueue(timer("t:1", secs(9))).await, EnqueueVerdict::Kept);
    assert_eq!(bench.enqueue(timer("t:1", secs(3))).await, EnqueueVerdict::Moved);
    assert_eq!(bench.find("t:1").await.unwrap().at_ms, START_MS + 3_000);
}

#[tokio::test]
async fn unknown_fields_keep_payload_and_slots_readable() {
    let bench = Bench::new().await;
    bench.store.set_slot_limits(&SlotLimits::for_shard(1).with_group("g", 1).unwrap()).await.unwrap();
    let need = SlotNeed::new("g", "own", secs(1)).unwrap();
    bench.enqueue(NewJob::now(&Letter(1, "first".to_owned())).with_slots(need.clone())).await;
    let envelope = r#"{"v":1,"slots":"g own 1000","hint":{"row":"\"slots\":\"x y 1\""},"payload":"first"}"#;
    bench.redis::<()>(&["HSET", "{dq:0}:jobs", "letter:1", envelope]).await;
    let taken = bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await.jobs.remove(0).delivery;
    assert_eq!(taken.payload, Some(json!("first")));
    assert!(taken.slots.is_some_and(|grant| grant.fits(&need)));
}

#[tokio::test]
async fn first_payload_is_kept() {
    let bench = Bench::new().await;
    let letter = |text: &str, delay| NewJob::after(&Letter(1, text.to_owned()), delay);
    bench.enqueue(letter("first", secs(5))).await;
    assert_eq!(bench.enqueue(letter("second", secs(1))).await, EnqueueVerdict::Moved);
    let envelope = bench.find("letter:1").await.unwrap().envelope.unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&envelope).unwrap(), json!({ "v": 1, "payload": "first" }));
}

#[tokio::test]
async fn timer_costs_one_sorted_set_member() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:1", secs(5))).await;
    let mut keys: Vec<String> = bench.redis(&["KEYS", "*"]).await;
    keys.sort();
    assert_eq!(keys, ["{dq:0}:due:timers", "{dq:0}:epoch"]);
}

#[tokio::test]
async fn leased_job_enqueued_again_runs_again() {
    let bench = Bench::new().await;
    bench.enqueue(NewJob::now(&Letter(1, "hello".to_owned()))).await;
    let leased = bench.take_of(&[(OTHER, 1)], queue::store::TakeMode::Normal).await.jobs.remove(0);
    let again = |delay| NewJob::after(&Letter(1, "other".to_owned()), delay);
    assert_eq!(bench.enqueue(again(secs(9))).await, EnqueueVerdict::Again);
    assert_eq!(bench.enqueue(again(secs(4))).await, EnqueueVerdict::Again);
    assert_eq!(bench.enqueue(again(secs(7))).await, EnqueueVerdict::Again);
    bench.settle(&leased, LeaseEnd::Done).await;
    let found = bench.find("letter:1").await.unwrap();
    assert_eq!((found.state, found.at_ms), (JobState::Due, START_MS + 4_000));
    assert!(found.envelope.unwrap().contains("hello"));
}

#[tokio::test]
async fn snooze_and_retry_keep_the_earlier_due() {
    let bench = Bench::new().await;
    for (end, id) in [(LeaseEnd::Snooze { delay: secs(30) }, "t:1"), (LeaseEnd::Retry { delay: secs(30) }, "t:2")] {
        bench.enqueue(due_now(id)).await;
        let leased = bench.take_one().await;
        bench.enqueue(timer(id, secs(4))).await;
        bench.settle(&leased, end).await;
        assert_eq!(bench.find(id).await.unwrap().at_ms, START_MS + 4_000);
    }
}

#[tokio::test]
async fn a_dead_job_is_left_dead() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    bench.settle(&bench.take_one().await, LeaseEnd::Dead { error: "broken".to_owned() }).await;
    let before = bench.snapshot().await;
    assert_eq!(bench.enqueue(due_now("t:1")).await, EnqueueVerdict::Dead);
    assert_eq!(bench.store.repair(&[due_now("t:1")]).await.unwrap(), [RepairVerdict::Dead]);
    assert_eq!(bench.snapshot().await, before);
}

#[tokio::test]
async fn a_delay_is_rounded_up() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:1", std::time::Duration::from_micros(1_500))).await;
    assert_eq!(bench.find("t:1").await.unwrap().at_ms, START_MS + 2);
}

#[tokio::test]
async fn many_jobs_go_in_batches_and_answer_in_order() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:700", secs(1))).await;
    let jobs: Vec<NewJob> = (0..1_234).map(|n| timer(&format!("t:{n}"), secs(1))).collect();
    let answers = bench.store.enqueue(&jobs).await.unwrap();
    assert_eq!(answers.len(), jobs.len());
    assert_eq!(answers.iter().position(|answer| *answer == EnqueueVerdict::Kept), Some(700));
}

#[tokio::test]
async fn repair_inserts_absent_and_moves_late_jobs() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:near", secs(4))).await;
    bench.enqueue(timer("t:far", secs(5))).await;
    bench.enqueue(due_now("t:leased")).await;
    bench.take_one().await;
    let wanted = ["t:absent", "t:near", "t:far", "t:leased"].map(|id| timer(id, secs(1)));
    let answers = bench.store.repair(&wanted).await.unwrap();
    assert_eq!(answers, [RepairVerdict::Inserted, RepairVerdict::Fine, RepairVerdict::Moved, RepairVerdict::Fine]);
    assert_eq!(bench.find("t:near").await.unwrap().at_ms, START_MS + 4_000);
    assert_eq!(bench.find("t:far").await.unwrap().at_ms, START_MS + 1_000);
    assert_eq!(bench.find("t:leased").await.unwrap().again_ms, None);
}

// Fault F9
/// The enqueue that should have moved the job earlier was lost.
#[tokio::test]
async fn repair_moves_a_job_wanted_now() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:1", millis(5_001))).await;
    assert_eq!(bench.store.repair(&[due_now("t:1")]).await.unwrap(), [RepairVerdict::Moved]);
    assert_eq!(bench.take(1).await.ids(), ["t:1"]);
}

// Fault F9
#[tokio::test]
async fn repair_leaves_postponed_job_a_minute() {
    let bench = Bench::new().await;
    for (n, end) in [LeaseEnd::Snooze { delay: secs(60) }, LeaseEnd::Retry { delay: secs(60) }].into_iter().enumerate()
    {
        bench.enqueue(due_now(&format!("t:{n}"))).await;
        bench.settle(&bench.take_one().await, end).await;
    }
    bench.enqueue(due_now("t:2")).await;
    bench.store.reschedule(&id("t:2"), &[QUEUE], secs(60)).await.unwrap();
    bench.enqueue(due_now("t:3")).await;
    bench.settle(&bench.take_one().await, LeaseEnd::Dead { error: "it is broken".to_owned() }).await;
    bench.store.requeue(&["t:3".to_owned()], &[QUEUE], secs(60)).await.unwrap();
    let wanted: Vec<NewJob> = (0..4).map(|n| due_now(&format!("t:{n}"))).collect();
    assert_eq!(bench.store.repair(&wanted).await.unwrap(), [RepairVerdict::Fine; 4]);
    bench.step_back(millis(1));
    assert_eq!(bench.store.repair(&wanted).await.unwrap(), [RepairVerdict::Moved; 4]);
}

#[tokio::test]
async fn repair_of_complete_state_changes_nothing() {
    let bench = Bench::new().await;
    let jobs = [due_now("t:1"), timer("t:2", millis(1))];
    bench.store.enqueue(&jobs).await.unwrap();
    let before = bench.snapshot().await;
    bench.advance(secs(30));
    assert_eq!(bench.store.repair(&jobs).await.unwrap(), [RepairVerdict::Fine, RepairVerdict::Fine]);
    assert_eq!(bench.snapshot().await, before);
}

#[tokio::test]
async fn enqueue_removes_the_superseded_waiting_job() {
    let bench = Bench::new().await;
    bench.store.enqueue(&[timer("t:1", secs(5)), timer("t:keep", secs(5))]).await.unwrap();
    bench.enqueue(NewJob::after(&Letter(1, "hello".to_owned()), secs(5))).await;
    let superseded = [address("t:1"), address("t:absent"), JobAddress { queue: OTHER, id: id("letter:1") }];
    let verdicts = bench.store.enqueue_superseding(&[timer("t:2", secs(9))], &superseded).await.unwrap();
    assert_eq!(verdicts, [EnqueueVerdict::Inserted]);
    let due: Vec<String> = bench.redis(&["ZRANGE", "{dq:0}:due:timers", "0", "-1"]).await;
    assert_eq!(due, ["t:keep", "t:2"]);
    let left: usize = bench.redis(&["EXISTS", "{dq:0}:due:others", "{dq:0}:jobs"]).await;
    assert_eq!(left, 0, "its envelope goes with it");

    // A call without jobs to insert still cancels. A call without any jobs does nothing.
    assert_eq!(bench.store.enqueue_superseding(&[], &[address("t:2")]).await.unwrap(), []);
    assert!(bench.find("t:2").await.is_none());
    assert_eq!(bench.store.enqueue_superseding(&[], &[]).await.unwrap(), []);
}

#[tokio::test]
async fn superseded_job_stays_unless_it_waits() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:dead")).await;
    bench.settle(&bench.take_one().await, LeaseEnd::Dead { error: "broken".to_owned() }).await;
    bench.enqueue(due_now("t:running")).await;
    bench.take_one().await;
    let before = bench.snapshot().await;
    bench.store.enqueue_superseding(&[], &[address("t:dead"), address("t:running")]).await.unwrap();
    assert_eq!(bench.snapshot().await, before);
}

#[tokio::test]
async fn superseded_and_wanted_job_is_inserted() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:1", secs(5))).await;
    let verdicts = bench.store.enqueue_superseding(&[timer("t:1", secs(9))], &[address("t:1")]).await.unwrap();
    assert_eq!(verdicts, [EnqueueVerdict::Inserted]);
    assert_eq!(bench.find("t:1").await.unwrap().at_ms, START_MS + 9_000);
}

#[tokio::test]
async fn many_superseded_jobs_go_in_batches() {
    let bench = Bench::new().await;
    let names: Vec<String> = (0..1_234).map(|n| format!("t:{n}")).collect();
    let jobs: Vec<NewJob> = names.iter().map(|name| timer(name, secs(1))).collect();
    bench.store.enqueue(&jobs).await.unwrap();
    let superseded: Vec<JobAddress> = names.iter().map(|name| address(name)).collect();
    let verdicts = bench.store.enqueue_superseding(&[timer("t:next", secs(1))], &superseded).await.unwrap();
    assert_eq!(verdicts, [EnqueueVerdict::Inserted]);
    assert_eq!(bench.store.queue_stats(&[QUEUE]).await.unwrap()[0].scheduled, 1);
}
