//! Sweeps: statements that remove rows of each table after their retention time.
//!
//! Each batch takes the oldest rows by index, so its cost does not grow with the table.

/// Statements that count the old rows of a table, and remove a batch of the oldest. `$1` is a time and `$2` the batch
/// size; a scan starts after the time `$3` and the id `$4`. Records that no role may delete are removed by a function
/// that returns one row for each.
#[derive(Debug)]
pub struct TableSweep {
    pub what: &'static str,
    pub count: &'static str,
    pub remove: &'static str,
}

/// All sweeps; public for tests of their query plans.
pub const SWEEPS: [&TableSweep; 34] = [
    &ORDERS,
    &DETAILS,
    &OFFERS,
    &MESSAGES,
    &REPLAYS,
    &ALERTS,
    &RANKINGS,
    &IDEMPOTENCY_KEYS,
    &AREA_CHANGES,
    &FEED,
    &STAFF_ACTIONS,
    &STAFF_REQUESTS,
    &DESK_TAKES,
    &WORKER_DRAINS,
    &SESSIONS,
    &PEOPLES_KEYS,
    &DRIVER_LINKS,
    &DRIVER_SESSIONS,
    &ERASURES,
    &RUNS,
    &SNAPSHOTS,
    &AREA_SNAPSHOTS,
    &GLANCE_SNAPSHOTS,
    &ADMISSION_COUNTS,
    &SHADOW_REFUSALS,
    &SUPPLY_COUNTS,
    &SUPPLY_MINUTES,
    &RECONCILE_LOG,
    &CALLBACKS,
    &DEAD_LETTERS,
    &EXPIRED_DEAD_LETTERS,
    &PLAN_ITEMS,
    &PLANS,
    &VIOLATIONS,
];

// Selects closed orders that owe no refund, by the index `orders_closed`. The list of statuses excludes any status that is
// added later.
pub(super) const ORDERS: TableSweep = TableSweep {
    what: "orders",
    count: include_str!("sweeps/count_orders.sql"),
    remove: include_str!("sweeps/remove_orders.sql"),
};

// Removes personal data and keeps the row. Reads the orders that were created before the time and are not erased yet: few
// of them are still open. The subquery makes Postgres look up each order instead of scanning all of them.
pub(super) const DETAILS: TableSweep = TableSweep {
    what: "details of orders",
    count: "-- count old details
            SELECT count(*) FROM order_details d
            WHERE d.erased_at IS NULL AND d.created_at < $1
              AND (SELECT o.closed_at FROM orders o WHERE o.id = d.order_id) < $1",
    remove: "-- erase old details
             SELECT dispatchq_erase_details(old.order_id)
             FROM (SELECT d.order_id FROM order_details d
                   WHERE d.erased_at IS NULL AND d.created_at < $1
                     AND (SELECT o.closed_at FROM orders o WHERE o.id = d.order_id) < $1
                   ORDER BY d.created_at, d.order_id LIMIT $2) old",
};

pub(super) const OFFERS: TableSweep = TableSweep {
    what: "offer messages",
    count: "-- count old offer messages
            SELECT count(*) FROM outbox WHERE kind = 'OFFER' AND state <> 'pending' AND created_at < $1",
    remove: "-- remove old offer messages
             DELETE FROM outbox WHERE id IN (
                 SELECT id FROM outbox WHERE kind = 'OFFER' AND state <> 'pending' AND created_at < $1
                 ORDER BY created_at LIMIT $2)",
};

// Messages are removed with their order. These messages are about an order that may never have existed, or test an
// endpoint.
pub(super) const MESSAGES: TableSweep = TableSweep {
    what: "messages",
    count: "-- count old messages
            SELECT count(*) FROM outbox m
            WHERE kind IN ('FAILED_TO_GET_ORDER', 'endpoint.test') AND state <> 'pending' AND created_at < $1
              AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = m.order_id)",
    remove: "-- remove old messages
             DELETE FROM outbox WHERE id IN (
                 SELECT id FROM outbox m
                 WHERE kind IN ('FAILED_TO_GET_ORDER', 'endpoint.test') AND state <> 'pending' AND created_at < $1
                   AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = m.order_id)
                 ORDER BY created_at LIMIT $2)",
};

// A producer may request any number of replays, and each adds a message for each step.
pub(super) const REPLAYS: TableSweep = TableSweep {
    what: "messages of replays",
    count: "-- count old messages of replays
            SELECT count(*) FROM outbox
            WHERE starts_with(dedupe_key, 'replay:') AND state <> 'pending' AND created_at < $1",
    remove: "-- remove old messages of replays
             DELETE FROM outbox WHERE id IN (
                 SELECT id FROM outbox
                 WHERE starts_with(dedupe_key, 'replay:') AND state <> 'pending' AND created_at < $1
                 ORDER BY created_at LIMIT $2)",
};

// Acknowledged alerts about an order that does not exist.
pub(super) const ALERTS: TableSweep = TableSweep {
    what: "alerts",
    count: "-- count old alerts
            SELECT count(*) FROM alerts a
            WHERE kind = 'FAILED_TO_GET_ORDER' AND acked_at IS NOT NULL AND raised_at < $1
              AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = a.order_id)",
    remove: "-- remove old alerts
             DELETE FROM alerts WHERE id IN (
                 SELECT id FROM alerts a
                 WHERE kind = 'FAILED_TO_GET_ORDER' AND acked_at IS NOT NULL AND raised_at < $1
                   AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = a.order_id)
                 ORDER BY raised_at LIMIT $2)",
};

// Callbacks of orders are removed with their orders; callbacks of unknown bookings have no order.
pub(super) const CALLBACKS: TableSweep = TableSweep {
    what: "callbacks",
    count: "-- count old callbacks
            SELECT count(*) FROM inbox WHERE state = 'unmatched' AND received_at < $1",
    remove: "-- remove old callbacks
             DELETE FROM inbox WHERE id IN (
                 SELECT id FROM inbox WHERE state = 'unmatched' AND received_at < $1 ORDER BY received_at LIMIT $2)",
};

pub(super) const RANKINGS: TableSweep = TableSweep {
    what: "rankings",
    count: "-- count old rankings
            SELECT count(*) FROM rankings WHERE at < $1",
    remove: "-- remove old rankings
             DELETE FROM rankings WHERE (order_id, attempt_no) IN (
                 SELECT order_id, attempt_no FROM rankings WHERE at < $1 ORDER BY at LIMIT $2)",
};

pub(super) const AREA_CHANGES: TableSweep = TableSweep {
    what: "changes of areas",
    count: "-- count old changes of areas
            SELECT count(*) FROM admission_audit WHERE at < $1",
    remove: "-- remove old changes of areas
             SELECT dispatchq_remove_old_records('admission_audit', ARRAY(
                 SELECT id FROM admission_audit WHERE at < $1 ORDER BY at LIMIT $2), dispatchq_now() - $1)",
};

pub(super) const STAFF_ACTIONS: TableSweep = TableSweep {
    what: "actions of staff",
    count: "-- count old actions of staff
            SELECT count(*) FROM staff_actions WHERE at < $1",
    remove: "-- remove old actions of staff
             SELECT dispatchq_remove_old_records('staff_actions', ARRAY(
                 SELECT id FROM staff_actions WHERE at < $1 ORDER BY at LIMIT $2), dispatchq_now() - $1)",
};

pub(super) const STAFF_REQUESTS: TableSweep = TableSweep {
    what: "requests of staff",
    count: "-- count old requests of staff
            SELECT count(*) FROM staff_requests WHERE at < $1",
    remove: "-- remove old requests of staff
             SELECT dispatchq_remove_old_records('staff_requests', ARRAY(
                 SELECT id FROM staff_requests WHERE at < $1 ORDER BY at LIMIT $2), dispatchq_now() - $1)",
};

pub(super) const SESSIONS: TableSweep = TableSweep {
    what: "sessions of the console",
    count: "-- count old sessions
            SELECT count(*) FROM console_sessions WHERE created_at < $1",
    remove: "-- remove old sessions
             DELETE FROM console_sessions WHERE id IN (
                 SELECT id FROM console_sessions WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
};

// The sessions of these keys are removed with them.
pub(super) const PEOPLES_KEYS: TableSweep = TableSweep {
    what: "keys of people who signed in by OpenID Connect",
    count: "-- count old keys of people
            SELECT count(*) FROM api_keys WHERE oidc_subject IS NOT NULL AND created_at < $1",
    remove: "-- remove old keys of people
             DELETE FROM api_keys WHERE id IN (
                 SELECT id FROM api_keys WHERE oidc_subject IS NOT NULL AND created_at < $1 ORDER BY created_at LIMIT $2)",
};

pub(super) const DRIVER_LINKS: TableSweep = TableSweep {
    what: "sign-in links of drivers",
    count: "-- count expired links of drivers
            SELECT count(*) FROM driver_sign_in_links WHERE expires_at < $1",
    remove: "-- remove expired links of drivers
             DELETE FROM driver_sign_in_links WHERE sha256 IN (
                 SELECT sha256 FROM driver_sign_in_links WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
};

pub(super) const DRIVER_SESSIONS: TableSweep = TableSweep {
    what: "sessions of drivers",
    count: "-- count expired sessions of drivers
            SELECT count(*) FROM driver_sessions WHERE expires_at < $1",
    remove: "-- remove expired sessions of drivers
             DELETE FROM driver_sessions WHERE id IN (
                 SELECT id FROM driver_sessions WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
};

pub(super) const ERASURES: TableSweep = TableSweep {
    what: "erasures",
    count: "-- count old erasures
            SELECT count(*) FROM erasures WHERE erased_at < $1",
    remove: "-- remove old erasures
             SELECT dispatchq_remove_old_records('erasures', ARRAY(
                 SELECT id FROM erasures WHERE erased_at < $1 ORDER BY erased_at LIMIT $2), dispatchq_now() - $1)",
};

pub(super) const IDEMPOTENCY_KEYS: TableSweep = TableSweep {
    what: "idempotency keys",
    count: "-- count old idempotency keys
            SELECT count(*) FROM idempotency_keys WHERE created_at < $1",
    remove: "-- remove old idempotency keys
             DELETE FROM idempotency_keys WHERE (holder_id, key) IN (
                 SELECT holder_id, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
};

// Rows are ordered by position, which is also the order of their age, except for rows of long transactions. There is no
// index on their times. They are counted in the order of their removal, page by page up to the first page without an
// old row.
pub(super) const FEED: TableSweep = TableSweep {
    what: "steps of orders",
    count: include_str!("sweeps/count_feed.sql"),
    remove: "-- remove old steps
             DELETE FROM order_feed WHERE (position, seq) IN (
                 SELECT position, seq FROM (SELECT position, seq, at FROM order_feed ORDER BY position, seq LIMIT $2) oldest
                 WHERE at < $1)",
};

pub(super) const DESK_TAKES: TableSweep = TableSweep {
    what: "takes of orders",
    count: "-- count old takes
            SELECT count(*) FROM desk_takes WHERE ends_at < $1",
    remove: "-- remove old takes
             DELETE FROM desk_takes WHERE order_id IN (
                 SELECT order_id FROM desk_takes WHERE ends_at < $1 ORDER BY ends_at LIMIT $2)",
};

// A live process renews the time of its row every hour.
pub(super) const WORKER_DRAINS: TableSweep = TableSweep {
    what: "drains of ended workers",
    count: "-- count drains of ended workers
            SELECT count(*) FROM worker_drains WHERE alive_at < $1",
    remove: "-- remove drains of ended workers
             DELETE FROM worker_drains WHERE boot IN (
                 SELECT boot FROM worker_drains WHERE alive_at < $1 ORDER BY alive_at LIMIT $2)",
};

pub(super) const RUNS: TableSweep = TableSweep {
    what: "schedule runs",
    count: "-- count old schedule runs
            SELECT count(*) FROM schedule_runs WHERE slot < $1",
    remove: "-- remove old schedule runs
             DELETE FROM schedule_runs WHERE (name, slot) IN (
                 SELECT name, slot FROM schedule_runs WHERE slot < $1 ORDER BY slot LIMIT $2)",
};

pub(super) const SNAPSHOTS: TableSweep = TableSweep {
    what: "snapshots of queues",
    count: "-- count old snapshots
            SELECT count(*) FROM queue_snapshots WHERE at < $1",
    remove: "-- remove old snapshots
             DELETE FROM queue_snapshots WHERE (at, queue) IN (
                 SELECT at, queue FROM queue_snapshots WHERE at < $1 ORDER BY at LIMIT $2)",
};

pub(super) const AREA_SNAPSHOTS: TableSweep = TableSweep {
    what: "snapshots of areas",
    count: "-- count old area snapshots
            SELECT count(*) FROM waiting_snapshots WHERE at < $1",
    remove: "-- remove old area snapshots
             DELETE FROM waiting_snapshots WHERE (at, area_id, service_type) IN (
                 SELECT at, area_id, service_type FROM waiting_snapshots WHERE at < $1 ORDER BY at LIMIT $2)",
};

pub(super) const GLANCE_SNAPSHOTS: TableSweep = TableSweep {
    what: "snapshots of the whole",
    count: "-- count old snapshots of the whole
            SELECT count(*) FROM glance_snapshots WHERE at < $1",
    remove: "-- remove old snapshots of the whole
             DELETE FROM glance_snapshots WHERE at IN (
                 SELECT at FROM glance_snapshots WHERE at < $1 ORDER BY at LIMIT $2)",
};

pub(super) const ADMISSION_COUNTS: TableSweep = TableSweep {
    what: "counts of admission",
    count: "-- count old counts of admission
            SELECT count(*) FROM admission_counts WHERE hour < $1",
    remove: "-- remove old counts of admission
             DELETE FROM admission_counts
             WHERE (hour, area_id, service_type, source, verdict, cause, loyalty, waiting) IN (
                 SELECT hour, area_id, service_type, source, verdict, cause, loyalty, waiting
                 FROM admission_counts WHERE hour < $1 ORDER BY hour LIMIT $2)",
};

pub(super) const SHADOW_REFUSALS: TableSweep = TableSweep {
    what: "shadow refusals",
    count: "-- count old shadow refusals
            SELECT count(*) FROM shadow_refusals WHERE at < $1",
    remove: "-- remove old shadow refusals
             DELETE FROM shadow_refusals WHERE id IN (
                 SELECT id FROM shadow_refusals WHERE at < $1 ORDER BY at LIMIT $2)",
};

pub(super) const SUPPLY_COUNTS: TableSweep = TableSweep {
    what: "supply log",
    count: "-- count old supply log
            SELECT count(*) FROM supply_counts WHERE minute < $1",
    remove: "-- remove old supply log
             DELETE FROM supply_counts WHERE (minute, service_type, area_id, cell) IN (
                 SELECT minute, service_type, area_id, cell FROM supply_counts WHERE minute < $1 ORDER BY minute LIMIT $2)",
};

// Minutes without rows, because all rows were removed or there never were any.
pub(super) const SUPPLY_MINUTES: TableSweep = TableSweep {
    what: "minutes of the supply log",
    count: "-- count old minutes of the supply log
            SELECT count(*) FROM supply_minutes WHERE minute < $1",
    remove: "-- remove old minutes of the supply log
             DELETE FROM supply_minutes WHERE minute IN (
                 SELECT minute FROM supply_minutes m
                 WHERE minute < $1 AND (SELECT c.minute FROM supply_counts c WHERE c.minute = m.minute LIMIT 1) IS NULL
                 ORDER BY minute LIMIT $2)",
};

pub(super) const RECONCILE_LOG: TableSweep = TableSweep {
    what: "reconciliations",
    count: "-- count old reconciliations
            SELECT count(*) FROM reconcile_log WHERE at < $1",
    remove: "-- remove old reconciliations
             DELETE FROM reconcile_log WHERE at IN (SELECT at FROM reconcile_log WHERE at < $1 ORDER BY at LIMIT $2)",
};

pub(super) const DEAD_LETTERS: TableSweep = TableSweep {
    what: "dead letters",
    count: "-- count old dead letters
            SELECT count(*) FROM dead_letters WHERE resolved_at < $1",
    remove: "-- remove old dead letters
             DELETE FROM dead_letters WHERE (job_id, died_at) IN (
                 SELECT job_id, died_at FROM dead_letters WHERE resolved_at < $1 ORDER BY resolved_at LIMIT $2)",
};

/// Copies of dead jobs that were not decided on in time. They are marked as expired and stay as records for some time.
pub(super) const EXPIRED_DEAD_LETTERS: TableSweep = TableSweep {
    what: "expired dead letters",
    count: "-- count expired dead letters
            SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL AND died_at <= $1",
    remove: "-- expire dead letters
             UPDATE dead_letters SET resolved_at = dispatchq_now(), resolved_by = 'cleanup', resolved_how = 'expired',
                    resolved_why = 'no one decided on it in time'
             WHERE (job_id, died_at) IN (
                 SELECT job_id, died_at FROM dead_letters
                 WHERE resolved_at IS NULL AND died_at <= $1 ORDER BY died_at LIMIT $2)",
};

// A plan that was never started can no longer be started at this age: see `Plan::RUN_WITHIN`.
pub(super) const PLAN_ITEMS: TableSweep = TableSweep {
    what: "items of plans",
    count: "-- count old items of plans
            SELECT count(*) FROM plan_items i JOIN plans p ON p.id = i.plan_id
            WHERE p.state <> 'RUNNING' AND p.created_at < $1",
    remove: "-- remove old items of plans
             DELETE FROM plan_items WHERE (plan_id, subject_id) IN (
                 SELECT i.plan_id, i.subject_id FROM plans p JOIN plan_items i ON i.plan_id = p.id
                 WHERE p.state <> 'RUNNING' AND p.created_at < $1
                 ORDER BY p.created_at LIMIT $2)",
};

// Plans without items, because all items were removed or there never were any.
pub(super) const PLANS: TableSweep = TableSweep {
    what: "plans",
    count: "-- count old plans
            SELECT count(*) FROM plans WHERE state <> 'RUNNING' AND created_at < $1",
    remove: "-- remove old plans
             DELETE FROM plans WHERE id IN (
                 SELECT id FROM plans p
                 WHERE state <> 'RUNNING' AND created_at < $1
                   AND (SELECT i.subject_id FROM plan_items i WHERE i.plan_id = p.id LIMIT 1) IS NULL
                 ORDER BY created_at LIMIT $2)",
};

// An open violation is seen again while its subject exists.
pub(super) const VIOLATIONS: TableSweep = TableSweep {
    what: "violations of the history",
    count: "-- count old violations
            SELECT count(*) FROM proof_violations WHERE seen_at < $1",
    remove: "-- remove old violations
             DELETE FROM proof_violations WHERE id IN (
                 SELECT id FROM proof_violations WHERE seen_at < $1 ORDER BY seen_at LIMIT $2)",
};
