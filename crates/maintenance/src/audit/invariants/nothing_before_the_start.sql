SELECT o.order_id, f.what || ' of attempt ' || f.attempt_no || ' came ' || (o.starts_at - f.at) || ' before the start'
FROM audit_orders o
CROSS JOIN LATERAL (
    SELECT 'the offer' AS what, attempt_no, offered_at AS at FROM audit_offers x WHERE x.order_id = o.order_id
    UNION ALL
    SELECT 'the booking', attempt_no, created_at FROM audit_bookings b WHERE b.order_id = o.order_id
    UNION ALL
    SELECT 'the start', attempt_no, at FROM audit_events e WHERE e.order_id = o.order_id AND e.reason = 'ATTEMPT_STARTED') f
WHERE o.starts_at IS NOT NULL AND f.at < o.starts_at
