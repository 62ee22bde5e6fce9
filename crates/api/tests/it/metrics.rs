//! Gauges: the state of the installation at a scrape.

use serde_json::json;

use app::App;
use foundation::staff_actions::ActionAuthor;
use maintenance::recovery::{reconciler, shards};
use model::{
    decide::money,
    order::{OrderStatus, PaymentStatus},
};
use queue::{JobId, ShardCount, SlotNeed, store::OngoingWork};
use settings::ChannelConfig;
use test_support::{Counting, ProviderStage, Scrape, TestApp, by, secs};

const HOUR: u64 = 3600;

async fn gauge(address: &str, name: &str) -> f64 {
    let scrape = Scrape::ask(address).await;
    assert!(scrape.has(name), "no {name}");
    scrape.value(name)
}

#[tokio::test]
async fn unstarted_refunds_are_counted_with_age() {
    let (counting, t) = (Counting::start(), TestApp::start().await);
    let (at, _stop) = counting.shown(&t.app).await;
    let refunds = async || {
        let scrape = Scrape::ask(&at).await;
        (scrape.value("dispatchq_manual_refund_queue"), scrape.value("dispatchq_manual_refund_oldest_seconds"))
    };
    assert_eq!(refunds().await, (0.0, 0.0));

    t.order_of("BY-USER", "RIDE", "PAID").await;
    t.cancel("BY-USER").await.unwrap();
    t.order_of("UNPAID", "RIDE", "UNPAID").await;
    t.cancel("UNPAID").await.unwrap();
    assert_eq!(refunds().await, (1.0, 0.0));
    t.advance(secs(HOUR)).await;
    t.order_of("BY-SYSTEM", "RIDE", "SETTLEMENT").await;
    t.run_for(secs(HOUR)).await;
    assert_eq!(t.status("BY-SYSTEM").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(refunds().await, (2.0, 7200.0));

    // A payment long after the end of an order is not overdue at once.
    t.act("BY-USER", |s| money::start_refund(s, &by("operator:test"), None)).await.unwrap();
    t.act("BY-SYSTEM", |s| money::start_refund(s, &by("operator:test"), None)).await.unwrap();
    assert_eq!(refunds().await, (0.0, 0.0));
    t.act("UNPAID", |s| money::record_payment(s, &by("producer:test"), "EV-1", &PaymentStatus::Paid)).await.unwrap();
    t.advance(secs(60)).await;
    assert_eq!(refunds().await, (1.0, 60.0));
}

#[tokio::test]
async fn what_waits_for_somebody_is_counted() {
    let (counting, t) = (Counting::start(), TestApp::start().await);
    let (at, _stop) = counting.shown(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(gauge(&at, "dispatchq_orders_retrying").await, 0.0);
    t.run_for(secs(120)).await;
    assert_eq!(gauge(&at, "dispatchq_orders_retrying").await, 1.0, "the pause after the first attempt");
    t.run_for(secs(15)).await;
    assert_eq!(gauge(&at, "dispatchq_orders_retrying").await, 1.0, "the second attempt");
    t.accept_offer("ORD-1").await;
    assert_eq!(gauge(&at, "dispatchq_orders_retrying").await, 0.0);

    t.order_of("ORD-2", "DELIVERY", "DISPUTED").await;
    t.run_for(secs(1800)).await;
    assert_eq!(gauge(&at, "dispatchq_orders_held").await, 1.0);
    assert_eq!(gauge(&at, "dispatchq_workers").await, 0.0);
    assert_eq!(gauge(&at, "dispatchq_queue_oldest_due_seconds{queue=\"dispatch-queue\"}").await, 0.0);
    t.order("ORD-3").await;
    t.advance(secs(7)).await;
    assert_eq!(gauge(&at, "dispatchq_queue_due{queue=\"dispatch-queue\"}").await, 1.0);
    assert_eq!(gauge(&at, "dispatchq_queue_oldest_due_seconds{queue=\"dispatch-queue\"}").await, 7.0);
}

#[tokio::test]
async fn only_several_shards_have_own_gauges() {
    let (counting, t) = (Counting::start(), TestApp::start().await);
    let (at, _stop) = counting.shown(&t.app).await;
    assert!(!Scrape::ask(&at).await.families.keys().any(|name| name.starts_with("dispatchq_shard")));
    let author = ActionAuthor { actor: &by("operator:test"), reason: None };
    shards::change_number(&t.app.core, ShardCount::new(4).unwrap(), author).await.unwrap();
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.order("ORD-1").await;
    t.advance(secs(1)).await;
    let scrape = Scrape::ask(&at).await;
    let of_shards = |name: &str| (0..4).map(|n| scrape.value(&format!("{name}{{shard=\"{n}\"}}"))).collect::<Vec<_>>();
    assert_eq!(of_shards("dispatchq_shard_up"), [1.0; 4]);
    // The same value as in the test of the queue engine.
    assert_eq!(of_shards("dispatchq_shard_due"), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(scrape.value("dispatchq_queue_due{queue=\"dispatch-queue\"}"), 1.0);
}

#[tokio::test]
async fn waiting_bindings_are_counted_with_age() {
    let (counting, stage) = (Counting::start(), ProviderStage::start().await);
    let (at, _stop) = counting.shown(&stage.t.app).await;
    stage.turn_knobs(|knobs| knobs.otp_rate = "1".parse().unwrap());
    stage.run_binding("B", "S1", json!({})).await;
    stage.t.run_due().await;
    let scrape = Scrape::ask(&at).await;
    assert_eq!(scrape.value("dispatchq_bindings_waiting_otp"), 1.0);
    assert_eq!(scrape.value("dispatchq_bindings{state=\"RUNNING\"}"), 1.0);
    assert_eq!(scrape.value("dispatchq_bindings_most_overdue_seconds"), 0.0);
    // The wait for the OTP is over after two minutes, but no worker runs.
    stage.t.advance(secs(HOUR)).await;
    // A pause writes the row, and the wait continues.
    stage.t.sql("UPDATE bindings SET updated_at = dispatchq_now()").await;
    let scrape = Scrape::ask(&at).await;
    let waited = scrape.value("dispatchq_bindings_otp_oldest_seconds");
    assert!((3000.0..=3600.0).contains(&waited), "{waited}");
    let overdue = scrape.value("dispatchq_bindings_most_overdue_seconds");
    assert!((2900.0..waited).contains(&overdue), "{overdue}");

    let server =
        |scrape: &Scrape, name: &str| scrape.value(&format!("dispatchq_provider_server_{name}{{server=\"S1\"}}"));
    assert_eq!([server(&scrape, "breaker_open"), server(&scrape, "paused")], [0.0, 0.0]);
    stage.t.sql("UPDATE provider_servers SET paused_until = dispatchq_now() + interval '1 minute'").await;
    let scrape = Scrape::ask(&at).await;
    assert_eq!([server(&scrape, "breaker_open"), server(&scrape, "paused")], [1.0, 1.0]);
    assert_eq!(scrape.value("dispatchq_bindings_most_overdue_seconds"), 0.0, "its server is left alone");
    stage.t.sql("UPDATE provider_servers SET paused_until = NULL, enabled = false").await;
    let scrape = Scrape::ask(&at).await;
    assert_eq!([server(&scrape, "breaker_open"), server(&scrape, "paused")], [0.0, 1.0], "an operator's decision");
}

#[tokio::test]
async fn a_line_is_shown_with_the_limits_it_waits_for() {
    let (counting, mut stage) = (Counting::start(), ProviderStage::start().await);
    let (at, _stop) = counting.shown(&stage.t.app).await;
    let open = ["X", "Y"].map(|own| OngoingWork {
        queue: jobs::queues::BINDING,
        id: JobId::parse(format!("cycle:{own}:1")).unwrap(),
        need: SlotNeed::new("S1", own, secs(600)).unwrap(),
        left: secs(600),
    });
    stage.t.app.core.store.restore_slots(&open).await.unwrap();
    stage.run_binding("B", "S1", json!({})).await;
    stage.t.run_due().await;
    stage.t.advance(secs(90)).await;
    let of_server = ["calls_open", "calls_limit", "parked", "longest_wait_seconds"];
    let read = async || {
        let scrape = Scrape::ask(&at).await;
        let of_all =
            ["provider_calls_open", "provider_calls_limit", "bindings_parked", "bindings_longest_wait_seconds"];
        let of_all = of_all.map(|name| scrape.value(&format!("dispatchq_{name}")));
        let server = |name: &str| scrape.value(&format!("dispatchq_provider_server_{name}{{server=\"S1\"}}"));
        (of_all, of_server.map(server))
    };
    assert_eq!(read().await, ([2.0, 50.0, 1.0, 90.0], [2.0, 2.0, 1.0, 90.0]));
    stage.t.redis.kill().await;
    let (of_all, of_server) = read().await;
    assert!(of_all.iter().chain(&of_server).all(|value| value.is_nan()), "{of_all:?} {of_server:?}");
}

#[tokio::test]
async fn log_only_route_is_shown() {
    let (counting, t) = (Counting::start(), TestApp::start().await);
    let routes = async |app: &App| {
        let (at, _stop) = counting.shown(app).await;
        let scrape = Scrape::ask(&at).await;
        ["support", "dispatchers", "escalation"]
            .map(|route| scrape.value(&format!("dispatchq_alert_route_log_only{{alert_route=\"{route}\"}}")))
    };
    // With an empty escalation, alerts use the channels of support.
    assert_eq!(routes(&t.app).await, [1.0, 1.0, 0.0], "as shipped");
    let desk = t.reconfigured(|config| {
        config.channels.insert("desk".to_owned(), ChannelConfig::unsigned_webhook("http://127.0.0.1:9/"));
        config.notifications.support = vec!["log".to_owned(), "desk".to_owned()];
    });
    assert_eq!(routes(&desk).await, [0.0, 1.0, 0.0]);
}

#[tokio::test]
async fn unreadable_gauges_are_nan_and_server_is_named() {
    let (counting, mut t) = (Counting::start(), TestApp::start().await);
    let (at, _stop) = counting.shown(&t.app).await;
    let up = |scrape: &Scrape| {
        ["redis", "postgres"].map(|d| scrape.value(&format!("dispatchq_dependency_up{{dependency=\"{d}\"}}")))
    };
    let scrape = Scrape::ask(&at).await;
    assert_eq!(up(&scrape), [1.0, 1.0]);
    let degraded = |scrape: &Scrape| scrape.has("dispatchq_degraded").then(|| scrape.value("dispatchq_degraded"));
    assert_eq!(degraded(&scrape), Some(0.0));
    assert_eq!(scrape.value("dispatchq_queue_depth{queue=\"dispatch-queue\"}"), 0.0);

    t.redis.kill().await;
    let scrape = Scrape::ask(&at).await;
    assert_eq!((up(&scrape), degraded(&scrape)), ([0.0, 1.0], Some(1.0)));
    assert!(scrape.value("dispatchq_queue_depth{queue=\"dispatch-queue\"}").is_nan());
    assert!(scrape.value("dispatchq_workers").is_nan());
    assert_eq!(scrape.value("dispatchq_manual_refund_queue"), 0.0);

    t.postgres.stop().await.unwrap();
    let scrape = Scrape::ask(&at).await;
    assert_eq!((up(&scrape), degraded(&scrape)), ([0.0, 0.0], Some(0.0)), "it takes no requests");
    assert!(scrape.value("dispatchq_manual_refund_queue").is_nan());
    assert!(scrape.value("dispatchq_outbox_oldest_seconds").is_nan());
}
