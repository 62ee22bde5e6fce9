//! apalis-board, as `dispatchq dev` serves it, on the queues of an application.

use jobs::queues;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::chromium::Chromium;
use crate::support::TestApp;

#[tokio::test]
async fn board_shows_jobs_and_changes_nothing() {
    let t = TestApp::start().await;
    // Its lifetime is a job that is due later.
    t.order("ORD-1").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let board = tokio::spawn(lab::board::serve(t.app.core.queue(), listener, stop.clone()));

    let tasks = format!("{origin}/api/v1/queues/{}/tasks", queues::LIFETIME_CANCEL);
    let client = foundation::outbound::build_client(crate::support::secs(10)).unwrap();
    let listed: Value = client.get(format!("{tasks}?page=1")).send().await.unwrap().json().await.unwrap();
    assert_eq!(listed[0]["ctx"]["task_id"], "lifetime:ORD-1", "{listed}");
    let pushed = client.put(&tasks).json(&Value::Null).send().await.unwrap();
    assert_eq!(pushed.status().as_u16(), 405);

    let mut browser = Chromium::start().await;
    browser.open(&origin).await;
    browser.until_text(queues::LIFETIME_CANCEL).await;
    browser.open(&format!("{origin}/queues/{}/Pending", queues::LIFETIME_CANCEL)).await;
    browser.until_text("lifetime:ORD-1").await;
    drop(browser);
    stop.cancel();
    board.await.unwrap().unwrap();
}
