SELECT o.order_id, f.what || ' of attempt ' || f.attempt_no || ' came ' || (o.starts_at - f.at) || ' before the start'
FROM audit_orders o
JOIN (SELECT order_id, 'the offer' AS what, attempt_no, offered_at AS at FROM audit_offers
      UNION ALL
      SELECT order_id, 'the booking', attempt_no, created_at FROM audit_bookings
      UNION ALL
      SELECT order_id, 'the start', attempt_no, at FROM audit_events WHERE reason = 'ATTEMPT_STARTED') f USING (order_id)
WHERE o.starts_at IS NOT NULL AND f.at < o.starts_at
