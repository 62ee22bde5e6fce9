-- count old orders
WITH seen AS MATERIALIZED (
    SELECT id, closed_at FROM orders
    WHERE NOT owes_refund AND closed_at < $1 AND (closed_at, id) > ($3, $4)
      AND closed_status IN ('COMPLETED', 'CANCELLED_BY_SYSTEM', 'REFUNDED', 'CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER')
    ORDER BY closed_at, id LIMIT $2),
old AS (
    SELECT id FROM seen s
    WHERE NOT EXISTS (SELECT 1 FROM outbox m WHERE m.order_id = s.id AND m.state || '' = 'pending')
      AND NOT EXISTS (SELECT 1 FROM bookings b WHERE b.order_id = s.id AND b.state = 'cancel_wanted')
      AND NOT EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = s.id AND a.acked_at IS NULL))
SELECT (SELECT count(*) FROM old), closed_at, id FROM seen ORDER BY closed_at DESC, id DESC LIMIT 1
