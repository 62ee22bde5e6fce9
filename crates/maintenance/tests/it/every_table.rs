//! Cleanup removes only expired rows from each table. Tables that do not grow are listed with the reason.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use maintenance::periodic::cleanup::{self, CleanupMode};
use test_support::{TestApp, rows::FILL};

/// Returns rows aged 20 to 1,200 days, from the data set used for the plans of the sweeps.
fn aged_rows() -> String {
    let (many, often) = ("generate_series(1, 20000)", "interval '30 minutes'");
    assert_eq!([FILL.matches(many).count(), FILL.matches(often).count()], [1, 1], "the rows are made otherwise by now");
    FILL.replace(many, "generate_series(1, 60)").replace(often, "interval '20 days'")
}

/// Rows that the data set lacks or does not keep.
const MORE: &str = "
    INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
        SELECT '__endpoint__', 'endpoint.test', 'endpoint:x', at::text, '{}', 'delivered', at, at, at
        FROM dispatchq_now() n, unnest(ARRAY[n - interval '31 days', n - interval '29 days']) AS at;
    INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
        SELECT 'O000001', 'order.created', 'endpoint:x', 'replay:1:' || at, '{}', 'delivered', at, at, at
        FROM dispatchq_now() n, unnest(ARRAY[n - interval '4 days', n - interval '2 days']) AS at;
    INSERT INTO outbox_replays (outbox_id, at, actor) SELECT id, created_at, 'x' FROM outbox;
    INSERT INTO idempotency_keys (holder_id, key, request_hash, work_id, created_at)
        VALUES (gen_random_uuid(), 'young', '', gen_random_uuid(), dispatchq_now() - interval '23 hours');
    INSERT INTO desk_takes (order_id, taken_by, ends_at) VALUES ('young', 'x', dispatchq_now() + interval '1 minute')";

const ORDERS: &str = "closed_at < dispatchq_now() - interval '365 days' AND payment_status = 'UNPAID'";
const OF_ORDER: &str = "order_id IN (SELECT id FROM orders WHERE {orders})";
const BINDINGS: &str = "deleted_at < dispatchq_now() - interval '90 days'";
const OF_BINDING: &str = "binding_id IN (SELECT id FROM bindings WHERE {bindings})";
const MESSAGES: &str = "{of order} OR created_at < dispatchq_now() - interval '30 days' AND (kind IN ('OFFER', 'endpoint.test') OR binding_id IS NOT NULL)
    OR created_at < dispatchq_now() - interval '3 days' AND starts_with(dedupe_key, 'replay:')";

/// Tables with the rows that cleanup removes. The days are those of `[retention]`.
const LEAVING: [(&str, &str); 44] = [
    ("admission_audit", "at < dispatchq_now() - interval '400 days'"),
    ("admission_counts", "hour < dispatchq_now() - interval '30 days'"),
    ("alerts", "{of order} OR binding_id IS NOT NULL AND raised_at < dispatchq_now() - interval '30 days'"),
    ("api_keys", "oidc_subject IS NOT NULL AND created_at < dispatchq_now() - interval '30 days'"),
    ("binding_events", "at < dispatchq_now() - interval '400 days'"),
    ("binding_watermarks", "{of binding}"),
    ("bindings", "{bindings}"),
    ("bookings", "{of order}"),
    ("console_sessions", "created_at < dispatchq_now() - interval '30 days'"),
    ("dead_letters", "resolved_at < dispatchq_now() - interval '30 days'"),
    ("desk_takes", "ends_at < dispatchq_now()"),
    (
        "driver_push_subscriptions",
        "session_id IN (SELECT id FROM driver_sessions WHERE expires_at < dispatchq_now() - interval '30 days')",
    ),
    ("driver_sessions", "expires_at < dispatchq_now() - interval '30 days'"),
    ("driver_sign_in_links", "expires_at < dispatchq_now() - interval '30 days'"),
    ("erasures", "erased_at < dispatchq_now() - interval '400 days'"),
    ("glance_snapshots", "at < dispatchq_now() - interval '30 days'"),
    ("idempotency_keys", "created_at < dispatchq_now() - interval '24 hours'"),
    ("inbox", "{of order} OR state = 'unmatched' AND received_at < dispatchq_now() - interval '30 days'"),
    ("offers", "{of order}"),
    ("order_details", "{of order}"),
    ("order_events_kept", "{of order}"),
    ("order_feed", "at < dispatchq_now() - interval '400 days'"),
    ("orders", "{orders}"),
    ("outbox", "{messages}"),
    ("outbox_attempts", "outbox_id IN (SELECT id FROM outbox WHERE {messages})"),
    ("outbox_replays", "outbox_id IN (SELECT id FROM outbox WHERE {messages})"),
    ("payment_events", "{of order}"),
    (
        "plan_items",
        "plan_id IN (SELECT id FROM plans WHERE state <> 'RUNNING' AND created_at < dispatchq_now() - interval '30 days')",
    ),
    ("plans", "state <> 'RUNNING' AND created_at < dispatchq_now() - interval '30 days'"),
    ("proof_violations", "seen_at < dispatchq_now() - interval '30 days'"),
    ("queue_snapshots", "at < dispatchq_now() - interval '30 days'"),
    ("rankings", "at < dispatchq_now() - interval '30 days'"),
    ("reconcile_log", "at < dispatchq_now() - interval '30 days'"),
    ("refunds", "{of order}"),
    ("schedule_runs", "slot < dispatchq_now() - interval '30 days'"),
    ("shadow_refusals", "at < dispatchq_now() - interval '30 days'"),
    ("staff_actions", "at < dispatchq_now() - interval '400 days'"),
    ("staff_requests", "at < dispatchq_now() - interval '400 days'"),
    ("supply_counts", "minute < dispatchq_now() - interval '30 days'"),
    ("supply_minutes", "minute < dispatchq_now() - interval '30 days'"),
    // The latest rows of a binding that is not deleted are kept.
    ("transaction_snapshots", "{of binding}"),
    ("transactions", "{of binding}"),
    ("waiting_snapshots", "at < dispatchq_now() - interval '30 days'"),
    ("worker_drains", "alive_at < dispatchq_now() - interval '30 days'"),
];

/// Tables that do not grow with orders, requests or time.
const STAYING: [(&str, &str); 29] = [
    ("_sqlx_migrations", "a row for each migration"),
    ("admission_flag", "one row"),
    ("admission_revision", "one row"),
    ("area_grids", "at most nine rows"),
    ("area_limits", "as many as operators set; they go with their area"),
    ("area_overrides", "one for each area"),
    ("area_parts", "parts of areas; they go with them"),
    ("areas", "as many as operators import"),
    ("binding_limits", "one row"),
    ("dead_letter_mirror", "one for each queue"),
    ("drivers", "until an operator removes them"),
    ("key_revision", "one row"),
    ("order_events", "whole days are dropped: `days`"),
    ("partner_alerts", "one for each partner"),
    ("partner_settings", "one for each partner"),
    ("paused_queues", "one for each queue"),
    ("proof_counts", "one for each invariant"),
    ("proof_place", "one row"),
    ("provider_servers", "as many as operators make"),
    ("saved_filters", "at most 20 for each person"),
    ("service_types", "one for each of the configuration"),
    ("shard_generations", "one for each time an operator changes their number"),
    ("sql_producers", "as many as the owner of the schema allows"),
    ("tracking_key", "one row"),
    ("uncounted_orders", "a worker empties it within half a second"),
    ("users", "until an admin removes them"),
    ("webhook_endpoints", "at most ten for each producer"),
    ("webhook_replays", "one for each endpoint"),
    ("webhook_revision", "one row"),
];

fn condition(template: &str) -> String {
    let named = [
        ("{messages}", MESSAGES),
        ("{of order}", OF_ORDER),
        ("{orders}", ORDERS),
        ("{of binding}", OF_BINDING),
        ("{bindings}", BINDINGS),
    ];
    named.iter().fold(template.to_owned(), |text, (name, meaning)| text.replace(name, &format!("({meaning})")))
}

async fn count(t: &TestApp, table: &str, condition: &str) -> i64 {
    t.count(&format!("SELECT count(*) FROM {table} WHERE {condition}")).await
}

// Fault F5
#[tokio::test]
async fn every_table_expires_rows_or_stays_small() {
    let t = TestApp::start().await;
    let mut db = PgConnection::connect(&t.postgres.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(aged_rows())).execute(&mut db).await.unwrap();
    t.sql(MORE).await;
    let known: BTreeSet<_> = LEAVING.into_iter().chain(STAYING).map(|(table, _)| table.to_owned()).collect();
    let tables = t
        .texts(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE c.relkind IN ('r', 'p') AND n.nspname = 'public' AND NOT c.relispartition ORDER BY 1",
        )
        .await;
    assert_eq!(BTreeSet::from_iter(tables), known, "say here what becomes of its rows");

    let mut staying = Vec::new();
    for (table, old) in LEAVING {
        let (old, all) = (count(&t, table, &condition(old)).await, count(&t, table, "true").await);
        assert!(0 < old && old < all, "{table}: {old} of {all} have served their time");
        staying.push((table, all - old));
    }
    let report = cleanup::run_all(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!(report.failed, Vec::<String>::new());
    for ((table, old), (_, expected)) in LEAVING.into_iter().zip(staying) {
        let (old, all) = (count(&t, table, &condition(old)).await, count(&t, table, "true").await);
        assert_eq!((old, all), (0, expected), "{table}");
    }
}
