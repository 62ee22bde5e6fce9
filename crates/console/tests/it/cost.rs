//! Cost of pages in Postgres, by its own statistics, and the handling of a page that costs too much.

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};

use super::{Browser, PAGES, lay_out};
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, costs::count_statements, eventually, lasting_transaction};

#[tokio::test]
async fn postgres_counts_at_most_eight_statements_for_a_page() {
    let mut t = TestApp::start().await;
    count_statements(&mut t.postgres).await;
    let api = Api::start(&t.app).await;
    let browser = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    lay_out(&t).await;
    t.run_due().await;
    for path in PAGES.into_iter().chain(["/console/orders/ORD-1", "/console/drivers/D1", "/console/desk?order=ORD-1"]) {
        t.count("SELECT count(*) FROM pg_stat_statements_reset()").await;
        browser.text(path).await;
        let counted = t
            .texts(
                "SELECT calls || ' x ' || split_part(query, E'\\n', 1)
                 FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
                 WHERE query LIKE '-- %'",
            )
            .await;
        let calls: u32 = counted.iter().map(|line| line.split(' ').next().unwrap().parse::<u32>().unwrap()).sum();
        assert!((1..=8).contains(&calls), "{path}: {counted:#?}");
    }
}

#[tokio::test]
async fn slow_page_times_out_without_blocking_changes() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::query("LOCK TABLE plans IN ACCESS EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    let given_up = operator.get("/console/plans").await;
    assert_eq!(given_up.status(), 503);
    let page = given_up.text().await.unwrap();
    assert!(page.contains("stopped after two seconds"), "{page}");
    // Other requests are served, and changes use their own connections.
    operator.text("/console/orders").await;
    assert_eq!(operator.post("/console/orders/ORD-1/hold", &[("reason", "a test")]).await.status(), 303);
    lock.rollback().await.unwrap();
    operator.text("/console/plans").await;
}

#[tokio::test]
async fn actions_go_on_while_too_many_look_at_pages() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(t.app.core.pages.acquire().await.unwrap());
    }
    let waiting = tokio::spawn({
        let pages = t.app.core.pages.clone();
        async move { pages.acquire().await.is_ok() }
    });
    eventually("pages wait too long", async || t.app.core.pages.is_overloaded()).await;
    assert_eq!(operator.get("/console/plans").await.status(), 503);
    assert_eq!(operator.post("/console/orders/ORD-1/hold", &[("reason", "a test")]).await.status(), 303);
    drop(held);
    assert!(waiting.await.unwrap());
    operator.text("/console/plans").await;
}

/// All pages that receive a change notification reload at once.
#[tokio::test]
async fn hundred_page_requests_wait_for_their_turn() {
    let t = TestApp::start().await;
    let pages = &t.app.core.pages;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(pages.acquire().await.unwrap());
    }
    let mut waiting = FuturesUnordered::from_iter((0..100).map(|_| pages.acquire()));
    assert!(waiting.next().now_or_never().is_none());
    assert!(!pages.is_overloaded());
    drop(held);
    while let Some(turn) = waiting.next().await {
        turn.unwrap();
    }
}

#[tokio::test]
async fn what_pages_read_with_takes_no_writes() {
    let t = TestApp::start().await;
    let shown = t.app.clone().showing();
    let written = sqlx::query("UPDATE orders SET version = version").execute(&shown.core.db).await.unwrap_err();
    let code = written.as_database_error().and_then(sqlx::error::DatabaseError::code);
    assert_eq!(code.as_deref(), Some("25006"), "{written}");
    let limit: String = sqlx::query_scalar("SHOW statement_timeout").fetch_one(&shown.core.db).await.unwrap();
    assert_eq!(limit, "2s");
}
