//! What clients were told, what receivers got and what outages may leave behind, against the tables. Each answer is a line
//! for each thing that differs.

use std::collections::{BTreeMap, HashSet};

use workers::store::JobState;

use super::{
    claims::ClientClaims,
    receivers::{ALERTS, MessageReceivers, OFFERS},
};
use dispatch::{
    app::App,
    audit,
    notifications::messages::{PARTNER_REFUSES_KEY, STATUS_UPDATE_FAILED, TIMER_DEAD},
};
use foundation::db::Pool;

/// Lines of one kind; a broken rule tends to be broken often.
const MOST: usize = 20;
/// The invariant of the history that is about the machine's time.
const ENDED_IN_TIME: &str = "ended_within_lifetime";

/// All of it.
pub(in crate::bench) async fn verify_claims(
    app: &App,
    claims: &ClientClaims,
    receivers: &MessageReceivers,
) -> anyhow::Result<Vec<String>> {
    let mut found = FoundViolations::default();
    found.add_violations("wrong answer", claims.wrong.clone());
    verify_orders_and_offers(&app.db, claims, &mut found).await?;
    verify_actions(&app.db, claims, &mut found).await?;
    verify_messages(&app.db, receivers, &mut found).await?;
    find_left_behind(app, &mut found).await?;
    Ok(found.0)
}

/// The invariants that the history breaks; the one about time only where the machine is fast enough to judge it.
pub(in crate::bench) async fn verify_history(app: &App, judges_time: bool) -> anyhow::Result<Vec<String>> {
    let found = audit::check_history(app).await?;
    let found = found.iter().filter(|violation| judges_time || violation.invariant != ENDED_IN_TIME);
    Ok(found.map(ToString::to_string).collect())
}

#[derive(Debug, Default)]
struct FoundViolations(Vec<String>);

impl FoundViolations {
    fn add_violations(&mut self, what: &str, lines: Vec<String>) {
        let more = lines.len().saturating_sub(MOST);
        self.0.extend(lines.into_iter().take(MOST).map(|line| format!("{what}: {line}")));
        if more > 0 {
            self.0.push(format!("{what}: and {more} more"));
        }
    }
}

async fn verify_orders_and_offers(
    db: &Pool,
    claims: &ClientClaims,
    found: &mut FoundViolations,
) -> Result<(), sqlx::Error> {
    let orders: Vec<&str> = claims.created.iter().map(|(_, order)| order.as_str()).collect();
    let missing = sqlx::query_scalar(
        "-- claimed orders that are missing
         SELECT c.id FROM unnest($1::text[]) AS c (id) WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = c.id)",
    )
    .bind(&orders)
    .fetch_all(db)
    .await?;
    found.add_violations("201 on create, and no such order", missing);
    let doubled = sqlx::query_scalar(
        "-- keys with two orders
         SELECT customer_id || ' has ' || count(*) || ' orders' FROM orders
         WHERE customer_id IS NOT NULL GROUP BY customer_id HAVING count(*) > 1",
    )
    .fetch_all(db)
    .await?;
    found.add_violations("one Idempotency-Key, two orders", doubled);
    let keys: Vec<&str> = claims.created.iter().map(|(key, _)| key.as_str()).collect();
    let others = sqlx::query_scalar(
        "-- keys answered with another's order
         SELECT c.key || ' was told ' || c.id FROM unnest($1::text[], $2::text[]) AS c (key, id)
         JOIN orders o ON o.id = c.id WHERE o.customer_id IS DISTINCT FROM c.key",
    )
    .bind(&keys)
    .bind(&orders)
    .fetch_all(db)
    .await?;
    found.add_violations("201 on create with another's order", others);
    let accepted: (Vec<&str>, Vec<uuid::Uuid>, Vec<&str>) = (
        claims.accepted.iter().map(|(order, _, _)| order.as_str()).collect(),
        claims.accepted.iter().map(|(_, offer, _)| *offer).collect(),
        claims.accepted.iter().map(|(_, _, driver)| driver.as_str()).collect(),
    );
    // One that was given back later is withdrawn.
    let not_theirs = sqlx::query_scalar(
        "-- claimed offers that were not accepted
         SELECT c.order_id || ' by ' || c.driver_id FROM unnest($1::text[], $2::uuid[], $3::text[])
                AS c (order_id, offer_id, driver_id)
         WHERE NOT EXISTS (SELECT 1 FROM offers f JOIN order_events e
                                  ON e.order_id = f.order_id AND e.attempt_no = f.attempt_no
                                     AND e.reason = 'OFFER_ACCEPTED' AND e.actor LIKE 'driver:' || c.driver_id || '%'
                           WHERE f.id = c.offer_id AND f.order_id = c.order_id AND f.driver_id = c.driver_id
                             AND f.state IN ('accepted', 'withdrawn'))",
    )
    .bind(&accepted.0)
    .bind(&accepted.1)
    .bind(&accepted.2)
    .fetch_all(db)
    .await?;
    found.add_violations("200 on accept, and the driver never had the order", not_theirs);
    Ok(())
}

async fn verify_actions(db: &Pool, claims: &ClientClaims, found: &mut FoundViolations) -> Result<(), sqlx::Error> {
    let cancelled: Vec<(String, String)> =
        claims.cancelled.iter().map(|order| (order.clone(), String::new())).collect();
    for (told, reason, by) in [
        ("cancel", "CANCELLED_BY_USER", &cancelled),
        ("pickup", "PICKED_UP", &claims.picked_up),
        ("complete", "COMPLETED", &claims.completed),
        ("driver-cancel", "DRIVER_CANCELLED", &claims.given_back),
    ] {
        let orders: Vec<&str> = by.iter().map(|(order, _)| order.as_str()).collect();
        let drivers: Vec<&str> = by.iter().map(|(_, driver)| driver.as_str()).collect();
        let missing = sqlx::query_scalar(
            "-- claimed actions that are missing
             SELECT c.order_id || ' ' || c.driver_id || ', which is ' || coalesce(o.status, 'missing')
             FROM unnest($1::text[], $2::text[]) AS c (order_id, driver_id) LEFT JOIN orders o ON o.id = c.order_id
             WHERE NOT EXISTS (SELECT 1 FROM order_events e WHERE e.order_id = c.order_id AND e.reason = $3
                                 AND (c.driver_id = '' OR e.actor LIKE 'driver:' || c.driver_id || '%'))",
        )
        .bind(&orders)
        .bind(&drivers)
        .bind(reason)
        .fetch_all(db)
        .await?;
        found.add_violations(&format!("200 on {told}, and no event says so"), missing);
    }
    let unpaid = sqlx::query_scalar(
        "-- claimed payments that are missing
         SELECT c.id || ' is ' || coalesce(o.payment_status, 'missing') FROM unnest($1::text[]) AS c (id)
         LEFT JOIN orders o ON o.id = c.id WHERE coalesce(o.payment_status, '') NOT IN ('PAID', 'SETTLEMENT')",
    )
    .bind(&claims.paid)
    .fetch_all(db)
    .await?;
    found.add_violations("200 on payment, and the order is not paid", unpaid);
    let unknown = sqlx::query_scalar(
        "-- claimed callbacks that are missing
         SELECT c.id FROM unnest($1::text[]) AS c (id) WHERE NOT EXISTS (SELECT 1 FROM inbox i WHERE i.event_id = c.id)",
    )
    .bind(&claims.called_back)
    .fetch_all(db)
    .await?;
    found.add_violations("200 on a callback, and it was not kept", unknown);
    Ok(())
}

async fn verify_messages(
    db: &Pool,
    receivers: &MessageReceivers,
    found: &mut FoundViolations,
) -> Result<(), sqlx::Error> {
    for channel in [OFFERS, ALERTS] {
        let received: HashSet<String> = receivers.received_ids(channel);
        let delivered: Vec<(String, String)> = sqlx::query_as(
            "-- delivered messages of a channel
             SELECT message_id::text, order_id || ' ' || kind FROM outbox WHERE channel = $1 AND state = 'delivered'",
        )
        .bind(channel)
        .fetch_all(db)
        .await?;
        let lost = delivered.into_iter().filter(|(id, _)| !received.contains(id)).map(|(_, what)| what).collect();
        found.add_violations(&format!("counts as delivered over {channel}, and did not arrive"), lost);
    }
    let silent = sqlx::query_scalar(
        "-- alerts without message
         SELECT a.order_id || ' ' || a.kind FROM alerts a
         WHERE NOT EXISTS (SELECT 1 FROM outbox m WHERE m.order_id = a.order_id AND m.kind = a.kind)",
    )
    .fetch_all(db)
    .await?;
    found.add_violations("an alert without a message", silent);
    let given_up = sqlx::query_scalar(
        "-- alerts given up
         SELECT m.order_id || ' ' || m.kind || ': ' || coalesce(m.last_error, '') FROM outbox m
         WHERE m.channel = $1 AND m.state NOT IN ('delivered', 'pending')",
    )
    .bind(ALERTS)
    .fetch_all(db)
    .await?;
    found.add_violations("an alert that was given up", given_up);
    Ok(())
}

/// What only an outage can have put there, and what it must not leave.
async fn find_left_behind(app: &App, found: &mut FoundViolations) -> anyhow::Result<()> {
    let held = sqlx::query_scalar(
        "-- held orders
         SELECT id || ': ' || coalesce(held_reason, '') FROM orders WHERE held_for_review ORDER BY id",
    )
    .fetch_all(&app.db)
    .await?;
    found.add_violations("held for review", held);
    let kinds = [TIMER_DEAD, STATUS_UPDATE_FAILED, PARTNER_REFUSES_KEY];
    let alerts = sqlx::query_scalar(
        "-- alerts of outages
         SELECT kind || ' of ' || order_id || ': ' || payload::text FROM alerts WHERE kind = ANY($1) ORDER BY id",
    )
    .bind(&kinds[..])
    .fetch_all(&app.db)
    .await?;
    found.add_violations("alert", alerts);
    for queue in jobs::queues::ALL {
        let dead = app.queue().list_jobs(queue, JobState::Dead, 0, MOST).await?;
        let lines = dead.into_iter().map(|job| format!("{}: {}", job.id, job.error.unwrap_or_default())).collect();
        found.add_violations("dead job", lines);
    }
    Ok(())
}

/// Sessions that stay inside a transaction while all is at rest.
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

/// Some orders that did not end, each with its history.
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

/// Messages delivered, by kind.
pub(in crate::bench) async fn count_delivered_messages(db: &Pool) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "-- delivered messages by kind
         SELECT kind, count(*) FROM outbox WHERE state = 'delivered' GROUP BY kind",
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().collect())
}
