SELECT order_id, 'attempt ' || coalesce(attempt_no::text, '?') || ' is the ' || n || '. to start'
FROM (SELECT order_id, attempt_no, row_number() OVER (PARTITION BY order_id ORDER BY seq) AS n
      FROM audit_events WHERE reason = 'ATTEMPT_STARTED') s
WHERE attempt_no IS DISTINCT FROM n
UNION ALL
SELECT e.order_id, 'attempt ' || e.attempt_no || ' made neither offer nor booking'
FROM audit_events e
JOIN audit_orders o USING (order_id)  -- the history outlives its order
WHERE e.reason = 'ATTEMPT_STARTED'
  AND NOT EXISTS (SELECT 1 FROM audit_offers f
                  WHERE f.order_id = e.order_id AND f.attempt_no = e.attempt_no)
  AND NOT EXISTS (SELECT 1 FROM audit_bookings b
                  WHERE b.order_id = e.order_id AND b.attempt_no = e.attempt_no)
