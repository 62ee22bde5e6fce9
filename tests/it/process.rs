//! Real processes of the binary: killed, frozen, drained, disconnected from their servers, and used incorrectly.

mod admission;
mod bad_input;
mod batches;
mod bench;
mod bench_bindings;
mod bench_chaos;
mod bench_cluster;
mod bench_orders;
mod bench_upgrade;
mod bindings;
mod clock;
mod console;
mod dev;
mod dev_clock;
mod drain;
mod faults;
mod first_tries;
mod healing;
mod health;
mod matching;
mod outages;
mod partner_sim;
mod pooler;
mod postgres;
mod proof;
mod redis;
mod replay_admission;
mod replays;
mod run;
mod scale;
mod shards;
mod systemd;
mod traces;
mod work;

use serde_json::json;

use crate::support::{Fleet, by, id};
use maintenance::audit;
use orders::create;

/// Creates orders directly in the database, and in Redis if it is available.
async fn orders(fleet: &Fleet, prefix: &str, count: usize) {
    for n in 0..count {
        let payment = ["UNPAID", "PAID", "PENDING", "SETTLEMENT"][n % 4];
        let new = json!({ "service_type": "RIDE", "payment_status": payment,
                          "pickup": { "latitude": -6.2, "longitude": 106.8 } });
        let new = serde_json::from_value(new).unwrap();
        create::create_order(&fleet.app.orders, id(&format!("{prefix}-{n}")), &new, &by("producer:test"))
            .await
            .unwrap();
    }
}

/// Asserts that no invariant is broken, no job is dead, and some orders completed and none is under review.
async fn assert_all_well(fleet: &Fleet) {
    assert_eq!(audit::check_history(&fleet.app.maintenance).await.unwrap(), []);
    let dead: u64 = fleet.app.core.queue().queue_stats(&jobs::queues::ALL).await.unwrap().iter().map(|s| s.dead).sum();
    assert_eq!(dead, 0);
    assert!(fleet.count("SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await > 0);
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE held_for_review").await, 0);
}
