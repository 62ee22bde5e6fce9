//! An engine on another server continues with the data that an engine left in Redis. `tests/upgrade/redis` is the data
//! of the previous release, created as tests/upgrade/README.md describes.

use std::{collections::BTreeMap, env, fs, path::Path, time::Duration};

use crate::{
    slots::{acquire, bench_with, need, park},
    support::{Bench, LEASE, Letter, OTHER, QUEUE, due_now, rebuild, secs, timer},
};
use queue::{
    Job, Limit, NewJob,
    store::{
        AcquireVerdict, BreakerPolicy, DeadFilter, EndedSlots, EnqueueVerdict, Heartbeat, LatenessCounts, LeaseEnd,
        RequeueVerdict, TakeMode, WorkerInfo,
    },
};

const PAUSED: &str = "notes";
const SERVER: &str = "S1";
const PARTNER: &str = "partner:acme";
/// Lost deliveries after which a job runs alone.
const LOST: u32 = 2;
/// Environment variable with the file to which the test writes this version's data, for the next version.
const DUMP_TO: &str = "DISPATCHQ_DUMP_TO";

fn places() -> [Limit; 1] {
    [Limit::slots(PARTNER, 1)]
}

/// Creates the data: a worker with two leased jobs dies; other jobs wait, have failed, are dead or suspects, or wait
/// for slots. The breaker of a partner is open.
async fn leave_behind(bench: &Bench) {
    bench.enqueue(due_now("tick:5")).await;
    for _ in 0..LOST {
        assert_eq!(bench.take(1).await.ids(), ["tick:5"]);
        bench.advance(LEASE);
    }
    for job in ["tick:1", "tick:2", "tick:3", "tick:4"] {
        bench.enqueue(due_now(job)).await;
    }
    bench.enqueue(NewJob::now(&Letter(1, "naïve \"toll\"".to_owned()))).await;
    bench.enqueue(timer("tick:9", secs(900))).await;
    let took = bench.take_of(&[(QUEUE, 10), (OTHER, 10)], TakeMode::Normal).await;
    assert_eq!(took.jobs.len(), 5);
    let leased = |text: &str| took.jobs.iter().find(|leased| leased.delivery.id.as_str() == text).unwrap();
    bench.settle_then(leased("tick:1"), LeaseEnd::Done, vec![timer("tick:20", secs(60))]).await;
    bench.settle(leased("tick:2"), LeaseEnd::Retry { delay: secs(30) }).await;
    bench.settle(leased("tick:3"), LeaseEnd::Dead { error: "its own".to_owned() }).await;
    assert_eq!(bench.enqueue(timer("tick:4", secs(5))).await, EnqueueVerdict::Again);
    assert!(bench.store.pause_queue(PAUSED).await.unwrap());

    // The holder of these slots dies, too.
    std::mem::forget(acquire(bench, "tick:30", &need(SERVER, "A")).await);
    park(bench, "tick:31", &need(SERVER, "B")).await;
    park(bench, "tick:32", &need(SERVER, "A")).await;
    assert!(matches!(bench.store.acquire(&places()).await.unwrap(), AcquireVerdict::Permit(_)));
    assert!(matches!(
        bench.store.acquire(&[Limit::rate("acme", 10, secs(1))]).await.unwrap(),
        AcquireVerdict::Permit(_)
    ));
    let policy = BreakerPolicy { failures: 3, open: secs(60), max_open: secs(600) };
    assert!(bench.store.breaker_tripped(PARTNER, &policy, "401").await.unwrap().is_open());
    let info = WorkerInfo {
        host: "host".to_owned(),
        pid: 7,
        version: "0.1.0".to_owned(),
        queues: vec![QUEUE.to_owned(), OTHER.to_owned()],
        in_hand: 2,
        drain_ms: None,
        runs: BTreeMap::new(),
        resident_bytes: None,
        cpu_percent: None,
        life: None,
        started_ms: 0,
    };
    let mut lateness = LatenessCounts::default();
    lateness.record_lateness(7);
    let beat = Heartbeat {
        boot: "before",
        replica: "w1",
        up: secs(9),
        info: Some(&info),
        lateness: &lateness,
        now_ms: bench.now_ms(),
    };
    bench.store.send_heartbeat(&beat).await.unwrap();
}

/// Returns each key as the words of the command that creates it, one per line.
async fn dump_of(bench: &Bench) -> String {
    let mut keys: Vec<String> = bench.redis(&["KEYS", "*"]).await;
    keys.sort();
    let mut lines = String::new();
    for key in keys {
        let kind: String = bench.redis(&["TYPE", &key]).await;
        let mut words = match kind.as_str() {
            "string" => vec!["SET".to_owned(), key.clone()],
            "set" => vec!["SADD".to_owned(), key.clone()],
            "hash" => vec!["HSET".to_owned(), key.clone()],
            "zset" => vec!["ZADD".to_owned(), key.clone()],
            other => panic!("{key} is a {other}"),
        };
        match kind.as_str() {
            "string" => words.push(bench.redis(&["GET", &key]).await),
            "set" => {
                let mut members: Vec<String> = bench.redis(&["SMEMBERS", &key]).await;
                members.sort();
                words.extend(members);
            }
            "hash" => {
                let fields: BTreeMap<String, String> = bench.redis(&["HGETALL", &key]).await;
                words.extend(fields.into_iter().flat_map(|(field, value)| [field, value]));
            }
            _ => {
                let members: Vec<(String, String)> = bench.redis(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]).await;
                words.extend(members.into_iter().flat_map(|(member, score)| [score, member]));
            }
        }
        lines += &format!("{}\n", serde_json::to_string(&words).unwrap());
    }
    lines
}

/// Runs due jobs until none is due, and frees the slots that came with them. Returns each job with its number of lost
/// leases.
async fn perform_due(bench: &Bench, mode: TakeMode) -> BTreeMap<String, u32> {
    let mut performed = BTreeMap::new();
    loop {
        let took = bench.take_of(&[(QUEUE, 10), (OTHER, 10)], mode).await;
        assert!(took.unreadable.is_empty(), "{:?}", took.unreadable);
        if took.jobs.is_empty() && !took.more_expired {
            return performed;
        }
        for leased in &took.jobs {
            let delivery = leased.delivery.clone();
            if delivery.queue == OTHER {
                assert_eq!(Letter::decode(&delivery.id, delivery.payload).unwrap().1, "naïve \"toll\"");
            }
            if let Some(grant) = delivery.slots {
                bench.store.release_slots(&[EndedSlots { job: delivery.id.clone(), grant }]).await.unwrap();
            }
            bench.settle(leased, LeaseEnd::Done).await;
            performed.insert(delivery.id.to_string(), delivery.lost);
        }
    }
}

async fn assert_taken_up(dump: &str) {
    let bench = Bench::new().await;
    bench.advance(LOST * LEASE);
    bench.redis::<()>(&["FLUSHALL"]).await;
    assert!(dump.lines().count() > 12, "{dump}");
    for line in dump.lines() {
        let words: Vec<String> = serde_json::from_str(line).unwrap();
        bench.redis::<redis::Value>(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    // The new engine reads all recorded state.
    let store = &bench.store;
    assert!(store.epoch().await.unwrap().is_some());
    let workers = store.list_workers().await.unwrap();
    let known: Vec<_> = workers.iter().map(|w| (w.replica.as_str(), w.info.pid, w.info.in_hand)).collect();
    assert_eq!(known, [("w1", 7, 2)]);
    assert!(store.is_queue_paused(PAUSED).await.unwrap());
    let breaker = store.breaker_state(PARTNER).await.unwrap();
    assert_eq!((breaker.is_open(), breaker.why.as_str()), (true, "401"));
    assert!(matches!(store.acquire(&places()).await.unwrap(), AcquireVerdict::Busy { .. }), "the place is taken");
    let slots = store.slot_stats(&[SERVER]).await.unwrap();
    assert_eq!((slots.in_use, slots.parked, slots.groups[0].limit), (1, 2, 1), "{slots:?}");
    assert_eq!(bench.find("tick:2").await.unwrap().failed, 1);
    let dead = store.list_dead(QUEUE, &DeadFilter::default(), None).await.unwrap().entries;
    let dead: Vec<_> = dead.iter().map(|entry| (entry.id.as_str(), entry.record.error.as_str())).collect();
    assert_eq!(dead, [("tick:3", "its own")]);

    // The data was written on another server. As after any restart, slots are handed over only after a rebuild.
    rebuild(store).await;
    // Leases, slots and permits of the dead worker expire. One job was enqueued again during its lease.
    assert_eq!(perform_due(&bench, TakeMode::Normal).await, BTreeMap::new());
    bench.advance(secs(9));
    let jobs =
        |jobs: &[(&str, u32)]| jobs.iter().map(|(job, lost)| ((*job).to_owned(), *lost)).collect::<BTreeMap<_, _>>();
    let due = jobs(&[("letter:1", 1), ("tick:31", 0), ("tick:32", 0), ("tick:4", 1)]);
    assert_eq!(perform_due(&bench, TakeMode::Normal).await, due);
    assert_eq!(perform_due(&bench, TakeMode::Alone).await, jobs(&[("tick:5", LOST)]));
    assert!(matches!(store.acquire(&places()).await.unwrap(), AcquireVerdict::Permit(_)), "the place is free");
    bench.advance(secs(900));
    assert_eq!(store.requeue(&["tick:3"], &[QUEUE], Duration::ZERO).await.unwrap(), [RequeueVerdict::Requeued]);
    let rest = jobs(&[("tick:2", 0), ("tick:20", 0), ("tick:3", 0), ("tick:9", 0)]);
    assert_eq!(perform_due(&bench, TakeMode::Normal).await, rest);
    for stats in store.queue_stats(&[QUEUE, OTHER]).await.unwrap() {
        assert_eq!((stats.due, stats.scheduled, stats.leased, stats.dead), (0, 0, 0, 0), "{stats:?}");
    }
    assert!(store.resume_queue(PAUSED).await.unwrap());
    assert!(store.breaker_state(PARTNER).await.unwrap().is_half_open());
}

#[tokio::test]
async fn engine_continues_from_previous_dump() {
    let bench = bench_with(1, &[(SERVER, 1)]).await;
    leave_behind(&bench).await;
    let dump = dump_of(&bench).await;
    if let Some(file) = env::var_os(DUMP_TO) {
        fs::write(file, &dump).unwrap();
    }
    assert_taken_up(&dump).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/upgrade");
    assert!(folder.is_dir(), "{} has moved", folder.display());
    assert_taken_up(&fs::read_to_string(folder.join("redis")).unwrap()).await;
}
