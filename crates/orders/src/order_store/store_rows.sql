-- store callback
INSERT INTO inbox (partner, event_id, order_id, booking_id, body, state, result, received_at, processed_at)
SELECT found.partner, found.event_id, found.id, found.booking_id, found.body,
       CASE WHEN found.nothing IS NOT NULL THEN 'ignored' WHEN found.id IS NULL THEN 'unmatched' ELSE 'pending' END,
       found.nothing, found.now, CASE WHEN found.nothing IS NOT NULL THEN found.now END
FROM (SELECT located.*,
             CASE WHEN located.ignored_at IS NULL
                       OR (located.id = located.referred
                           AND (SELECT o.version FROM orders o WHERE o.id = located.id) = located.ignored_at)
                  THEN located.ignored END AS nothing,
             dispatchq_now() AS now
      FROM (SELECT c.*,
                   coalesce((SELECT order_id FROM bookings
                             WHERE partner = c.partner AND booking_id = c.booking_id),
                            (SELECT order_id FROM bookings
                             WHERE order_id = c.referred AND partner = c.partner LIMIT 1)) AS id
            FROM json_to_recordset($1::json) AS c (
                partner text, event_id text, booking_id text, referred text, ignored text, ignored_at bigint,
                body jsonb)
            ORDER BY c.partner, c.event_id) located) found
ON CONFLICT (partner, event_id) DO NOTHING
RETURNING partner, event_id, id, order_id, state, received_at, true AS is_new
