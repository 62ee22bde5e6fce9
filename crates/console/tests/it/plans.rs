//! Dead jobs grouped by cause, and plans with their ids.

use super::{Browser, place, statements_of};
use accounts::api_keys::AccountRole;
use desk::dead_letters::mirror;
use test_support::{Api, TestApp, dead_letters::bury_due, secs};

const MAKE: [(&str, &str); 2] = [("verb", "requeue"), ("reason", "routing is back")];

// Rule U17: The button that creates a plan opens the new plan.
#[tokio::test]
async fn a_plan_shows_its_ids_and_why_some_are_refused() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.order("OPEN").await;
    t.order("CLOSED").await;
    assert_eq!(bury_due(&t.app, "no route to host").await, 2);
    t.cancel("CLOSED").await.unwrap();
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let made = operator.post("/console/dead/plan", &MAKE).await;
    let path = format!("/console/plans/{}", t.texts("SELECT id::text FROM plans").await[0]);
    assert_eq!(place(&made), format!("{path}?did=plan-made"));
    assert!(operator.text(place(&made)).await.contains("The plan was stored."));
    assert!(operator.text("/console/plans").await.contains(&format!("href=\"{path}\"")));

    let (page, statements) = statements_of(&operator, &path).await;
    assert!((1..=8).contains(&statements.len()), "{statements:#?}");
    for text in
        ["dispatch:OPEN:1", "dispatch:CLOSED:1", "ORDER_CLOSED", "1 refused, 1 left", "routing is back", "/run\""]
    {
        assert!(page.contains(text), "{text}: {page}");
    }
    let refused = operator.text(&format!("{path}?state=REFUSED")).await;
    assert!(refused.contains("dispatch:CLOSED:1") && !refused.contains("dispatch:OPEN:1"), "{refused}");
    assert!(!operator.text(&format!("{path}?after=dispatch:CLOSED:1&state=REFUSED")).await.contains(">dispatch:"));
    assert_eq!(operator.get(&format!("{path}?state=LOST")).await.status(), 422);
    for missing in ["/console/plans/01937c3e-8f00-7000-8000-000000000001", "/console/plans/nonsense"] {
        assert_eq!(operator.get(missing).await.status(), 404, "{missing}");
    }
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let seen = viewer.text(&path).await;
    assert!(seen.contains("dispatch:OPEN:1") && !seen.contains("/run\""), "{seen}");

    assert_eq!(place(&operator.post(&format!("{path}/run"), &[]).await), "/console/plans?did=plan-run");
    t.run_due().await;
    let done = operator.text(&path).await;
    assert!(done.contains(">Done<") && done.contains(">Changed<") && !done.contains("/run\""), "{done}");
    t.assert_sound().await;
}

#[tokio::test]
async fn dead_jobs_are_grouped_by_what_they_died_of() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    t.order("A").await;
    assert_eq!(bury_due(&t.app, "no route to host").await, 1);
    // The copy does not yet contain the latest dead job.
    t.advance(secs(2)).await;
    mirror::mirror_once(&t.app.core).await.unwrap();
    assert!(!operator.text("/console/dead").await.contains("Dead jobs by error"), "one kind needs no list");
    t.order("B").await;
    t.order("C").await;
    assert_eq!(bury_due(&t.app, "no such street\tat all\nsecond line").await, 2);
    t.advance(secs(2)).await;
    mirror::mirror_once(&t.app.core).await.unwrap();
    let page = operator.text("/console/dead").await;
    let (street, host) = (
        "<b>2</b> <a href=\"/console/dead?error=no%20such%20street\">",
        "<b>1</b> <a href=\"/console/dead?error=no%20route%20to%20host\">",
    );
    let places: Vec<_> = [street, host].map(|link| page.find(link).unwrap_or_else(|| panic!("{link}: {page}"))).into();
    assert!(places.is_sorted(), "the most frequent first: {page}");
    let only = operator.text("/console/dead?error=no%20such%20street").await;
    assert!(only.contains(">dispatch:B:1<") && !only.contains(">dispatch:A:1<"), "{only}");
}
