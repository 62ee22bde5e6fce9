//! Jobs: the contents of a queue, and the state of one job.

use super::Browser;
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, dead_letters::bury_due};

// Rule U17: A job's id links to the job, next to a link to its order.
#[tokio::test]
async fn jobs_page_lists_and_finds_jobs() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    assert!(operator.text("/console/jobs").await.contains("No jobs in this state"));
    t.order("DEAD").await;
    assert_eq!(bury_due(&t.app, "no route to host").await, 1);
    t.order("ORD-1").await;

    let page = operator.text("/console/jobs").await;
    let link = "<a class=\"id\" href=\"/console/jobs?id=dispatch%3AORD-1%3A1\">dispatch:ORD-1:1</a>";
    assert!(page.contains("<a class=\"id\" href=\"/console/orders/ORD-1\">ORD-1</a>"), "{page}");
    assert!(page.contains(link) && page.contains("</b>Due</span>"), "{page}");
    assert!(!page.contains("dispatch:DEAD:1"), "{page}");
    let page = operator.text("/console/jobs?queue=lifetime-cancel-queue").await;
    assert!(page.contains("lifetime:ORD-1") && page.contains("</b>Scheduled</span>"), "{page}");
    let page = operator.text("/console/jobs?state=dead").await;
    assert!(page.contains("dispatch:DEAD:1") && page.contains("no route to host"), "{page}");

    // On all other pages a job id links to the job. Staff without access to jobs see only the id.
    let dead = operator.text("/console/dead").await;
    assert!(dead.contains("href=\"/console/jobs?id=dispatch%3ADEAD%3A1\">dispatch:DEAD:1</a>"), "{dead}");
    assert!(dead.contains("href=\"/console/orders/DEAD\">DEAD</a>"), "{dead}");
    assert!(operator.text("/console/orders/ORD-1").await.contains(link));
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let order = viewer.text("/console/orders/ORD-1").await;
    assert!(order.contains("dispatch:ORD-1:1") && !order.contains("/console/jobs?id="), "{order}");

    // A running job is shown with its worker, whatever filter was used.
    let leased = t.take().await;
    assert_eq!(leased.len(), 1, "{leased:?}");
    let page = operator.text("/console/jobs?id=dispatch:ORD-1:1&queue=notify-queue&state=dead").await;
    assert!(page.contains(link) && page.contains("</b>Running</span>") && page.contains("lease ends"), "{page}");
    assert!(operator.text("/console/jobs?state=leased").await.contains(link));
    assert!(operator.text("/console/jobs?id=dispatch:ORD-9:1").await.contains("There is no such job"));

    let queues = operator.text("/console/queues").await;
    assert!(queues.contains("href=\"/console/jobs?queue=notify-queue\">notify-queue</a>"), "{queues}");
    for (path, status) in
        [("/console/jobs?queue=none", 404), ("/console/jobs?state=none", 422), ("/console/jobs?offset=100001", 422)]
    {
        assert_eq!(operator.get(path).await.status(), status, "{path}");
    }
    for role in [AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support] {
        let person = Browser::signed_in(&t, &api, role).await;
        assert_eq!(person.get("/console/jobs").await.status(), 403, "{role:?}");
    }
}
