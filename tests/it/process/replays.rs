//! Workers that die while they send events to a webhook endpoint again.

use foundation::staff_actions::ActionAuthor;
use notify::endpoints::{
    EndpointId, EndpointOwner,
    changes::{self, NewEndpoint},
};
use test_support::Receiver;

use super::orders;
use crate::support::{Fleet, by};
use ::orders::feed::{FeedCursor, replay};

const STEPS: i64 = 450;
const SENT: &str = "SELECT count(*) FROM outbox WHERE kind = 'order.held' AND state = 'delivered'";

#[tokio::test]
async fn replay_survives_a_crash_around_a_step() {
    for point in ["replay.inserted:2", "replay.committed:1"] {
        let receiver = Receiver::start().await;
        let fleet = Fleet::with("1h", "").await;
        orders(&fleet, "ORD", 1).await;
        let (db, actor) = (&fleet.app.core.db, by("producer:test"));
        let new = NewEndpoint { producer: "test", url: &receiver.url("/hook"), events: vec!["order.held".to_owned()] };
        let (endpoint, _) = changes::create_endpoint(db, &new, ActionAuthor::from(&actor)).await.unwrap();
        sqlx::query(
            "INSERT INTO order_feed (order_id, owner, kind, status, reason, at)
             SELECT 'ORD-0', 'test', 'order.held', 'DISPATCHING', 'HELD', dispatchq_now() FROM generate_series(1, $1)",
        )
        .bind(STEPS)
        .execute(db)
        .await
        .unwrap();
        let id = EndpointId(endpoint.id.parse().unwrap());
        let by = ActionAuthor::from(&actor);
        replay::request_replay(db, id, EndpointOwner::All, FeedCursor::default(), by).await.unwrap();
        let is_local = ("DISPATCHQ_HTTP__LOCAL_WEBHOOKS", "true");
        sqlx::query("UPDATE webhook_replays SET next_step_at = dispatchq_now()").execute(db).await.unwrap();
        let mut doomed = fleet.worker_with("doomed", &[is_local, ("CRASH_AT", point)]);
        assert!(!doomed.ended().await.success());
        assert!(doomed.log().contains(&format!("CRASH_AT={point}")), "{}", doomed.log());
        let _survivor = fleet.worker_with("survivor", &[is_local]);
        fleet.reach(STEPS, SENT).await;
        assert_eq!(fleet.count("SELECT count(*) FROM outbox WHERE kind = 'order.held'").await, STEPS, "{point}");
        assert_eq!(fleet.count("SELECT count(*) FROM webhook_replays").await, 0, "{point}");
    }
}
