//! Who may do what, who did it, and what is forgotten about people.

mod plain;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::TestApp;
use accounts::{api_keys::AccountRole, key_admin};
use model::ids::DriverId;

/// A request for a RIDE under this id.
fn ride(order: &str) -> Value {
    json!({
        "order_id": order, "service_type": "RIDE", "customer_id": "C-1",
        "pickup": { "latitude": -6.2088, "longitude": 106.8456 },
    })
}

/// Id and text of a new key.
async fn key(t: &TestApp, name: &str, role: AccountRole, driver: Option<&str>) -> (Uuid, String) {
    let (row, key) =
        key_admin::create_permanent_key(&t.app.core.db, name, role, driver.map(DriverId::from).as_ref()).await.unwrap();
    (row.id, key)
}
