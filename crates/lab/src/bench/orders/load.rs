//! The orders: one after the other at an even pace, half of them paid. Pure.

use serde_json::json;

use super::options::OrdersOptions;
use crate::testbed::{partner::SERVICE_TYPE, producer::ProducedOrder};

/// In turn.
const PAYMENTS: [&str; 4] = ["PAID", "UNPAID", "SETTLEMENT", "PENDING"];

pub(super) fn order_creations(options: &OrdersOptions) -> impl Iterator<Item = ProducedOrder> {
    let pause = options.creation_duration() / options.order_count().max(1);
    (0..options.order_count()).map(move |n| {
        let id = format!("taxi-{:06}", n + 1);
        let body = json!({
            "order_id": id,
            "service_type": SERVICE_TYPE,
            "pickup": { "latitude": -6.2088, "longitude": 106.8456 },
            "payment_status": PAYMENTS[n as usize % PAYMENTS.len()],
            "amount_minor": 4_500_000,
            "currency": "IDR",
        });
        ProducedOrder { id, at: pause * n, body }
    })
}
