SET session_replication_role = replica;
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
       (gen_random_uuid(), 'HASTY', 1, 1, 'D2', 'expired', now(), now() + interval '1 millisecond')
