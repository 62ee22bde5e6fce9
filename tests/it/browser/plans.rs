//! A plan in the browser whose executing processes are killed.

use jobs::queues;

use super::chromium::Chromium;
use crate::support::{Fleet, dead_letters::bury_due, eventually};
use accounts::{api_keys::AccountRole, key_admin};
use maintenance::recovery::reconciler;

const DEAD: i64 = 1000;
/// Items completed before the kill: one second at the plan's pace. The rest takes nine more seconds.
const BEFORE_THE_KILL: i64 = 100;
const CHANGED: &str = "SELECT changed::bigint FROM plans";
const FATES: &str =
    "SELECT concat_ws(' ', subject_id, state, done_at) FROM plan_items WHERE state <> 'PENDING' ORDER BY subject_id";

/// Makes the first job of a thousand orders dead.
async fn bury_first_jobs(fleet: &Fleet) {
    // A psql session has no statement timeout.
    let each = "dispatchq_create_order('ORD-' || n, 'RIDE', -6.2, 106.8)";
    fleet.postgres.run_statement(&format!("SELECT {each} FROM generate_series(1, {DEAD}) n")).await.unwrap();
    reconciler::reconcile_in_full(&fleet.app.maintenance).await.unwrap().unwrap();
    bury_due(&fleet.app, "no route to host").await;
    assert_eq!(dispatch_jobs(fleet).await, (0, DEAD));
}

/// Returns the numbers of live and dead jobs of the dispatch queue.
async fn dispatch_jobs(fleet: &Fleet) -> (i64, i64) {
    let stats = fleet.app.core.store.queue_stats(&[queues::DISPATCH]).await.unwrap();
    let count = |n: u64| i64::try_from(n).unwrap();
    (count(stats[0].due + stats[0].scheduled + stats[0].leased), count(stats[0].dead))
}

async fn fates(fleet: &Fleet) -> Vec<String> {
    sqlx::query_scalar(FATES).fetch_all(&fleet.app.core.db).await.unwrap()
}

#[tokio::test]
async fn large_plan_survives_the_kill_of_its_processes() {
    let fleet = Fleet::with("1h", "[plans]\nitems_per_second = 100\n").await;
    bury_first_jobs(&fleet).await;
    let (_, key) =
        key_admin::create_permanent_key(&fleet.app.core.db, "ops", AccountRole::Operator, None).await.unwrap();
    let (mut serve, origin) = fleet.api().await;
    // This worker serves only plans, so requeued jobs stay in the queue and are counted there.
    let mut worker = fleet.spawn("w-1", &["work", "--queues", queues::PERIODIC]);
    let mut browser = Chromium::start().await;
    browser.sign_in(&origin, "/console", &key).await;
    browser.open(&format!("{origin}/console/dead?queue={}", queues::DISPATCH)).await;
    browser.click("summary", "Plan to requeue all matching jobs, including those on other pages").await;
    browser.fill("details[open] input[name=reason]", "routing is back").await;
    browser.click("details[open] button", "Plan to requeue all matching jobs, including those on other pages").await;
    browser.until_text("The plan was stored.").await;
    browser.until_text("1000 in total: 0 changed, 0 unchanged, 0 refused, 1000 left").await;
    assert_eq!(fleet.count("SELECT count(*) FROM dead_letters WHERE resolved_at IS NOT NULL").await, 0);
    browser.click("summary", "Run plan").await;
    browser.click("details[open] button", "Run plan").await;
    browser.until_text("The plan was started.").await;

    eventually("some are done", async || fleet.count(CHANGED).await >= BEFORE_THE_KILL).await;
    worker.kill();
    serve.kill();
    let recorded = fates(&fleet).await;
    let left = fleet.count("SELECT count(*) FROM plan_items WHERE state = 'PENDING'").await;
    assert!(left > 0, "the plan was done before it could be killed");

    let address = origin.trim_start_matches("http://");
    let (_serve, again) = fleet.api_named("api-2", &[("DISPATCHQ_HTTP__BIND", address)]).await;
    assert_eq!(again, origin);
    let _worker = fleet.spawn("w-2", &["work", "--queues", queues::PERIODIC]);
    fleet.reach(DEAD, CHANGED).await;
    browser.until_text("1000 in total: 1000 changed, 0 unchanged, 0 refused, 0 left").await;
    browser.until("the plan is done", "document.querySelector('tr .chip').textContent.endsWith('Done')").await;

    // Items recorded before the kill were not changed again, and each job was requeued once.
    let after = fates(&fleet).await;
    assert_eq!(after.len(), usize::try_from(DEAD).unwrap());
    let changed: Vec<_> = recorded.iter().filter(|fate| !after.contains(fate)).collect();
    assert!(changed.is_empty(), "recorded twice: {changed:?}");
    let requeued =
        "SELECT count(DISTINCT job_id) FROM dead_letters WHERE queue = 'dispatch-queue' AND resolved_how = 'requeued'
                    AND resolved_by = 'operator:ops' AND resolved_why LIKE 'plan %: routing is back'";
    assert_eq!(fleet.count(requeued).await, DEAD);
    let deaths = "SELECT count(*) FROM dead_letters WHERE queue = 'dispatch-queue'";
    assert_eq!(fleet.count(deaths).await, DEAD, "none was requeued twice");
    eventually("each job lives once", async || dispatch_jobs(&fleet).await == (DEAD, 0)).await;
}
