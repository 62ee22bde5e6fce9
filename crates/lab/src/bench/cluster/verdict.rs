//! What must never be, however the cluster fared: an order that is lost, an attempt made twice, one that ended before its time.

use foundation::db::Pool;

/// Named of each kind.
const SOME: usize = 5;

/// Each count is of what `found` names some of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RunVerdict {
    /// Orders that a client was told of and that are not there, and orders that did not end.
    pub(super) lost: usize,
    /// Attempts made twice, and requests with two orders.
    pub(super) doubled: usize,
    /// Attempts and lifetimes that ended before their time.
    pub(super) early: usize,
    pub(super) found: Vec<String>,
}

/// At rest. `created` are the orders that clients were told of.
pub(super) async fn judge_run(db: &Pool, created: &[String]) -> Result<RunVerdict, sqlx::Error> {
    let lost: Vec<String> = sqlx::query_scalar(LOST).bind(created).fetch_all(db).await?;
    let doubled: Vec<String> = sqlx::query_scalar(DOUBLED).fetch_all(db).await?;
    let early: Vec<String> = sqlx::query_scalar(EARLY).fetch_all(db).await?;
    let mut found = Vec::new();
    for (what, subjects) in [("lost", &lost), ("done twice", &doubled), ("ended before its time", &early)] {
        found.extend(subjects.iter().take(SOME).map(|subject| format!("{what}: {subject}")));
        if subjects.len() > SOME {
            found.push(format!("{what}: and {} more", subjects.len() - SOME));
        }
    }
    Ok(RunVerdict { lost: lost.len(), doubled: doubled.len(), early: early.len(), found })
}

const LOST: &str = "-- bench: lost orders
    SELECT c.id || ' is missing' FROM unnest($1::text[]) AS c (id)
    WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = c.id)
    UNION
    SELECT id || ' is ' || status FROM orders WHERE closed_at IS NULL AND NOT held_for_review";
const DOUBLED: &str = "-- bench: doubled attempts and requests
    SELECT 'attempt ' || attempt_no || ' of ' || order_id FROM order_events WHERE reason = 'ATTEMPT_STARTED'
    GROUP BY order_id, attempt_no HAVING count(*) > 1
    UNION ALL
    SELECT 'the request ' || customer_id FROM orders WHERE customer_id IS NOT NULL
    GROUP BY customer_id HAVING count(*) > 1";
const EARLY: &str = "-- bench: early ends
    SELECT 'the lifetime of ' || o.id FROM order_events e JOIN orders o ON o.id = e.order_id
    WHERE e.reason = 'LIFETIME_TIMEOUT' AND e.at < o.lifetime_deadline
    UNION
    SELECT 'attempt ' || e.attempt_no || ' of ' || e.order_id
    FROM order_events e JOIN offers f ON f.order_id = e.order_id AND f.attempt_no = e.attempt_no
    WHERE e.reason = 'ATTEMPT_TIMEOUT' AND f.state = 'expired' AND e.at < f.expires_at";

#[cfg(test)]
mod tests {
    use dispatch::config::Config;
    use foundation::{config::database::DatabaseConfig, db};
    use sqlx::{Connection, PgConnection};

    use super::*;
    use crate::testbed::start_private_postgres;

    // All moments are those of one transaction: an order that ended when it should, and one of each fault.
    const ROWS: &str = "SET session_replication_role = replica;
        INSERT INTO orders (id, customer_id, status, lifetime_deadline, closed_at,
                            service_type, pickup_lat, pickup_lng, created_at, updated_at)
        SELECT id, customer_id, status, now() + ends_in, CASE WHEN status <> 'DISPATCHING' THEN now() END,
               'RIDE', -6.2, 106.8, now(), now()
        FROM (VALUES ('GOOD', 'key-1', 'CANCELLED_BY_SYSTEM', interval '0'),
                     ('OPEN', 'key-2', 'DISPATCHING', interval '1 hour'),
                     ('TWICE', 'key-3', 'CANCELLED_BY_USER', interval '1 hour'),
                     ('AGAIN', 'key-3', 'CANCELLED_BY_USER', interval '1 hour'),
                     ('SOON', 'key-4', 'CANCELLED_BY_SYSTEM', interval '1 second'),
                     ('HASTY', 'key-5', 'CANCELLED_BY_USER', interval '1 hour')) v (id, customer_id, status, ends_in);
        INSERT INTO order_events (order_id, to_status, reason, actor, attempt_no, at)
        SELECT order_id, 'DISPATCHING', reason, 'system', 1, now()
        FROM (VALUES ('GOOD', 'ATTEMPT_STARTED'), ('GOOD', 'ATTEMPT_TIMEOUT'), ('GOOD', 'LIFETIME_TIMEOUT'),
                     ('TWICE', 'ATTEMPT_STARTED'), ('TWICE', 'ATTEMPT_STARTED'), ('SOON', 'LIFETIME_TIMEOUT'),
                     ('HASTY', 'ATTEMPT_STARTED'), ('HASTY', 'ATTEMPT_TIMEOUT')) v (order_id, reason);
        INSERT INTO offers (id, order_id, attempt_no, round, driver_id, state, offered_at, expires_at)
        VALUES (gen_random_uuid(), 'GOOD', 1, 1, 'D1', 'expired', now(), now()),
               (gen_random_uuid(), 'HASTY', 1, 1, 'D2', 'expired', now(), now() + interval '1 millisecond')";

    #[tokio::test]
    async fn each_fault_is_found_and_an_order_without_one_is_not() {
        let postgres = start_private_postgres().await.unwrap();
        let config = DatabaseConfig { url: postgres.url(), ..Config::defaults().database };
        let pool = db::connect_pool(&config).await.unwrap();
        db::migrate_schema(&pool).await.unwrap();
        let mut session = PgConnection::connect(&postgres.url()).await.unwrap();
        sqlx::raw_sql(ROWS).execute(&mut session).await.unwrap();
        let told = ["GOOD", "OPEN", "NEVER"].map(str::to_owned);
        let mut verdict = judge_run(&pool, &told).await.unwrap();
        verdict.found.sort_unstable();
        let found = [
            "done twice: attempt 1 of TWICE",
            "done twice: the request key-3",
            "ended before its time: attempt 1 of HASTY",
            "ended before its time: the lifetime of SOON",
            "lost: NEVER is missing",
            "lost: OPEN is DISPATCHING",
        ];
        assert_eq!(verdict.found, found);
        assert_eq!((verdict.lost, verdict.doubled, verdict.early), (2, 2, 2));
    }
}
