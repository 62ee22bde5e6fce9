p AS MATERIALIZED (
    SELECT p.*, free.slot FROM json_to_recordset($10::json) AS p (
        order_id text, id uuid, attempt_no integer, wave integer, round integer, driver_id text, distance_m float8, score float8,
        rank integer, per_driver integer, offered_at timestamptz, expires_at timestamptz, is_spare boolean)
    CROSS JOIN LATERAL (
        SELECT s.n AS slot FROM generate_series(1, p.per_driver) AS s (n)
        WHERE NOT EXISTS (SELECT 1 FROM offers y
                          WHERE y.driver_id = p.driver_id AND y.state = 'offered' AND y.slot = s.n)
        ORDER BY s.n LIMIT 1) free
    WHERE CASE WHEN p.order_id IN (SELECT n.id FROM n JOIN l ON l.id = n.id WHERE l.version = n.expected)
               THEN pg_try_advisory_xact_lock((SELECT dispatchq_lock($11::integer)), hashtext(p.driver_id)) ELSE false END
      AND (SELECT count(*) FROM orders z
           WHERE z.driver_id = p.driver_id AND z.on_trip
             AND z.partner IS NULL) = 0),
