//! Several shards: each is rebuilt separately, and a change of their number loses no timer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use desk::dead_letters::{
    mirror,
    walk::{self, DeadSelection},
};
use foundation::{
    shard_map::{self, SetShardsError, ShardGeneration},
    staff_actions::ActionAuthor,
};
use maintenance::recovery::{reconciler, repair, shards};
use orders::create::{self, NewOrder};
use queue::{JobId, Outcome, ShardCount, store::JobState};
use test_support::{TestApp, by, id, secs};

const ORDERS: usize = 12;

async fn set_shards(t: &TestApp, count: u16) -> Result<ShardGeneration, SetShardsError> {
    let by = ActionAuthor { actor: &by("operator:anna"), reason: Some("one core is busy") };
    shard_map::set_shards(&t.app.core.db, ShardCount::new(count).unwrap(), by).await
}

/// Starts with `count` empty shards.
async fn in_shards(count: u16) -> TestApp {
    let t = TestApp::start().await;
    set_shards(&t, count).await.unwrap();
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    let latest = shard_map::read_latest(&t.app.core.db).await.unwrap();
    assert_eq!((latest.generation, latest.shards.get()), (2, count));
    assert!(latest.settled_at.is_some(), "nothing had to be put anywhere");
    t
}

async fn place_orders(t: &TestApp, prefix: &str) {
    for n in 0..ORDERS {
        t.order(&format!("{prefix}-{n}")).await;
    }
}

/// Returns the ids of waiting jobs by shard.
async fn waiting(t: &TestApp) -> BTreeMap<u16, BTreeSet<String>> {
    let mut waiting = BTreeMap::new();
    for store in t.app.core.queue().stores() {
        let ids: &mut BTreeSet<String> = waiting.entry(store.shard()).or_default();
        for queue in jobs::queues::ALL {
            ids.extend(store.list_jobs(queue, JobState::Due, 0, 1000).await.unwrap().into_iter().map(|job| job.id));
        }
    }
    waiting
}

fn shard_of(t: &TestApp, job: &str) -> u16 {
    t.app.core.queue().shard_of(&JobId::parse(job).unwrap())
}

/// Returns all Redis data of the other shards, byte for byte.
async fn others(t: &TestApp, shard: u16) -> BTreeMap<String, Vec<u8>> {
    let mut kept = BTreeMap::new();
    for key in t.redis::<Vec<String>>(&["KEYS", "{dq:*"]).await {
        if !key.starts_with(&format!("{{dq:{shard}}}")) {
            kept.insert(key.clone(), t.redis(&["DUMP", &key]).await);
        }
    }
    kept
}

async fn flush_shard(t: &TestApp, shard: u16) {
    for key in t.redis::<Vec<String>>(&["KEYS", &format!("{{dq:{shard}}}:*")]).await {
        t.redis::<u64>(&["DEL", &key]).await;
    }
}

#[tokio::test]
async fn orders_live_their_lives_in_four_shards() {
    let t = in_shards(4).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0), ("D3", 300.0)]).await;
    place_orders(&t, "ORD").await;
    for (shard, jobs) in waiting(&t).await {
        assert!(jobs.len() > 2, "shard {shard} has {jobs:?}");
        assert!(jobs.iter().all(|job| shard_of(&t, job) == shard), "shard {shard} has {jobs:?}");
    }
    t.run_due().await;
    let asked = t.texts("SELECT order_id FROM offers WHERE state = 'offered'").await;
    assert_eq!(asked.len(), 3);
    for order in &asked {
        let driver = t.accept_offer(order).await;
        t.carry_out(order, &driver).await;
    }
    t.cancel(&format!("ORD-{}", (0..ORDERS).find(|n| !asked.contains(&format!("ORD-{n}"))).unwrap())).await.unwrap();
    t.run_for(secs(1801)).await;
    assert_eq!(t.count("SELECT count(*) FROM orders WHERE closed_at IS NULL").await, 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn flushed_shard_is_rebuilt_alone() {
    let t = in_shards(4).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    place_orders(&t, "ORD").await;
    t.run_due().await;
    let (before, lost) = (t.timers().await, waiting(&t).await.remove(&2).unwrap());
    let kept = others(&t, 2).await;
    flush_shard(&t, 2).await;
    let missing: BTreeSet<String> =
        repair::list_missing(&t.app.core).await.unwrap().into_iter().map(|job| job.id.to_string()).collect();
    assert_eq!(missing, lost);
    assert!(lost.len() > 2, "{lost:?}");

    let report = reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!((report.rebuild, report.inserted), (true, lost.len() as u64));
    assert_eq!(t.timers().await, before);
    assert_eq!(others(&t, 2).await, kept);
    assert!(!reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().rebuild);
    t.run_for(secs(1801)).await;
    t.assert_sound().await;
}

#[tokio::test]
async fn a_flush_of_all_shards_loses_no_timer() {
    let t = in_shards(4).await;
    t.drivers(&[("D1", 100.0)]).await;
    place_orders(&t, "ORD").await;
    t.run_due().await;
    let before = t.timers().await;
    t.redis::<()>(&["FLUSHALL"]).await;
    let report = reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!((report.rebuild, report.inserted), (true, before.len() as u64));
    assert_eq!(t.timers().await, before);
}

#[tokio::test]
async fn changing_shard_count_loses_no_timer() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    place_orders(&t, "ORD").await;
    t.run_due().await;
    let before = t.timers().await;

    let made = set_shards(&t, 4).await.unwrap();
    assert_eq!(
        (made.generation, made.made_by.as_str(), made.reason.as_deref()),
        (2, "operator:anna", Some("one core is busy"))
    );
    assert!(matches!(set_shards(&t, 2).await, Err(SetShardsError::UnderWay { generation: 2, .. })));
    let report = reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    let elsewhere = before.keys().filter(|job| shard_of(&t, job) != 0).count();
    assert_eq!((report.rebuild, report.inserted), (false, elsewhere as u64));
    assert_eq!((t.timers().await, repair::list_missing(&t.app.core).await.unwrap()), (before.clone(), vec![]));
    assert_eq!(waiting(&t).await[&0].len(), before.len(), "nothing was copied, and nothing taken away");
    assert!(shard_map::read_latest(&t.app.core.db).await.unwrap().settled_at.is_some());
    assert!(matches!(set_shards(&t, 4).await, Err(SetShardsError::Unchanged(4))));
    t.run_for(secs(200)).await;
    place_orders(&t, "MORE").await;
    t.run_due().await;
    t.assert_sound().await;

    let made = set_shards(&t, 2).await.unwrap();
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), []);
    let latest = shard_map::read_latest(&t.app.core.db).await.unwrap();
    assert!(latest.derived_at.is_some() && latest.settled_at.is_none(), "{latest:?}");
    assert_eq!(t.app.core.queue().stores().len(), 4, "what lies in the others is performed there");
    assert!(matches!(set_shards(&t, 1).await, Err(SetShardsError::UnderWay { generation: 3, .. })));
    t.run_for(secs(60)).await;
    t.assert_sound().await;

    let ids = async || t.timers().await.into_keys().collect::<Vec<_>>();
    let before = ids().await;
    let drained = shards::drain_left_over(&t.app.core, &made).await.unwrap();
    assert!(drained.is_settled && drained.left == 0 && drained.moved > 0, "{drained:?}");
    assert_eq!((t.app.core.queue().stores().len(), ids().await), (2, before));
    for gone in ["{dq:2}:due:*", "{dq:3}:due:*"] {
        assert_eq!(t.redis::<Vec<String>>(&["KEYS", gone]).await, Vec::<String>::new());
    }
    t.run_for(secs(1801)).await;
    assert_eq!(t.count("SELECT count(*) FROM orders WHERE closed_at IS NULL").await, 0);
    t.assert_sound().await;
}

/// A process that has not read the new number of shards places its timers by the old number.
#[tokio::test]
async fn process_with_old_shard_map_loses_no_timer() {
    let t = in_shards(4).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    let new: NewOrder = serde_json::from_value(json!({
        "service_type": "RIDE", "payment_status": "UNPAID", "pickup": { "latitude": -6.2088, "longitude": 106.8456 }
    }))
    .unwrap();
    let unheard = t.reconfigured(|_| {});
    assert_eq!(unheard.core.queue().stores().len(), 1);
    create::create_order(&unheard.orders, id("OLD"), &new, &by("producer:test")).await.unwrap();
    t.run_due().await;
    t.live_offer("OLD").await;

    let of_four = t.reconfigured(|_| {});
    of_four.core.shards.reload(&of_four.core.db).await.unwrap();
    let made = set_shards(&t, 2).await.unwrap();
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.advance(secs(6)).await;
    assert!(shards::drain_left_over(&t.app.core, &made).await.unwrap().is_settled);
    let four = ShardCount::new(4).unwrap();
    let astray = (0..).map(|n| format!("LATE-{n}")).find(|order| four.shard_of(order) > 1).unwrap();
    create::create_order(&of_four.orders, id(&astray), &new, &by("producer:test")).await.unwrap();
    assert!(!t.timers().await.contains_key(&format!("dispatch:{astray}:1")), "its shard is closed");
    t.advance(secs(4)).await;
    assert!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().inserted > 0);
    t.run_due().await;
    t.live_offer(&astray).await;
    t.assert_sound().await;
}

#[tokio::test]
async fn dead_letters_of_all_shards_form_one_list() {
    let t = in_shards(4).await;
    place_orders(&t, "ORD").await;
    for leased in t.take().await {
        t.settle(&leased, Outcome::Dead("no route to host".to_owned())).await;
    }
    t.advance(secs(4)).await;
    let list = async || walk::list_page(&t.app.core, &DeadSelection::default(), None, 1_000).await.unwrap().entries;
    let report = reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!(report.held, ORDERS as u64);
    let before = list().await;
    assert_eq!(before.len(), ORDERS);
    assert_eq!(mirror::mirror_once(&t.app.core).await.unwrap().unwrap().read, ORDERS as u64);

    let of_shard = before.iter().filter(|dead| shard_of(&t, &dead.id) == 1).count();
    flush_shard(&t, 1).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!(list().await.len(), ORDERS - of_shard);
    assert_eq!(mirror::mirror_once(&t.app.core).await.unwrap().unwrap().restored, of_shard as u64);
    assert_eq!(list().await, before);

    let made = set_shards(&t, 1).await.unwrap();
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.advance(secs(6)).await;
    assert!(shards::drain_left_over(&t.app.core, &made).await.unwrap().is_settled);
    assert_eq!((t.app.core.queue().stores().len(), list().await), (1, before));
}
