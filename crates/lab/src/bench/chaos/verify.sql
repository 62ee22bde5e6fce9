-- claims against the tables
-- Returns rows with the kind of each difference and its subject. $1 contains the answers to
-- clients and the messages at receivers, $2 is the channel of alerts.
SELECT '201 on create, and no such order', x.line FROM (
    SELECT c->>'order' FROM jsonb_array_elements($1::jsonb->'created') c
    WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = c->>'order')) x (line)
UNION ALL
SELECT 'one Idempotency-Key, two orders', x.line FROM (
    SELECT customer_id || ': ' || string_agg(id, ', ') FROM orders
    WHERE customer_id IS NOT NULL GROUP BY customer_id HAVING count(*) > 1) x (line)
UNION ALL
SELECT '201 on create with another''s order', x.line FROM (
    SELECT (c->>'key') || ' was told ' || o.id FROM jsonb_array_elements($1::jsonb->'created') c
    JOIN orders o ON o.id = c->>'order' WHERE o.customer_id IS DISTINCT FROM c->>'key') x (line)
UNION ALL
SELECT '200 on accept, and the driver never had the order', x.line FROM (
    SELECT (c->>'order') || ' by ' || (c->>'driver') FROM jsonb_array_elements($1::jsonb->'accepted') c
    WHERE NOT EXISTS (SELECT 1 FROM offers f JOIN order_events e
                             ON e.order_id = f.order_id AND e.attempt_no = f.attempt_no
                                AND e.reason = 'OFFER_ACCEPTED' AND e.actor LIKE 'driver:' || (c->>'driver') || '%'
                      WHERE f.id = (c->>'offer')::uuid AND f.order_id = c->>'order' AND f.driver_id = c->>'driver'
                        AND f.state IN ('accepted', 'withdrawn'))) x (line)
UNION ALL
SELECT '200 on an action, and no event says so', x.line FROM (
    SELECT (c->>'reason') || ' of ' || (c->>'order') || ' ' || (c->>'driver') || ', which is ' || coalesce(o.status, 'missing')
    FROM jsonb_array_elements($1::jsonb->'actions') c LEFT JOIN orders o ON o.id = c->>'order'
    WHERE NOT EXISTS (SELECT 1 FROM order_events e WHERE e.order_id = c->>'order' AND e.reason = c->>'reason'
                        AND (c->>'driver' = '' OR e.actor LIKE 'driver:' || (c->>'driver') || '%'))) x (line)
UNION ALL
SELECT '200 on payment, and the order is not paid', x.line FROM (
    SELECT c || ' is ' || coalesce(o.payment_status, 'missing') FROM jsonb_array_elements_text($1::jsonb->'paid') c
    LEFT JOIN orders o ON o.id = c WHERE coalesce(o.payment_status, '') NOT IN ('PAID', 'SETTLEMENT')) x (line)
UNION ALL
SELECT '200 on a callback, and it was not kept', x.line FROM (
    SELECT c FROM jsonb_array_elements_text($1::jsonb->'called_back') c
    WHERE NOT EXISTS (SELECT 1 FROM inbox i WHERE i.event_id = c)) x (line)
UNION ALL
SELECT 'counts as delivered, and did not arrive', x.line FROM (
    SELECT order_id || ' ' || kind || ' over ' || channel FROM outbox
    WHERE state = 'delivered' AND $1::jsonb->'received' ? channel
      AND channel || ' ' || message_id NOT IN (
          SELECT r.key || ' ' || message.id FROM jsonb_each($1::jsonb->'received') r,
                 jsonb_array_elements_text(r.value) AS message (id))) x (line)
UNION ALL
SELECT 'an alert without a message', x.line FROM (
    SELECT a.order_id || ' ' || a.kind FROM alerts a
    WHERE NOT EXISTS (SELECT 1 FROM outbox m WHERE m.order_id = a.order_id AND m.kind = a.kind)) x (line)
UNION ALL
SELECT 'an alert that was given up', x.line FROM (
    SELECT m.order_id || ' ' || m.kind || ': ' || coalesce(m.last_error, '') FROM outbox m
    WHERE m.channel = $2 AND m.state NOT IN ('delivered', 'pending')) x (line)
UNION ALL
SELECT 'held for review', x.line FROM (
    SELECT id || ': ' || coalesce(held_reason, '') FROM orders WHERE held_for_review) x (line)
UNION ALL
SELECT 'alert of an outage', x.line FROM (
    SELECT kind || ' of ' || order_id || ': ' || payload::text FROM alerts WHERE $1::jsonb->'outage_alerts' ? kind) x (line)
