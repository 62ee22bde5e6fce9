-- lost, doubled and early attempts
-- $1 are the orders confirmed to clients.
SELECT 'lost', x.subject FROM (
    SELECT c.id || ' is missing' FROM unnest($1::text[]) AS c (id)
    WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = c.id)
    UNION
    SELECT id || ' is ' || status FROM orders WHERE closed_at IS NULL AND NOT held_for_review) x (subject)
UNION ALL
SELECT 'doubled', x.subject FROM (
    SELECT 'attempt ' || attempt_no || ' of ' || order_id FROM order_events WHERE reason = 'ATTEMPT_STARTED'
    GROUP BY order_id, attempt_no HAVING count(*) > 1
    UNION ALL
    SELECT 'the request ' || customer_id FROM orders WHERE customer_id IS NOT NULL
    GROUP BY customer_id HAVING count(*) > 1) x (subject)
UNION ALL
SELECT 'early', x.subject FROM (
    SELECT 'the lifetime of ' || o.id FROM order_events e JOIN orders o ON o.id = e.order_id
    WHERE e.reason = 'LIFETIME_TIMEOUT' AND e.at < o.lifetime_deadline
    UNION
    SELECT 'attempt ' || e.attempt_no || ' of ' || e.order_id
    FROM order_events e JOIN offers f ON f.order_id = e.order_id AND f.attempt_no = e.attempt_no
    WHERE e.reason = 'ATTEMPT_TIMEOUT' AND f.state = 'expired' AND e.at < f.expires_at) x (subject)
