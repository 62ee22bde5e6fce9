-- remove old orders
WITH seen AS MATERIALIZED (
    SELECT id, closed_at FROM orders
    WHERE NOT owes_refund AND closed_at < $1 AND (closed_at, id) > ($3, $4)
      AND closed_status IN ('COMPLETED', 'CANCELLED_BY_SYSTEM', 'REFUNDED', 'CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER')
    ORDER BY closed_at, id LIMIT $2),
old AS MATERIALIZED (
    SELECT id FROM seen s
    WHERE NOT EXISTS (SELECT 1 FROM outbox m WHERE m.order_id = s.id AND m.state || '' = 'pending')
      AND NOT EXISTS (SELECT 1 FROM bookings b WHERE b.order_id = s.id AND b.state = 'cancel_wanted')
      AND NOT EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = s.id AND a.acked_at IS NULL)),
f AS (DELETE FROM offers WHERE order_id IN (SELECT id FROM old)),
b AS (DELETE FROM bookings WHERE order_id IN (SELECT id FROM old)),
p AS (DELETE FROM payment_events WHERE order_id IN (SELECT id FROM old)),
r AS (DELETE FROM refunds WHERE order_id IN (SELECT id FROM old)),
i AS (DELETE FROM inbox WHERE order_id IN (SELECT id FROM old)),
m AS (DELETE FROM outbox WHERE order_id IN (SELECT id FROM old)),
a AS (DELETE FROM alerts WHERE order_id IN (SELECT id FROM old)),
e AS (DELETE FROM order_events_kept WHERE order_id IN (SELECT id FROM old)),
o AS (DELETE FROM orders WHERE id IN (SELECT id FROM old) RETURNING 1)
SELECT (SELECT count(*) FROM o), closed_at, id FROM seen ORDER BY closed_at DESC, id DESC LIMIT 1
