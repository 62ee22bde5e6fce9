WITH started AS (SELECT order_id, attempt_no,
                        attempt_no = max(attempt_no) OVER (PARTITION BY order_id) AS is_latest
                 FROM audit_events WHERE reason = 'ATTEMPT_STARTED'),
     ended AS (SELECT order_id, attempt_no, count(*) AS times FROM audit_events
               WHERE reason IN ('OFFER_ACCEPTED', 'OFFER_DECLINED', 'OFFER_WITHDRAWN', 'ATTEMPT_TIMEOUT',
                                'ATTEMPT_WITHDRAWN', 'DRIVER_FOUND', 'NO_DRIVER', 'BOOKING_REFUSED',
                                'BOOKING_NOT_FOUND')
               GROUP BY order_id, attempt_no)
SELECT s.order_id, 'attempt ' || s.attempt_no || ' has ' || coalesce(e.times, 0) || ' outcomes'
FROM started s JOIN audit_orders o USING (order_id)
LEFT JOIN ended e ON e.order_id = s.order_id AND e.attempt_no = s.attempt_no
WHERE e.times > 1 OR (e.times IS NULL AND NOT (o.status IN ('DISPATCHING', 'PENDING_JOB_ID', 'ASSIGNED')
                                       AND s.is_latest))
