//! Examples of answers to operators and admins, for the OpenAPI document.

use serde_json::{Value, json};

pub(super) fn example_queues() -> Value {
    json!({
        "queues": [{
            "queue": "dispatch-queue", "due": 0, "scheduled": 12, "leased": 3, "dead": 1, "paused": false,
            "oldest_due_ms": null, "next_minute": 12, "suspects": 0, "parked": 0,
        }],
        "lateness": { "count": 4120, "p50_ms": 2, "p99_ms": 9, "max_ms": 31 },
    })
}

pub(super) fn example_workers() -> Value {
    json!({
        "workers": [{
            "boot": "5f1c0e7a9b3d2468", "replica": "worker-1", "seen_ms_ago": 840, "host": "node-3", "pid": 4711,
            "version": "0.1.0", "queues": ["dispatch-queue"], "in_hand": 3, "drain_ms": 1_767_947_400_000_u64,
            "runs": { "dispatch-queue": { "mean_us": 4_200, "busy_milli": 310, "per_ks": 73_000 } },
            "resident_bytes": 52_428_800, "cpu_percent": 12, "started_ms": 1_767_945_600_000_u64, "state": "draining",
            "drain": {
                "drained_by": "operator:anna", "drained_at": "2026-01-09T08:30:00Z", "reason": "the host is being replaced",
            },
        }],
    })
}

pub(super) fn example_drained_worker(state: &str) -> Value {
    json!({ "boot": "5f1c0e7a9b3d2468", "state": state, "changed": true, "unserved_queues": [] })
}

pub(super) fn example_jobs() -> Value {
    json!({
        "jobs": [{ "id": "timeout:ORD-1:1", "at_ms": 1_767_945_720_000_u64, "failed": 0, "lost": 0, "error": null }],
        "next_offset": null,
    })
}

pub(super) fn example_job() -> Value {
    json!({
        "id": "timeout:ORD-1:1", "queue": "dispatch-timeout-queue", "state": "due", "at_ms": 1_767_945_720_000_u64,
        "leased_due_ms": null, "again_ms": null, "token": null, "failed": 0, "lost": 0, "envelope": null, "dead": null,
    })
}

fn example_dead_entry() -> Value {
    json!({
        "id": "dispatch:ORD-1:1", "queue": "dispatch-queue", "error": "timed out after 25s", "failed": 5, "lost": 0,
        "due_ms": 1_767_945_600_000_u64, "died_ms": 1_767_945_840_000_u64, "payload": null,
    })
}

pub(super) fn example_dead_jobs() -> Value {
    json!({ "jobs": [example_dead_entry()], "next_cursor": null })
}

pub(super) fn example_dead_job() -> Value {
    let mut job = example_dead_entry();
    job["earlier"] = json!([]);
    job["tries"] = json!([]);
    job["order"] = json!({
        "id": "ORD-1", "status": "DISPATCHING", "held_reason": null, "text": "DISPATCHING, attempt 1",
    });
    job["message"] = Value::Null;
    job["can_requeue"] = json!(true);
    job["note"] = Value::Null;
    job["refusal"] = Value::Null;
    job
}

fn example_message_row() -> Value {
    json!({
        "id": 1, "message_id": "01937c3e-8f00-7000-8000-000000000002", "order_id": "ORD-1", "kind": "OFFER", "channel": "app",
        "state": "delivered", "attempts": 1, "last_error": null, "next_attempt_at": "2026-01-09T08:00:00Z",
        "expires_at": "2026-01-09T08:02:00Z", "created_at": "2026-01-09T08:00:00Z", "delivered_at": "2026-01-09T08:00:01Z",
    })
}

pub(super) fn example_messages() -> Value {
    json!({ "messages": [example_message_row()], "next_cursor": null })
}

pub(super) fn example_message() -> Value {
    json!({
        "message": example_message_row(),
        "log": [{ "at": "2026-01-09T08:00:01Z", "what": "TRY", "error": null, "actor": null }],
    })
}

pub(super) fn example_replayed_message() -> Value {
    json!({ "message": example_message_row() })
}

pub(super) fn example_keys() -> Value {
    json!({
        "keys": [{
            "id": "01937c3e-8f00-7000-8000-000000000001", "name": "anna", "role": "dispatcher", "driver_id": null,
            "created_at": "2026-01-05T08:00:00Z", "last_used_at": "2026-01-09T08:00:00Z", "expires_at": null,
            "superseded_at": null, "revoked_at": null, "valid": true,
        }],
        "next_cursor": null,
    })
}

pub(super) fn example_user() -> Value {
    json!({ "id": "anna", "name": "Anna", "role": "dispatcher", "channel": "email", "email": "anna@example.com" })
}

pub(super) fn example_users() -> Value {
    json!({ "users": [example_user()] })
}

pub(super) fn example_sessions() -> Value {
    json!({
        "sessions": [{
            "id": "01937c3e-8f00-7000-8000-000000000001", "key_id": "01937c3e-8f00-7000-8000-000000000002", "name": "anna",
            "role": "dispatcher", "created_at": "2026-01-09T08:00:00Z", "last_seen_at": "2026-01-09T08:30:00Z",
            "address": "198.51.100.7",
        }],
    })
}

pub(super) fn example_audit() -> Value {
    json!({
        "entries": [{
            "at": "2026-01-09T08:30:00Z", "source": "order", "actor": "dispatcher:anna",
            "key_id": "01937c3e-8f00-7000-8000-000000000002", "action": "HELD_FOR_REVIEW", "subject": "ORD-1",
            "reason": "the customer calls back",
            "old": { "status": "DISPATCHING", "held_for_review": false },
            "new": { "status": "DISPATCHING", "held_for_review": true }, "address": "198.51.100.7", "request": "POST /api/v1/orders/{id}/hold",
        }],
        "next_cursor": null, "from": "2026-01-02T08:31:00Z", "to": "2026-01-09T08:31:00Z",
    })
}
