//! Workers continue during a rebuild: jobs due up to the horizon run, all others wait.

use jobs::{DispatchOrder, ExpireAttempt, ExpireOrder};

use maintenance::recovery::{rebuild::Rebuild, reconciler, repair};
use queue::{NewJob, store::Takeable};
use test_support::{TestApp, id, ids, secs};

/// Creates an offered order whose timers are due in minutes, and an order to dispatch now. Redis has lost both.
async fn flushed() -> (TestApp, std::collections::BTreeMap<String, u64>) {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("OFFERED").await;
    t.run_due().await;
    t.order("NEW").await;
    let before = t.timers().await;
    t.redis::<()>(&["FLUSHALL"]).await;
    (t, before)
}

async fn is_in(t: &TestApp, job: &str) -> bool {
    t.timers().await.contains_key(job)
}

async fn takeable(t: &TestApp) -> Takeable {
    t.app.core.store.takeable().await.unwrap()
}

#[tokio::test]
async fn timers_due_soon_run_during_the_rebuild() {
    let (t, before) = flushed().await;
    let mut rebuild = Rebuild::begin(&t.app.maintenance).await.unwrap();
    assert_eq!(takeable(&t).await, Takeable::Nothing, "nothing is in yet");
    assert!(rebuild.put_back_due_soon().await.unwrap());
    assert_eq!(takeable(&t).await, Takeable::UpTo(t.now_ms() + 29_999));
    assert!(is_in(&t, "dispatch:NEW:1").await);
    for later in ["lifetime:NEW", "timeout:OFFERED:1", "lifetime:OFFERED"] {
        assert!(!is_in(&t, later).await, "{later}");
    }
    let ran = t.run_due().await;
    assert!(ids(&ran).contains(&"dispatch:NEW:1"), "{ran:?}");
    assert_eq!(t.offers("NEW").await.len(), 1);
    assert_eq!(t.app.core.store.epoch().await.unwrap(), None);
    assert!(!is_in(&t, "timeout:OFFERED:1").await);

    assert!(rebuild.put_back_later().await.unwrap() && rebuild.finish().await.unwrap());
    assert_eq!(takeable(&t).await, Takeable::All);
    let after = t.timers().await;
    for later in ["lifetime:NEW", "timeout:OFFERED:1", "lifetime:OFFERED"] {
        assert_eq!(after.get(later), before.get(later), "{later}");
    }
    assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), []);
    // The attempt has enqueued the lifetime job of NEW.
    assert!(rebuild.report().looked_at >= 2 && rebuild.report().inserted >= 3, "{:?}", rebuild.report());
    t.run_for(secs(1801)).await;
    t.assert_sound().await;
}

#[tokio::test]
async fn flush_during_rebuild_ends_it() {
    let (t, before) = flushed().await;
    let mut rebuild = Rebuild::begin(&t.app.maintenance).await.unwrap();
    assert!(rebuild.put_back_due_soon().await.unwrap());
    t.redis::<()>(&["FLUSHALL"]).await;
    assert_eq!(takeable(&t).await, Takeable::Nothing);
    assert!(!rebuild.put_back_later().await.unwrap());
    assert!(!rebuild.finish().await.unwrap());
    assert_eq!(t.timers().await.len(), 0, "a rebuild that no longer counts writes nothing");
    assert_eq!(takeable(&t).await, Takeable::Nothing);

    assert!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().rebuild);
    assert_eq!(takeable(&t).await, Takeable::All);
    let after = t.timers().await;
    assert!(before.iter().all(|(job, due)| after.get(job) == Some(due)), "{before:?} {after:?}");
    t.run_for(secs(1801)).await;
    t.assert_sound().await;
}

#[tokio::test]
async fn rebuild_of_a_dead_process_is_finished() {
    let (t, _) = flushed().await;
    let mut dead = Rebuild::begin(&t.app.maintenance).await.unwrap();
    assert!(dead.put_back_due_soon().await.unwrap());
    let ran = t.run_due().await;
    assert!(ids(&ran).contains(&"dispatch:NEW:1"), "{ran:?}");
    // The horizon does not move, so jobs due after it wait.
    t.advance(secs(40)).await;
    t.order("LATE").await;
    assert!(is_in(&t, "dispatch:LATE:1").await);
    assert!(t.take().await.iter().all(|leased| leased.delivery.id.as_str() != "dispatch:LATE:1"));

    assert!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().rebuild);
    // If that process is still alive, it writes nothing more.
    assert!(!dead.put_back_later().await.unwrap() && !dead.finish().await.unwrap());
    assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), []);
    let ran = t.run_due().await;
    assert!(ids(&ran).contains(&"dispatch:LATE:1"), "{ran:?}");
    t.run_for(secs(1801)).await;
    t.assert_sound().await;
}

/// A worker may end the order after its row is read and before its timers are enqueued. The timers are enqueued anyway.
#[tokio::test]
async fn timers_of_an_order_that_has_ended_meanwhile_do_nothing() {
    let (t, _) = flushed().await;
    let mut rebuild = Rebuild::begin(&t.app.maintenance).await.unwrap();
    assert!(rebuild.put_back_due_soon().await.unwrap());
    t.run_due().await;
    t.cancel("NEW").await.unwrap();
    t.run_due().await;
    let rows = t.dump().await;
    let order = || id("NEW");
    let read_before = [
        NewJob::now(&DispatchOrder { order: order(), attempt: 1 }),
        NewJob::now(&ExpireAttempt { order: order(), attempt: 1 }),
        NewJob::now(&ExpireOrder { order: order() }),
    ];
    t.app.core.store.enqueue(&read_before).await.unwrap();
    let ran = t.run_due().await;
    for job in &read_before {
        assert!(ids(&ran).contains(&job.id.as_str()), "{ran:?}");
    }
    assert_eq!(t.dump().await, rows);
    assert!(rebuild.put_back_later().await.unwrap() && rebuild.finish().await.unwrap());
    t.run_for(secs(1801)).await;
    t.assert_sound().await;
}
