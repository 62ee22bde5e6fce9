//! A process whose subscriptions are old, because it was stopped or cut off from Postgres.

use futures_util::future::join_all;
use serde_json::json;

use super::Shop;
use app::App;
use model::decide::actions;
use orders::change::ChangeError;
use test_support::{Api, by, eventually, id, ride, secs, update_order};

impl Shop {
    /// Returns another process that knows an endpoint for cancellations and creations as paused. Meanwhile the endpoint was
    /// resumed, four seconds ago.
    async fn stale_process(&self) -> App {
        let endpoint = self.create("/shop", &["order.created", "order.cancelled"]).await.text("id").to_owned();
        assert_eq!(self.post(&endpoint, "pause", json!({})).await.status, 200);
        let other = self.t.reconfigured(|_| {});
        assert!(other.notify.endpoints.reload_if_changed(&other.core).await.unwrap());
        assert_eq!(self.post(&endpoint, "resume", json!({})).await.status, 200);
        self.t.advance(secs(4)).await;
        other
    }
}

async fn cancel(app: &App, order: &str) -> Result<(), ChangeError> {
    update_order(&app.orders, &id(order), |s| actions::cancel_order(s, &by("operator:test"), None)).await.map(drop)
}

#[tokio::test]
async fn stale_process_reads_endpoints_before_a_change() {
    let shop = Shop::open().await;
    shop.t.order("ORD-1").await;
    let other = shop.stale_process().await;
    cancel(&other, "ORD-1").await.unwrap();
    shop.t.run_due().await;
    assert_eq!(shop.told("/shop"), ["order.cancelled ORD-1"]);
}

#[tokio::test]
async fn stale_process_reads_endpoints_before_a_creation() {
    let shop = Shop::open().await;
    let other = Api::start(&shop.stale_process().await).await;
    let mut order = ride();
    order["order_id"] = json!("ORD-1");
    assert_eq!(other.post("/api/v1/orders", &shop.key, order).await.status, 201);
    shop.t.run_due().await;
    assert_eq!(shop.told("/shop"), ["order.created ORD-1"]);
}

#[tokio::test]
async fn change_fails_while_endpoints_cannot_be_read() {
    let shop = Shop::open().await;
    shop.t.order("ORD-1").await;
    let other = shop.stale_process().await;
    shop.t.sql("ALTER TABLE webhook_revision RENAME TO hidden").await;
    assert!(matches!(cancel(&other, "ORD-1").await, Err(ChangeError::Database(_))));
    shop.t.sql("ALTER TABLE hidden RENAME TO webhook_revision").await;
    assert_eq!(shop.t.count("SELECT count(*) FROM orders WHERE closed_at IS NULL").await, 1, "nothing was written");
    cancel(&other, "ORD-1").await.unwrap();
    shop.t.run_due().await;
    assert_eq!(shop.told("/shop"), ["order.cancelled ORD-1"]);
}

#[tokio::test]
async fn waiting_writes_share_one_failed_read() {
    let shop = Shop::open().await;
    let other = shop.stale_process().await;
    shop.t
        .sql(
            "CREATE SEQUENCE reads;
             CREATE FUNCTION fail_read() RETURNS bigint LANGUAGE plpgsql AS
                 $$ BEGIN PERFORM pg_advisory_xact_lock(7); RAISE EXCEPTION 'read %', nextval('reads'); END $$;
             ALTER TABLE webhook_revision RENAME TO hidden;
             CREATE VIEW webhook_revision AS SELECT fail_read() AS number",
        )
        .await;
    // The first read does not end before all ten calls wait.
    let mut holder = shop.t.app.core.db.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(7)").execute(&mut *holder).await.unwrap();
    let calls = join_all((0..10).map(|_| other.notify.endpoints.ensure_fresh(&other.core)));
    let release = async {
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted";
        eventually("the first read waits", async || shop.t.count(waits).await == 1).await;
        holder.rollback().await.unwrap();
    };
    let (results, ()) = tokio::join!(calls, release);
    assert!(results.iter().all(Result::is_err));
    // The first read began before the other nine calls, so these do not use its result. The second read serves all nine.
    assert_eq!(shop.t.count("SELECT last_value FROM reads").await, 2);
}
