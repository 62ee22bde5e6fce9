//! Changes that share a commit, and a process that dies while it handles several of them. Before the commit none of
//! them is stored, afterwards all are. In both cases repeated requests and jobs find every change made once.

use serde_json::json;
use tokio::task::JoinSet;

use super::orders;
use crate::support::{Fleet, by, eventually, id, millis, secs};
use accounts::{api_keys::AccountRole, key_admin};
use foundation::outbound;
use maintenance::audit;
use orders::create;

/// Number of concurrent changes, so that several share a commit.
const AT_ONCE: usize = 20;

/// Creates unpaid orders. One statement writes their cancels.
async fn unpaid_orders(fleet: &Fleet, ids: &[String]) {
    let new = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } });
    let new = serde_json::from_value(new).unwrap();
    for order in ids {
        create::create_order(&fleet.app.orders, id(order), &new, &by("producer:test")).await.unwrap();
    }
}

/// Cancels all these orders concurrently. Returns those without an answer.
async fn cancel_all(base: &str, key: &str, orders: &[String]) -> Vec<String> {
    let client = outbound::build_client(secs(30)).unwrap();
    let mut cancels = JoinSet::new();
    for order in orders.iter().cloned() {
        let request = client.post(format!("{base}/api/v1/orders/{order}/cancel")).bearer_auth(key).json(&json!({}));
        cancels.spawn(async move {
            loop {
                match request.try_clone().unwrap().send().await {
                    Ok(answer) if answer.status() == 503 => tokio::time::sleep(millis(100)).await,
                    Ok(answer) => {
                        assert_eq!(answer.status(), 200);
                        return None;
                    }
                    Err(_) => return Some(order),
                }
            }
        });
    }
    cancels.join_all().await.into_iter().flatten().collect()
}

fn quoted(orders: &[String]) -> String {
    orders.iter().map(|order| format!("'{order}'")).collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn cancels_of_a_lost_batch_happen_once() {
    let fleet = Fleet::start().await;
    let (_, key) =
        key_admin::create_permanent_key(&fleet.app.core.db, "test", AccountRole::Producer, None).await.unwrap();
    let (mut all, mut unanswered) = (Vec::<String>::new(), Vec::new());
    for (point, is_committed) in [("batch.commits", false), ("batch.committed", true)] {
        let (mut api, base) = fleet.api_named(point, &[("CRASH_AT", point)]).await;
        let lost = loop {
            let round: Vec<String> = (0..AT_ONCE).map(|n| format!("ORD-{}", all.len() + n)).collect();
            unpaid_orders(&fleet, &round).await;
            all.extend_from_slice(&round);
            let lost = cancel_all(&base, &key, &round).await;
            if !lost.is_empty() {
                break lost;
            }
        };
        assert!(!api.ended().await.success());
        assert!(api.log().contains(&format!("CRASH_AT={point}")), "{}", api.log());
        let state = if is_committed { "CANCELLED_BY_USER" } else { "DISPATCHING" };
        let of_batch = format!("SELECT count(*) FROM orders WHERE status = '{state}' AND id IN ({})", quoted(&lost));
        assert!(fleet.count(&of_batch).await >= 2, "{point}: several were in hand, of {lost:?}");
        unanswered.push(lost);
    }

    let (_api, base) = fleet.api().await;
    assert_eq!(cancel_all(&base, &key, &unanswered.concat()).await, Vec::<String>::new());
    let orders = i64::try_from(all.len()).unwrap();
    let cancelled_once = "SELECT count(*) FROM orders o WHERE status = 'CANCELLED_BY_USER' AND version = 1
                          AND 1 = (SELECT count(*) FROM order_events e WHERE e.order_id = o.id AND e.reason = 'CANCELLED_BY_USER')";
    assert_eq!(fleet.count(cancelled_once).await, orders);
    // Timers that the dead process left behind change nothing.
    let _worker = fleet.worker("survivor");
    eventually("no timer is due", || async {
        let queues = fleet.app.core.store.queue_stats(&jobs::queues::ALL).await.unwrap();
        fleet.app.core.store.epoch().await.unwrap().is_some()
            && queues.iter().all(|queue| queue.due + queue.leased == 0)
    })
    .await;
    assert_eq!(fleet.count("SELECT count(*) FROM order_events").await, 2 * orders);
    assert_eq!(audit::check_history(&fleet.app.maintenance).await.unwrap(), []);
}

#[tokio::test]
async fn orders_of_a_lost_batch_end_once() {
    let fleet = Fleet::with_lifetime("15s").await;
    // No driver is near, so each search ends without an offer, and all of them share statements.
    orders(&fleet, "ORD", 60).await;
    for point in ["batch.commits", "batch.committed"] {
        loop {
            let mut doomed = fleet.worker_with(point, &[("CRASH_AT", point)]);
            assert!(!doomed.ended().await.success());
            // On a slow machine the worker exits before the crash point. A supervisor would restart it.
            if !doomed.log().contains("did not answer 'ping'") {
                assert!(doomed.log().contains(&format!("CRASH_AT={point}")), "{}", doomed.log());
                break;
            }
        }
    }
    let _survivor = fleet.worker("survivor");
    fleet.at_rest().await;
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE closed_at IS NOT NULL").await, 60);
    let ended_once = "SELECT count(*) FROM orders o WHERE 1 = (SELECT count(*) FROM order_events e
                      WHERE e.order_id = o.id AND e.reason = 'LIFETIME_TIMEOUT')";
    assert_eq!(fleet.count(ended_once).await, 60);
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE held_for_review").await, 0);
    assert_eq!(audit::check_history(&fleet.app.maintenance).await.unwrap(), []);
}
