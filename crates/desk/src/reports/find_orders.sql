-- find orders by any id
WITH named AS (
    SELECT id, 'id' AS how FROM orders WHERE id = $1
    UNION ALL (SELECT id, 'job' FROM orders WHERE job_id = $1 ORDER BY created_at DESC LIMIT $4)
    UNION ALL (SELECT order_id, 'job' FROM bookings WHERE job_id = $1 LIMIT $4)
    UNION ALL (SELECT order_id, 'booking' FROM bookings WHERE partner = ANY ($2) AND booking_id = $1 LIMIT $4)
    UNION ALL (SELECT id, 'customer' FROM orders WHERE customer_id = $1 ORDER BY created_at DESC LIMIT $4)
    UNION ALL (SELECT id, 'driver' FROM orders WHERE driver_id = $1 ORDER BY created_at DESC LIMIT $4)
    UNION ALL (SELECT d.order_id, 'metadata'
               FROM unnest($3::jsonb[]) AS w (wanted),
                    LATERAL (SELECT order_id FROM order_details
                             WHERE metadata <> '{}' AND metadata @> w.wanted LIMIT $4) d)
), distinct_orders AS (
    SELECT id, array_agg(DISTINCT how ORDER BY how) AS how FROM named GROUP BY id
)
SELECT o.id, d.how, o.status, o.service_type, o.created_at
FROM distinct_orders d JOIN orders o ON o.id = d.id
ORDER BY o.created_at DESC, o.id DESC LIMIT $4
