-- Creates {orders} open orders. Their first attempts fall due within {spread_s} seconds.
INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, payment_status, status, next_attempt_at, lifetime_deadline,
                    created_at, updated_at)
SELECT 'R' || lpad(n::text, 9, '0'), 'RIDE', -6.2, 106.8, 'UNPAID', 'DISPATCHING', due, due + interval '1 day', at, at
FROM (SELECT n, at, date_trunc('milliseconds', at + n * {spread_s}::float8 / {orders} * interval '1 second') AS due
      FROM (SELECT dispatchq_now() AS at) t, generate_series(1, {orders}) n OFFSET 0) x;

INSERT INTO order_events (order_id, to_status, reason, actor, at)
SELECT id, status, 'ORDER_CREATED', 'sql', created_at FROM orders WHERE closed_at IS NULL;
