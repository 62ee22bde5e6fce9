//! A change cancels exactly the timers that the order no longer needs, in whatever order the calls of its changes
//! arrive.

use maintenance::recovery::repair;
use model::{
    decide::{Decision, actions, timers},
    order::{OrderStatus, Snapshot},
};
use orders::seen::Basis;
use queue::{JobAddress, NewJob, Outcome};
use test_support::{TestApp, by, id, secs};

async fn waiting(t: &TestApp) -> Vec<String> {
    t.timers().await.into_keys().collect()
}

#[tokio::test]
async fn a_change_takes_along_the_timers_it_leaves_behind() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(waiting(&t).await, ["lifetime:ORD-1", "timeout:ORD-1:1"]);
    let driver = t.accept_offer("ORD-1").await;
    assert_eq!(waiting(&t).await, ["lifetime:ORD-1"]);
    t.act("ORD-1", |s| actions::cancel_by_driver(s, &driver, None)).await.unwrap();
    t.run_due().await;
    assert_eq!(waiting(&t).await, ["lifetime:ORD-1", "timeout:ORD-1:2"]);
    t.cancel("ORD-1").await.unwrap();
    assert_eq!(waiting(&t).await, Vec::<String>::new());
    assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), []);
    t.assert_sound().await;
}

/// The lifetime ends while the next search is half an hour away.
#[tokio::test]
async fn a_job_takes_along_the_timers_its_change_leaves_behind() {
    let t = TestApp::with(|config| config.dispatch.retry = vec![secs(1_799)]).await;
    t.order("ORD-1").await;
    t.run_for(secs(1_799)).await;
    assert_eq!(waiting(&t).await, ["dispatch:ORD-1:1", "lifetime:ORD-1"]);
    t.run_for(secs(1)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystem);
    assert_eq!(waiting(&t).await, Vec::<String>::new());
    t.assert_sound().await;
}

/// Timers that follow a change.
struct ChangedTimers {
    jobs: Vec<NewJob>,
    superseded: Vec<JobAddress>,
}

/// Changes ORD-1 and does not update its timers.
async fn change_alone(t: &TestApp, decide: impl FnMut(&Snapshot) -> Decision) -> ChangedTimers {
    let changed = t.app.orders.change(&id("ORD-1"), Basis::Fresh, decide).await.unwrap();
    assert!(changed.is_written(), "it was so already: {changed:?}");
    match changed.into_outcome(&t.app.orders).await {
        Outcome::Done { then, superseded } => ChangedTimers { jobs: then, superseded },
        outcome => panic!("{outcome:?}"),
    }
}

/// Sends the enqueue call that follows a change.
async fn follow_up(t: &TestApp, changed: &ChangedTimers) {
    t.app.core.store.enqueue_superseding(&changed.jobs, &changed.superseded).await.unwrap();
}

/// Returns every order in which this many calls may arrive.
fn arrivals(calls: usize) -> Vec<Vec<usize>> {
    let Some(last) = calls.checked_sub(1) else { return vec![Vec::new()] };
    let mut all = Vec::new();
    for others in arrivals(last) {
        for place in 0..calls {
            let mut arrival = others.clone();
            arrival.insert(place, last);
            all.push(arrival);
        }
    }
    all
}

/// The second attempt is scheduled, cancelled, and scheduled again. Its timer must survive every late call.
#[tokio::test]
async fn late_cancels_never_remove_a_wanted_timer() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0), ("D3", 300.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let first = timers::derive_jobs(&t.snapshot("ORD-1").await);
    let offer = t.live_offer("ORD-1").await;
    let changes = [
        change_alone(&t, |s| actions::accept_offer(s, &offer.driver_id, offer.id)).await,
        change_alone(&t, |s| actions::cancel_by_driver(s, &offer.driver_id, None)).await,
        change_alone(&t, |s| actions::assign_driver(s, &by("operator:test"), &"D2".into())).await,
        change_alone(&t, |s| actions::release_driver(s, &by("operator:test"), None)).await,
    ];
    let superseded: Vec<Vec<&str>> =
        changes.iter().map(|changed| changed.superseded.iter().map(|job| job.id.as_str()).collect()).collect();
    assert_eq!(superseded, [vec!["timeout:ORD-1:1"], Vec::new(), Vec::new(), Vec::new()]);

    for arrival in arrivals(changes.len()) {
        for queue in jobs::queues::ALL {
            t.redis::<i64>(&["DEL", &t.app.core.store.keys().due_set(queue)]).await;
        }
        t.app.core.store.enqueue(&first).await.unwrap();
        for n in &arrival {
            follow_up(&t, &changes[*n]).await;
        }
        assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), [], "{arrival:?}");
        let waiting = waiting(&t).await;
        assert!(waiting.iter().all(|id| !id.starts_with("timeout:")), "{arrival:?}: {waiting:?}");
    }

    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D3");
    for changed in &changes {
        follow_up(&t, changed).await;
    }
    assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), [], "the timeout of the attempt that runs");
    let before = t.dump().await;
    t.run_due().await;
    assert_eq!(t.dump().await, before);
    t.assert_sound().await;
}
