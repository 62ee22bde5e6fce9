//! Change notifications for pages: one query serves all streams, until the process ends.

use std::str;

use reqwest::{
    Response,
    header::{ACCEPT, COOKIE},
};
use tokio::time::timeout;

use super::{Browser, lay_out, place};
use accounts::api_keys::AccountRole;
use test_support::{Api, LogLines, PATIENCE, TestApp, eventually, lasting_transaction, secs};

const ORDERS: &str = "/console/changes?of=orders";
const CHANGE: &str = "event: change\ndata: rows\n\n";

/// Returns the next part of a stream, or `None` after its end.
async fn read_part(stream: &mut Response) -> Option<String> {
    let part = timeout(PATIENCE, stream.chunk()).await.expect("the stream says something").unwrap();
    part.map(|bytes| str::from_utf8(&bytes).unwrap().to_owned())
}

/// Reads until the stream reports a change.
async fn read_change(stream: &mut Response) {
    let mut seen = String::new();
    while !seen.contains(CHANGE) {
        seen.push_str(&read_part(stream).await.unwrap_or_else(|| panic!("the stream ended after {seen}")));
    }
}

#[tokio::test]
async fn a_page_is_told_of_changes_by_any_process() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t).await;
    assert_eq!(place(&Browser::new(&api).get(ORDERS).await), "/console/login?next=%2Fconsole%2Fchanges%3Fof%3Dorders");
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert_eq!(viewer.get("/console/changes?of=weather").await.status(), 404);
    assert!(viewer.text("/console/orders").await.contains("data-changes=\"/console/changes?of=orders\""));
    assert!(viewer.text("/console/plans").await.contains("data-changes=\"\""));

    let mut stream = viewer.get(ORDERS).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    // The first notification covers changes made while the stream was opened.
    read_change(&mut stream).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    dispatcher.post("/console/orders/ORD-1/hold", &[("reason", "a test")]).await;
    read_change(&mut stream).await;
    // A change by another process, in a transaction that commits long after it took its event number.
    let mut lasting = lasting_transaction(&t.postgres).await;
    sqlx::query(
        "INSERT INTO order_events (order_id, to_status, reason, actor, at)
         VALUES ('ORD-1', 'DISPATCHING', 'HELD_FOR_REVIEW', 'x', dispatchq_now())",
    )
    .execute(&mut *lasting)
    .await
    .unwrap();
    read_change(&mut stream).await;
    lasting.commit().await.unwrap();
    read_change(&mut stream).await;
}

#[tokio::test]
async fn fifty_pages_cost_one_question_and_end_with_the_process() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let lines = LogLines::default();
    let seen = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(lines.clone()).finish();
    let guard = tracing::subscriber::set_default(seen);
    let mut streams = Vec::new();
    for topic in ["orders", "alerts", "bindings"].into_iter().cycle().take(50) {
        streams.push(viewer.get(&format!("/console/changes?of={topic}")).await);
    }
    let turns = || t.app.core.loops.count_turns("page changes");
    let before = turns();
    eventually("three questions were asked", || async { turns() >= before + 3 }).await;
    let (asked, turns) = (lines.with("marks of pages").len(), usize::try_from(turns()).unwrap());
    drop(guard);
    assert!((1..=turns + 1).contains(&asked), "{asked} questions in {turns} turns");

    t.app.desk.changes.close();
    for stream in &mut streams {
        while read_part(stream).await.is_some() {}
    }
    let ended = viewer.get(ORDERS).await;
    assert_eq!((ended.status().as_u16(), ended.text().await.unwrap().as_str()), (204, ""));
}

#[tokio::test]
async fn live_page_does_not_extend_its_session() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let last_seen = async || t.texts("SELECT last_seen_at::text FROM console_sessions").await;
    let before = last_seen().await;
    t.advance(secs(600)).await;
    let request = viewer.client.get(api.url(ORDERS)).header(COOKIE, &viewer.cookie);
    assert_eq!(request.header(ACCEPT, "text/event-stream").send().await.unwrap().status(), 200);
    assert_eq!(last_seen().await, before);
    viewer.text("/console/orders").await;
    assert_ne!(last_seen().await, before);
}

// Rule F24: A console's stream of changes ends with its session.
#[tokio::test]
async fn stream_ends_with_its_session() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let mut streams = vec![viewer.get(ORDERS).await, viewer.get("/console/changes?of=bindings").await];
    read_change(&mut streams[0]).await;
    t.sql("UPDATE console_sessions SET ended_at = dispatchq_now()").await;
    t.cancel("ORD-1").await.unwrap();
    // Rows for the first stream have changed, and none for the second. Both streams end long before their limit of 300
    // s.
    for stream in &mut streams {
        while read_part(stream).await.is_some() {}
    }
}
