//! Real processes offer an order to a driver who comes online.

use serde_json::json;

use crate::support::{Fleet, hire, secs, send_until_answered};
use accounts::{api_keys::AccountRole, key_admin};
use model::ids::DriverId;
use orders::fleet::{
    driver_index,
    drivers::{self},
};

#[tokio::test]
async fn driver_coming_online_is_asked_before_next_search() {
    let fleet = Fleet::with("2h", "[service_types.RIDE]\nretry = [\"1h\"]\n").await;
    let _worker = fleet.running_worker("w1").await;
    let (_api, base) = fleet.api().await;
    let app = &fleet.app;
    hire(app, 1).await;
    let place = drivers::set_available(&app.core.db, &"D0".into(), false).await.unwrap().unwrap();
    driver_index::upsert_driver(&app.core, &place).await;
    sqlx::query("SELECT dispatchq_create_order('ORD-1', 'RIDE', -6.2, 106.8)").execute(&app.core.db).await.unwrap();
    fleet.reach(1, "SELECT count(*) FROM orders WHERE round = 2").await;
    let driver = DriverId::from("D0");
    let created = key_admin::create_permanent_key(&app.core.db, "app", AccountRole::Driver, Some(&driver)).await;
    let (_, key) = created.unwrap();
    let client = foundation::outbound::build_client(secs(10)).unwrap();
    let request = client.put(format!("{base}/api/v1/drivers/D0/availability")).bearer_auth(&key);
    let answer = send_until_answered(request.json(&json!({ "available": true }))).await;
    assert_eq!(answer.status().as_u16(), 200);
    fleet.reach(1, "SELECT count(*) FROM offers WHERE order_id = 'ORD-1' AND driver_id = 'D0'").await;
}
