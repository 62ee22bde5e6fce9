//! The page of workers: their use of memory and processor, and their drains.

use jobs::queues;
use queue::store::WorkerInfo;

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, worker_info};

const PAGE: &str = "/console/workers";
const DRAIN: &str = "/console/workers/00000000000000a1/drain";
const REASON: [(&str, &str); 1] = [("reason", "a new host")];
/// Start of the warning.
const WARNING: &str = "No other worker takes jobs of";

/// Starts a console with a live worker `w1`, and signs an operator in.
async fn start() -> (TestApp, Api, Browser) {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    beat(&t, "a1", &own_info()).await;
    (t, api, operator)
}

async fn beat(t: &TestApp, end: &str, info: &WorkerInfo) {
    t.send_heartbeat(&format!("00000000000000{end}"), &format!("worker-{end}"), Some(info)).await;
}

/// Sends a heartbeat of a worker without jobs that follows the stored request to drain.
async fn confirm(t: &TestApp) {
    let requested = "SELECT (extract(epoch FROM drained_at) * 1000)::bigint FROM worker_drains";
    let drain_ms = Some(t.count(requested).await.cast_unsigned());
    beat(t, "a1", &WorkerInfo { drain_ms, ..own_info() }).await;
}

fn own_info() -> WorkerInfo {
    worker_info(&[queues::DISPATCH, queues::NOTIFY])
}

#[tokio::test]
async fn workers_page_shows_memory_and_processor() {
    let (t, _api, operator) = start().await;
    let page = operator.text(PAGE).await;
    assert!(page.contains(">52 MiB<") && page.contains(">12%<"), "{page}");
    beat(&t, "a1", &WorkerInfo { resident_bytes: None, cpu_percent: None, ..own_info() }).await;
    let page = operator.text(PAGE).await;
    assert!(!page.contains("MiB<") && !page.contains("%<"), "{page}");
}

#[tokio::test]
async fn drained_worker_is_shown_and_resumed() {
    let (t, _api, operator) = start().await;
    assert_eq!(place(&operator.post(DRAIN, &REASON).await), "/console/workers?did=worker-drain-last");
    let page = operator.text("/console/workers?did=worker-drain-last").await;
    for text in [
        "The worker is being drained. No other worker takes jobs",
        "</b>Draining</span>",
        "operator:test-operator",
        "a new host",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    confirm(&t).await;
    let page = operator.text(PAGE).await;
    assert!(page.contains("</b>Drained</span>") && !page.contains("Drain worker"), "{page}");
    let resumed = operator.post("/console/workers/00000000000000a1/resume", &REASON).await;
    assert_eq!(place(&resumed), "/console/workers?did=worker-resume");
    let page = operator.text(PAGE).await;
    assert!(page.contains("</b>Running</span>") && page.contains("Drain worker"), "{page}");
}

#[tokio::test]
async fn drain_of_last_worker_shows_a_warning() {
    let (t, _api, operator) = start().await;
    let page = operator.text(PAGE).await;
    let (_, form) = page.split_once("action=\"/console/workers/00000000000000a1/drain\"").unwrap();
    let (form, _) = form.split_once("</form>").unwrap();
    assert!(form.contains(&format!("{WARNING} dispatch-queue, notify-queue.")), "{form}");
    assert!(form.contains("name=\"sure\"") && form.contains("danger"), "{form}");
    beat(&t, "a2", &own_info()).await;
    assert!(!operator.text(PAGE).await.contains(WARNING));
    let drained = operator.post("/console/workers/00000000000000a2/drain", &REASON).await;
    assert_eq!(place(&drained), "/console/workers?did=worker-drain");
    assert!(operator.text(PAGE).await.contains(WARNING), "the other worker is drained");
}

#[tokio::test]
async fn drain_of_ended_worker_is_refused() {
    let (t, _api, operator) = start().await;
    t.send_heartbeat("00000000000000a1", "worker-a1", None).await;
    let refused = operator.post(DRAIN, &REASON).await;
    assert_eq!(refused.status(), 404);
    assert!(refused.text().await.unwrap().contains("There is no worker with this id"));
    assert_eq!(operator.post("/console/workers/00000000000000a1/stop", &REASON).await.status(), 404);
}

// The page Now shows workers in red while none takes jobs.
#[tokio::test]
async fn now_is_red_while_every_worker_is_drained() {
    let (t, _api, operator) = start().await;
    let row = async || {
        let page = operator.text("/console").await;
        let (_, main) = page.split_once("<main").unwrap();
        let (_, row) = main.split_once("href=\"/console/workers\"").unwrap();
        row.split("</tr>").next().unwrap().to_owned()
    };
    let running = row().await;
    operator.post(DRAIN, &REASON).await;
    confirm(&t).await;
    assert_ne!(row().await, running);
}
