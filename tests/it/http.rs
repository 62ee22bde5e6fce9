//! What producers and drivers are answered.

mod access;
mod answers;
mod idempotency;
mod openapi;
mod outages;

use serde_json::{Value, json};

/// A request for a RIDE.
fn ride() -> Value {
    json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2088, "longitude": 106.8456 } })
}
