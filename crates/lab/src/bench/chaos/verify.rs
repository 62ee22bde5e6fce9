//! Compares answers to clients, messages at receivers and leftovers of outages with the tables.

use std::collections::BTreeMap;

use foundation::core::Core;
use maintenance::capability::Maintenance;
use serde_json::{Value, json};
use sqlx::types::Json;

use super::claims::ClientClaims;
use crate::bench::receivers::{ALERTS, MessageReceivers, OFFERS};
use foundation::db::Pool;
use maintenance::{
    audit,
    proof::{slice, violations},
};
use model::messages::{PARTNER_REFUSES_KEY, STATUS_UPDATE_FAILED, TIMER_DEAD};
use queue::store::JobState;

/// Maximum lines of one kind, because a violated rule tends to be violated often.
const MOST: usize = 20;
/// Invariant of the history that depends on the speed of the machine.
const ENDED_IN_TIME: &str = "ended_within_lifetime";

const CLAIMS: &str = include_str!("verify.sql");

/// Returns a line for each difference.
pub(in crate::bench) async fn verify_claims(
    core: &Core,
    claims: &ClientClaims,
    receivers: &MessageReceivers,
) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    add_violations(&mut found, "wrong answer", claims.wrong.clone());
    let told = Json(claims_as_json(claims, receivers));
    let wrong: Vec<(String, String)> = sqlx::query_as(CLAIMS).bind(told).bind(ALERTS).fetch_all(&core.db).await?;
    let mut by_kind: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (what, line) in wrong {
        by_kind.entry(what).or_default().push(line);
    }
    for (what, lines) in by_kind {
        add_violations(&mut found, &what, lines);
    }
    for queue in jobs::queues::ALL {
        let dead = core.queue().list_jobs(queue, JobState::Dead, 0, MOST).await?;
        let lines = dead.into_iter().map(|job| format!("{}: {}", job.id, job.error.unwrap_or_default())).collect();
        add_violations(&mut found, "dead job", lines);
    }
    Ok(found)
}

fn claims_as_json(claims: &ClientClaims, receivers: &MessageReceivers) -> Value {
    let driver_actions =
        [("PICKED_UP", &claims.picked_up), ("COMPLETED", &claims.completed), ("DRIVER_CANCELLED", &claims.given_back)];
    let mut actions: Vec<Value> = (claims.cancelled.iter())
        .map(|order| json!({ "order": order, "driver": "", "reason": "CANCELLED_BY_USER" }))
        .collect();
    for (reason, by) in driver_actions {
        actions.extend(by.iter().map(|(order, driver)| json!({ "order": order, "driver": driver, "reason": reason })));
    }
    let created = claims.created.iter().map(|(key, order)| json!({ "key": key, "order": order }));
    let accepted = (claims.accepted.iter())
        .map(|(order, offer, driver)| json!({ "order": order, "offer": offer, "driver": driver }));
    json!({
        "created": created.collect::<Vec<_>>(),
        "accepted": accepted.collect::<Vec<_>>(),
        "actions": actions,
        "paid": claims.paid,
        "called_back": claims.called_back,
        "received": { OFFERS: receivers.received_ids(OFFERS), ALERTS: receivers.received_ids(ALERTS) },
        "outage_alerts": [TIMER_DEAD, STATUS_UPDATE_FAILED, PARTNER_REFUSES_KEY],
    })
}

fn add_violations(found: &mut Vec<String>, what: &str, lines: Vec<String>) {
    let more = lines.len().saturating_sub(MOST);
    found.extend(lines.into_iter().take(MOST).map(|line| format!("{what}: {line}")));
    if more > 0 {
        found.push(format!("{what}: and {more} more"));
    }
}

/// Returns the violated invariants of the history. The invariant about time is judged only if the machine is fast
/// enough.
pub(in crate::bench) async fn verify_history(
    maintenance: &Maintenance,
    judges_time: bool,
) -> anyhow::Result<Vec<String>> {
    let mut found = audit::check_history(maintenance).await?;
    found.extend(slice::fold_history(maintenance).await?);
    let found = found.iter().filter(|violation| judges_time || violation.invariant != ENDED_IN_TIME);
    let recorded = violations::list_violations(&maintenance.core.db).await?;
    let recorded = recorded.iter().filter(|violation| judges_time || violation.invariant != ENDED_IN_TIME);
    Ok(found.map(ToString::to_string).chain(recorded.map(|v| format!("recorded by the proof: {v}"))).collect())
}

/// Returns sessions that stay in a transaction while everything is at rest.
pub(in crate::bench) async fn idle_in_transaction(db: &Pool) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "-- idle in transaction
         SELECT 'a session has been ' || state || ' for ' || (clock_timestamp() - state_change) || ' after: ' || query
         FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'
           AND clock_timestamp() - state_change > interval '3 seconds'",
    )
    .fetch_all(db)
    .await
}

/// Returns some orders that did not end, each with its history.
pub(in crate::bench) async fn open_orders(db: &Pool) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "-- open orders with their history
         SELECT 'open: ' || o.id || ' ' || o.status || ' ' || coalesce(o.partner, 'own fleet') || ' '
                || coalesce(o.driver_id, 'no driver') || ': '
                || (SELECT string_agg(e.reason || ' by ' || e.actor || ' at ' || to_char(e.at, 'HH24:MI:SS.MS'), ', ' ORDER BY e.seq)
                    FROM order_events e WHERE e.order_id = o.id)
         FROM orders o WHERE o.closed_at IS NULL AND NOT o.held_for_review ORDER BY o.id LIMIT 10",
    )
    .fetch_all(db)
    .await
}

/// Counts delivered messages by kind.
pub(in crate::bench) async fn count_delivered_messages(db: &Pool) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "-- delivered messages by kind
         SELECT kind, count(*) FROM outbox WHERE state = 'delivered' GROUP BY kind",
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().collect())
}
