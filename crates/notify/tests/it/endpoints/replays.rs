//! Events that are sent again.

use std::collections::BTreeMap;

use serde_json::json;

use super::Shop;
use maintenance::{
    periodic::cleanup::{self, CleanupMode},
    recovery::reconciler,
};
use model::decide::actions;
use orders::feed::replay::run_replays;
use test_support::{Received, by, id, secs, update_order};

/// Time from a request to the first step of its replay.
const SETTLE: u64 = 15;

impl Shop {
    async fn replay(&self, id: &str, after: &str) {
        let requested = self.post(id, "replay", json!({ "after": after })).await;
        assert_eq!((requested.status, requested.text("after")), (202, after), "{requested:?}");
    }

    /// Runs replays and the jobs of their messages until no replay is left.
    async fn run_replays(&self) {
        self.t.advance(secs(SETTLE)).await;
        while self.t.count("SELECT count(*) FROM webhook_replays").await > 0 {
            assert!(run_replays(&self.t.app.orders).await.unwrap(), "no replay is due");
            self.t.run_due().await;
        }
    }

    async fn insert_steps(&self, count: u32) {
        self.t.order("ORD-1").await;
        self.t
            .sql(&format!(
                "INSERT INTO order_feed (order_id, owner, kind, status, reason, at)
                 SELECT 'ORD-1', 'test', 'order.held', 'DISPATCHING', 'HELD', dispatchq_now() FROM generate_series(1, {count})"
            ))
            .await;
    }
}

/// Returns how often each event arrived, by its id.
fn counts(received: &[Received]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for message in received {
        *counts.entry(message.id.as_str()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn replay_starts_after_the_cursor() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &["order.created"]).await.text("id").to_owned();
    shop.t.order("ORD-1").await;
    let after = shop.cursor().await;
    shop.t.order("ORD-2").await;
    shop.t.order("ORD-3").await;
    shop.t.run_due().await;
    assert_eq!(shop.told("/shop").len(), 3);
    shop.replay(&id, &after).await;
    shop.run_replays().await;
    let again = ["ORD-1", "ORD-2", "ORD-2", "ORD-3", "ORD-3"].map(|order| format!("order.created {order}"));
    assert_eq!(shop.told("/shop"), again);
    shop.t.assert_sound().await;
}

#[tokio::test]
async fn replayed_event_is_the_same_event() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &[]).await.text("id").to_owned();
    shop.t.drivers(&[("D1", 100.0)]).await;
    shop.t.order("ORD-1").await;
    shop.t.run_due().await;
    shop.t.accept_offer("ORD-1").await;
    shop.t.run_due().await;
    let first: BTreeMap<_, _> = shop.receiver.received().into_iter().map(|m| (m.id, m.bytes)).collect();
    shop.replay(&id, "0-0").await;
    shop.run_replays().await;
    let received = shop.receiver.received();
    assert_eq!(received.len(), 2 * first.len());
    let second: BTreeMap<_, _> = received.into_iter().skip(first.len()).map(|m| (m.id, m.bytes)).collect();
    assert_eq!(second, first);
}

#[tokio::test]
async fn replay_sends_events_of_a_pause() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &["order.created", "order.cancelled"]).await.text("id").to_owned();
    shop.t.order("ORD-1").await;
    shop.t.run_due().await;
    let paused_after = shop.post(&id, "pause", json!({})).await.text("paused_after").to_owned();
    shop.t.order("ORD-2").await;
    shop.t.cancel("ORD-2").await.unwrap();
    shop.post(&id, "resume", json!({})).await;
    shop.replay(&id, &paused_after).await;
    shop.run_replays().await;
    let all = ["order.created ORD-1", "order.created ORD-2", "order.cancelled ORD-2"];
    assert_eq!(shop.told("/shop"), all);
}

#[tokio::test]
async fn replay_of_a_paused_endpoint_waits() {
    let shop = Shop::open().await;
    shop.t.order("ORD-1").await;
    shop.t.cancel("ORD-1").await.unwrap();
    let id = shop.create("/shop", &["order.cancelled"]).await.text("id").to_owned();
    shop.post(&id, "pause", json!({})).await;
    shop.replay(&id, "0-0").await;
    shop.t.advance(secs(60)).await;
    assert!(!run_replays(&shop.t.app.orders).await.unwrap());
    shop.post(&id, "resume", json!({})).await;
    assert!(!run_replays(&shop.t.app.orders).await.unwrap(), "other processes have to learn about it");
    shop.run_replays().await;
    assert_eq!(shop.told("/shop"), ["order.cancelled ORD-1"]);
}

#[tokio::test]
async fn replay_sends_only_events_of_the_endpoint() {
    let shop = Shop::open().await;
    shop.t.order("ORD-1").await;
    shop.t.cancel("ORD-1").await.unwrap();
    shop.t
        .sql(
            "INSERT INTO order_feed (order_id, owner, kind, status, reason, at)
                SELECT order_id, 'other', kind, status, reason, at FROM order_feed",
        )
        .await;
    let id = shop.create("/shop", &["order.cancelled"]).await.text("id").to_owned();
    shop.replay(&id, "0-0").await;
    shop.run_replays().await;
    assert_eq!(shop.told("/shop"), ["order.cancelled ORD-1"]);
}

#[tokio::test]
async fn replay_continues_after_a_crash_between_steps() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &["order.held"]).await.text("id").to_owned();
    shop.insert_steps(450).await;
    shop.replay(&id, "0-0").await;
    shop.t.advance(secs(SETTLE)).await;
    run_replays(&shop.t.app.orders).await.unwrap();
    let sent = "SELECT count(*) FROM outbox WHERE kind = 'order.held'";
    assert_eq!(shop.t.count(sent).await, 199, "one page, which includes the creation");
    // The process dies before it enqueues the messages, and Redis loses its data.
    let _: String = shop.t.redis(&["FLUSHALL"]).await;
    shop.t.advance(secs(10)).await;
    reconciler::reconcile_once(&shop.t.app.maintenance).await.unwrap();
    shop.t.run_due().await;
    shop.run_replays().await;
    assert_eq!(shop.t.count(sent).await, 450);
    let received = shop.receiver.received();
    let counts = counts(&received);
    assert_eq!((counts.len(), received.len()), (450, 450), "each step once");
}

#[tokio::test]
async fn second_replay_continues_from_the_earlier_cursor() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &["order.created"]).await.text("id").to_owned();
    shop.t.order("ORD-1").await;
    let first = shop.cursor().await;
    shop.t.order("ORD-2").await;
    let second = shop.cursor().await;
    shop.t.order("ORD-3").await;
    shop.t.run_due().await;
    for after in [&second, &first, &second] {
        shop.replay(&id, after).await;
    }
    assert_eq!(shop.t.count("SELECT count(*) FROM webhook_replays").await, 1);
    shop.run_replays().await;
    let again = ["ORD-1", "ORD-2", "ORD-2", "ORD-3", "ORD-3"].map(|order| format!("order.created {order}"));
    assert_eq!(shop.told("/shop"), again);
}

#[tokio::test]
async fn later_replay_sends_the_events_once_more() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &["order.created"]).await.text("id").to_owned();
    shop.t.order("ORD-1").await;
    shop.t.run_due().await;
    for times in [2, 3] {
        shop.replay(&id, "0-0").await;
        shop.run_replays().await;
        let received = shop.receiver.received();
        assert_eq!(counts(&received).into_values().collect::<Vec<_>>(), [times], "under the same id");
    }
}

/// ORD-1 was sent when it was created, and ORD-2 was created during a pause.
#[tokio::test]
async fn messages_of_replays_leave_after_three_days() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &["order.created"]).await.text("id").to_owned();
    shop.t.order("ORD-1").await;
    shop.t.run_due().await;
    shop.post(&id, "pause", json!({})).await;
    shop.t.order("ORD-2").await;
    shop.post(&id, "resume", json!({})).await;
    for times in [2, 3, 4] {
        shop.replay(&id, "0-0").await;
        shop.run_replays().await;
        // The receiver can drop what it has, although the messages of earlier replays are gone.
        let received = shop.receiver.received();
        let mut arrivals: Vec<_> = counts(&received).into_values().collect();
        arrivals.sort_unstable();
        assert_eq!(arrivals, [times - 1, times]);
        shop.t.advance(secs(3 * 24 * 3600 + 1)).await;
        cleanup::run(&shop.t.app.maintenance, CleanupMode::Remove).await.unwrap();
        let kept = "SELECT order_id FROM outbox WHERE kind = 'order.created'";
        assert_eq!(shop.t.texts(kept).await, ["ORD-1"]);
    }
}

/// The other process has read the endpoints just before the resumption, so it sends nothing.
#[tokio::test]
async fn replay_sends_steps_of_a_late_process() {
    let shop = Shop::open().await;
    shop.t.order("ORD-1").await;
    let endpoint = shop.create("/shop", &["order.cancelled"]).await.text("id").to_owned();
    let paused_after = shop.post(&endpoint, "pause", json!({})).await.text("paused_after").to_owned();
    let other = shop.t.reconfigured(|_| {});
    other.notify.endpoints.reload_if_changed(&other.core).await.unwrap();
    shop.post(&endpoint, "resume", json!({})).await;
    shop.replay(&endpoint, &paused_after).await;
    update_order(&other.orders, &id("ORD-1"), |s| actions::cancel_order(s, &by("operator:test"), None)).await.unwrap();
    assert_eq!(shop.t.count("SELECT count(*) FROM outbox WHERE kind = 'order.cancelled'").await, 0);
    shop.run_replays().await;
    assert_eq!(shop.told("/shop"), ["order.cancelled ORD-1"]);
}

#[tokio::test]
async fn replay_waits_while_many_messages_are_pending() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &["order.held"]).await.text("id").to_owned();
    shop.insert_steps(1_500).await;
    shop.replay(&id, "0-0").await;
    shop.t.advance(secs(SETTLE)).await;
    while run_replays(&shop.t.app.orders).await.unwrap() {}
    let pending = shop.t.count("SELECT count(*) FROM outbox WHERE state = 'pending' AND kind = 'order.held'").await;
    assert!((1_000..1_200).contains(&pending), "{pending}");
    assert_eq!(shop.t.count("SELECT count(*) FROM webhook_replays").await, 1);
}

#[tokio::test]
async fn deletion_ends_a_replay() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &[]).await.text("id").to_owned();
    shop.t.order("ORD-1").await;
    shop.replay(&id, "0-0").await;
    assert_eq!(shop.delete(&id).await.status, 204);
    shop.t.advance(secs(60)).await;
    assert!(!run_replays(&shop.t.app.orders).await.unwrap());
    shop.t.run_due().await;
    assert_eq!(shop.receiver.received(), []);
}

#[tokio::test]
async fn cursor_of_another_database_is_refused() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &[]).await.text("id").to_owned();
    let refused = shop.post(&id, "replay", json!({ "after": "9000000000000000000-0" })).await;
    assert_eq!(refused.error(), (422, "INVALID"));
    assert_eq!(refused.body["errors"][0]["pointer"], "#/after", "{refused:?}");
}
