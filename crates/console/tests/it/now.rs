//! The page Now: the curves of the last hour.

use super::{Browser, lay_out};
use accounts::api_keys::AccountRole;
use maintenance::periodic::statistics;
use queue::store::BreakerPolicy;
use settings::PartnerConfig;
use test_support::{Api, ProviderStage, TestApp, secs};

#[tokio::test]
async fn now_page_shows_curves_of_last_hour() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert!(viewer.text("/console").await.contains("No data yet"));
    lay_out(&t).await;
    for _ in 0..2 {
        statistics::run(&t.app.maintenance).await.unwrap();
        t.advance(secs(60)).await;
    }
    let page = viewer.text("/console").await;
    for said in ["Open orders: now 1, maximum 1", "Refunds owed: now 1, maximum 1", "Job delay (99th percentile): now "]
    {
        assert!(page.contains(said), "{said}: {page}");
    }
    t.cancel("ORD-1").await.unwrap();
    statistics::run(&t.app.maintenance).await.unwrap();
    let page = viewer.text("/console").await;
    for said in ["Open orders: now 0, maximum 1", "Refunds owed: now 2, maximum 2"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    t.advance(secs(3700)).await;
    assert!(viewer.text("/console").await.contains("No data yet"), "they are older than an hour");
}

#[tokio::test]
async fn charts_show_an_hour_a_day_and_a_week() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert!(viewer.text("/console/charts").await.contains("No data yet"));
    lay_out(&t).await;
    statistics::run(&t.app.maintenance).await.unwrap();
    let page = viewer.text("/console/charts").await;
    assert!(
        page.contains("Open orders: now 1, maximum 1") && page.contains("Job delay (99th percentile): now "),
        "{page}"
    );
    t.advance(secs(7_200)).await;
    t.sql("UPDATE queue_snapshots SET due = 1234 WHERE queue = 'dispatch-queue'").await;
    assert!(viewer.text("/console/charts").await.contains("No data yet"), "it is older than an hour");
    for span in ["24h", "7d"] {
        let page = viewer.text(&format!("/console/charts?of=dispatch-queue&span={span}")).await;
        assert!(
            page.contains("Due: now 1,234, maximum 1,234") && page.contains(" UTC: 1,234</title>"),
            "{span}: {page}"
        );
        let other = viewer.text(&format!("/console/charts?of=notify-queue&span={span}")).await;
        assert!(!other.contains("1,234"), "{span}: {other}");
    }
    for (query, status) in [("of=none", 404), ("span=2h", 422)] {
        assert_eq!(viewer.get(&format!("/console/charts?{query}")).await.status(), status, "{query}");
    }
}

#[tokio::test]
async fn it_says_which_servers_and_partners_are_left_alone() {
    let stage = ProviderStage::with(|config| {
        for partner in ["bbd", "cab"] {
            config.partners.insert(partner.into(), PartnerConfig::with_url("http://127.0.0.1:9/v1"));
        }
    })
    .await;
    let t = &stage.t;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(t, &api, AccountRole::Viewer).await;
    let page = viewer.text("/console").await;
    assert!(page.contains("Paused servers") && page.contains("All 1 servers are called."), "{page}");
    assert!(page.contains("Paused partners") && page.contains("All 2 partners are called."), "{page}");
    let policy = BreakerPolicy { failures: 1, open: secs(60), max_open: secs(60) };
    t.app.core.store.breaker_failed("partner:bbd", &policy, "it answered 503").await.unwrap();
    assert!(viewer.text("/console").await.contains("Of 2 partners. bbd is paused"), "the first of two");
    stage.create_server("S2", 1).await;
    t.sql("UPDATE provider_servers SET paused_until = dispatchq_now() + interval '5 minutes' WHERE id = 'S2'").await;
    let page = viewer.text("/console").await;
    assert!(page.contains("Of 2 servers. S2 is paused") && page.contains("! Check"), "{page}");
    t.sql("UPDATE provider_servers SET enabled = false WHERE id = 'S2'").await;
    assert!(!viewer.text("/console").await.contains("S2"), "a disabled one is left alone on purpose");
}

#[tokio::test]
async fn refunds_stand_against_their_sla() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert!(viewer.text("/console").await.contains("No refunds owed"));
    lay_out(&t).await;
    assert!(viewer.text("/console").await.contains("deadline of the oldest: in 1 d 0 h"));
    t.sql("UPDATE orders SET closed_at = closed_at - interval '30 hours' WHERE id = 'OWED'").await;
    let page = viewer.text("/console").await;
    assert!(page.contains("deadline of the oldest: late by 6 h ") && page.contains("✕ Action needed"), "{page}");
}
