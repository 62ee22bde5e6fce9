//! Answers to staff: permissions, lists, decisions on orders, desk claims, and operation of the system.

mod access;
mod actions;
mod lists;
mod proof;
mod running;
mod takes;
mod upkeep;
mod workers;

use serde_json::{Value, json};

use test_support::{Answer, TestApp};

const ORDERS: &str = "/api/v1/orders";

fn because(reason: &str) -> Value {
    json!({ "reason": reason })
}

/// Returns the order ids of an answer in their order.
#[track_caller]
fn order_ids(answer: &Answer) -> Vec<&str> {
    let orders = answer.body["orders"].as_array().unwrap_or_else(|| panic!("no orders: {answer:?}"));
    orders.iter().map(|order| order["order_id"].as_str().unwrap()).collect()
}

/// Returns `action subject actor reason` of each staff action in order.
async fn recorded(t: &TestApp) -> Vec<String> {
    t.texts("SELECT concat_ws(' ', action, subject, actor, reason) FROM audit_staff_actions ORDER BY id").await
}
