WITH
-- Each name below hides the table or view of the same name, so the invariants read only the rows of the scope.
-- $1 allowed transitions, $2 orders, $3 start of the days of their events, $4 messages about bindings
orders AS MATERIALIZED (
    SELECT id, status, payment_status, paid_at, amount_minor, lifetime_deadline, lifetime_waived, held_for_review, closed_at
    FROM orders WHERE id = ANY ($2)),
audit_orders AS MATERIALIZED (
    SELECT order_id, status, payment_status, driver_id, held_for_review, lifetime_deadline, closed_at, paid_at, starts_at
    FROM audit_orders WHERE order_id = ANY ($2)),
audit_events AS MATERIALIZED (
    SELECT seq, order_id, from_status, to_status, reason, attempt_no, at FROM order_events
    WHERE order_id = ANY ($2) AND at >= $3
    UNION ALL
    SELECT seq, order_id, from_status, to_status, reason, attempt_no, at FROM order_events_kept WHERE order_id = ANY ($2)),
audit_offers AS MATERIALIZED (SELECT * FROM audit_offers WHERE order_id = ANY ($2)),
audit_bookings AS MATERIALIZED (
    SELECT order_id, attempt_no, state, created_at FROM audit_bookings WHERE order_id = ANY ($2)),
payment_events AS MATERIALIZED (SELECT order_id, payment_status FROM payment_events WHERE order_id = ANY ($2)),
outbox AS MATERIALIZED (
    SELECT id, order_id, binding_id, kind, channel, dedupe_key, created_at,
           CASE WHEN kind IN ('ESCALATION', 'REMINDER', 'SLA_WARNING') THEN payload END AS payload
    FROM outbox WHERE order_id = ANY ($2) OR id = ANY ($4)),
alerts AS MATERIALIZED (
    SELECT id, order_id, kind, acked_at FROM alerts WHERE order_id = ANY ($2)
    UNION
    SELECT id, order_id, kind, acked_at FROM alerts
    WHERE id IN (SELECT (payload->>'alert_id')::bigint FROM outbox WHERE binding_id IS NOT NULL)),
audit_notifications AS (SELECT * FROM outbox WHERE binding_id IS NULL)
