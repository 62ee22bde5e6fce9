//! Jobs: the contents of a queue, and the state of one job.

use super::{Browser, place};
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

#[tokio::test]
async fn operator_moves_and_cancels_a_waiting_job() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let page = operator.text("/console/jobs?id=lifetime:ORD-1").await;
    for action in ["run-now", "reschedule", "cancel"] {
        assert!(page.contains(&format!("/console/jobs/lifetime%3AORD-1/{action}\"")), "{action}: {page}");
    }
    let reason = ("reason", "a test");
    let post = async |action: &str, at: &str| {
        let path = format!("/console/jobs/lifetime:ORD-1/{action}");
        operator.post(&path, &[("at", at), reason]).await
    };
    let refused = post("cancel", "").await;
    assert_eq!(refused.status(), 409);
    assert!(refused.text().await.unwrap().contains("needs lifetime:ORD-1"), "the order needs it");
    assert_eq!(post("reschedule", "").await.status(), 422);
    assert_eq!(post("reschedule", "2020-01-01T00:00").await.status(), 409);
    t.accept_offer("ORD-1").await;
    assert_eq!(place(&post("run-now", "").await), "/console/jobs?id=lifetime%3AORD-1&did=job-run-now");
    assert!(operator.text("/console/jobs?id=lifetime:ORD-1").await.contains("</b>Due</span>"));
    assert_eq!(place(&post("cancel", "").await), "/console/jobs?id=lifetime%3AORD-1&did=job-cancelled");
    assert!(operator.text("/console/jobs?id=lifetime:ORD-1").await.contains("There is no such job"));
    assert_eq!(post("cancel", "").await.status(), 409, "sent again");
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    assert_eq!(dispatcher.post("/console/jobs/lifetime:ORD-1/cancel", &[reason]).await.status(), 403);
    let recorded = "SELECT concat_ws(' ', action, split_part(subject, ' ', 1), actor, reason) FROM audit_staff_actions ORDER BY id";
    assert_eq!(
        t.texts(recorded).await,
        [
            "JOB_RESCHEDULED lifetime:ORD-1 operator:test-operator a test",
            "JOB_CANCELLED lifetime:ORD-1 operator:test-operator a test"
        ]
    );
}

#[tokio::test]
async fn message_shows_its_body_and_tries() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    t.order_of("ORD-1", "RENT", "PAID").await;
    t.run_due().await;
    t.sql(
        "UPDATE outbox SET payload = '{\"text\": \"<b>&\"}';
         INSERT INTO outbox_attempts (outbox_id, attempt_no, at, error) SELECT id, 7, dispatchq_now(), 'answered 404' FROM outbox",
    )
    .await;
    let id = t.count("SELECT min(id) FROM outbox").await;
    assert!(operator.text("/console/outbox").await.contains(&format!("href=\"/console/outbox/{id}\">{id}</a>")));
    let page = operator.text(&format!("/console/outbox/{id}")).await;
    for text in [&format!("Message {id}"), "&quot;text&quot;: &quot;&lt;b&gt;&amp;&quot;", "answered 404", "Failed"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    for missing in ["0", "x"] {
        assert_eq!(operator.get(&format!("/console/outbox/{missing}")).await.status(), 404, "{missing}");
    }
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    assert_eq!(dispatcher.get(&format!("/console/outbox/{id}")).await.status(), 403);
}
