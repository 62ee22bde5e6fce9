//! Now: the curves of the last hour.

use dispatch::{accounts::api_keys::AccountRole, periodic::statistics};

use super::{Browser, lay_out};
use crate::support::{Api, TestApp, secs};

#[tokio::test]
async fn curves_of_the_last_hour_follow_open_orders_refunds_and_lateness() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert!(viewer.text("/console").await.contains("No curves yet"));
    lay_out(&t).await;
    for _ in 0..2 {
        statistics::run(&t.app).await.unwrap();
        t.advance(secs(60)).await;
    }
    let page = viewer.text("/console").await;
    for said in ["Open orders: now 1, at most 1", "Refunds owed: now 1, at most 1", "Lateness p99 (ms): now "] {
        assert!(page.contains(said), "{said}: {page}");
    }
    t.cancel("ORD-1").await.unwrap();
    statistics::run(&t.app).await.unwrap();
    let page = viewer.text("/console").await;
    for said in ["Open orders: now 0, at most 1", "Refunds owed: now 2, at most 2"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    t.advance(secs(3700)).await;
    assert!(viewer.text("/console").await.contains("No curves yet"), "they are older than an hour");
}
