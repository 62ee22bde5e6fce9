//! Area limits also apply to partners' orders.

use test_support::{
    admission::full_for,
    partnership::{Partnership, SERVICE, patient},
    secs,
};

#[tokio::test]
async fn partner_attempts_slow_down_in_full_area() {
    let p = Partnership::start(patient()).await;
    full_for(&p, SERVICE, 1).await;
    p.assigned("ORD-1", "UNPAID").await;
    let pause = async || {
        let s = p.snapshot("ORD-1").await;
        (s.order.next_attempt_at.unwrap() - s.now).num_seconds()
    };
    p.run_for(secs(120)).await;
    assert_eq!(pause().await, 60, "the attempt's time was over");
    p.run_for(secs(60)).await;
    let no_driver = p.callback("ORD-1", 2, "no_driver", serde_json::json!({})).await;
    assert_eq!(p.send(&no_driver).await.status, 200);
    assert_eq!(pause().await, 60, "the partner found no driver");
    p.assert_sound().await;
}
