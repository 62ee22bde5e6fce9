//! What producers, drivers and operators are answered.

mod access;
mod answers;
mod audit;
mod bindings;
mod command_line;
mod errors;
mod first_use;
mod idempotency;
mod inputs;
mod openapi;
mod outages;
mod staff;
mod stream;

use serde_json::{Value, json};

/// A request for a RIDE.
fn ride() -> Value {
    json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2088, "longitude": 106.8456 } })
}
