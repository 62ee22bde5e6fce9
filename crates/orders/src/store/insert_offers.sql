-- insert offers
WITH locked AS MATERIALIZED (
    SELECT c.* FROM unnest($1::uuid[], $2::text[], $3::float8[], $4::float8[]) WITH ORDINALITY
         AS c (id, driver_id, distance_m, score, place)
    WHERE pg_try_advisory_xact_lock((SELECT dispatchq_lock($12::integer)), hashtext(c.driver_id)))
INSERT INTO offers (id, order_id, attempt_no, round, driver_id, distance_m, score, rank, slot,
                    offered_at, expires_at, wave)
SELECT c.id, $5, $6, $7, c.driver_id, c.distance_m, c.score, $8 + c.place, free.slot, $9, $10, $13
FROM locked c
CROSS JOIN LATERAL (
    SELECT s.n AS slot FROM generate_series(1, $11) AS s (n)
    WHERE NOT EXISTS (SELECT 1 FROM offers f
                      WHERE f.driver_id = c.driver_id AND f.state = 'offered' AND f.slot = s.n)
    ORDER BY s.n LIMIT 1) free
WHERE (SELECT count(*) FROM orders o
       WHERE o.driver_id = c.driver_id AND o.on_trip
         AND o.partner IS NULL) = 0
-- for a slot that was taken after this statement started
ON CONFLICT DO NOTHING
RETURNING id, driver_id, distance_m
