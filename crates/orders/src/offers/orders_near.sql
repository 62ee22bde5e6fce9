-- waiting orders of free drivers
WITH p AS MATERIALIZED (
    SELECT t.* FROM unnest($2::text[], $3::float8[], $4::bigint[], $5::float8[])
                    AS t (service_type, radius_m, most_offers, cool_down_s)
    WHERE (SELECT o.id FROM orders o
           WHERE o.service_type = t.service_type AND o.searching_fleet
           ORDER BY floor(o.pickup_lat * 20), floor(o.pickup_lng * 20), o.created_at, o.id LIMIT 1) IS NOT NULL),
d AS MATERIALIZED (
    SELECT d.id, d.lat, d.lng, d.skills, p.service_type, p.radius_m, (p.radius_m + 1) / 111000 AS lat_span,
           (p.radius_m + 1) / 111000 / greatest(cos(radians(d.lat)), 0.01) AS lng_span,
           (SELECT extract(epoch FROM max(x.responded_at) - dispatchq_now())::float8 + p.cool_down_s
            FROM offers x
            WHERE x.driver_id = d.id AND x.state IN ('declined', 'expired')
              AND x.responded_at > dispatchq_now() - p.cool_down_s * interval '1 second') AS cools_for_s
    FROM p
    -- `IS NOT FALSE` prevents Postgres from scanning the index of all available drivers
    JOIN drivers d ON d.id = ANY ($1::text[]) AND d.available IS NOT FALSE AND p.service_type = ANY (d.service_types)
    WHERE (SELECT count(*) FROM orders o
           WHERE o.driver_id = d.id AND o.on_trip AND o.partner IS NULL) = 0
      AND (SELECT count(*) FROM offers x WHERE x.driver_id = d.id AND x.state = 'offered') < p.most_offers),
f AS MATERIALIZED (
    SELECT d.*, (40 * lat_span + 1) * (40 * lng_span + 1) > $9 OR abs(lng) + lng_span > 180 AS is_wide FROM d),
w AS MATERIALIZED (
    SELECT o.* FROM (SELECT DISTINCT f.service_type FROM f WHERE f.is_wide AND f.cools_for_s IS NULL) t
    CROSS JOIN LATERAL (
        SELECT o.id, o.service_type, o.created_at, o.pickup_lat, o.pickup_lng, o.former_drivers, o.round, o.next_attempt_at,
               o.has_details
        FROM orders o
        WHERE o.service_type = t.service_type AND o.searching_fleet
          AND (o.next_attempt_at IS NOT NULL OR o.attempt_deadline <= dispatchq_now()) AND NOT o.held_for_review
          AND (o.lifetime_waived OR o.lifetime_deadline > dispatchq_now())
        -- uses the index of cells: the index of open orders also contains the orders of partners
        ORDER BY o.created_at + interval '0', o.id LIMIT $8) o)
SELECT f.id AS driver_id, f.cools_for_s, n.id AS order_id, n.created_at, n.distance_m
FROM f LEFT JOIN LATERAL (
    (SELECT o.id, o.created_at, o.distance_m
     FROM generate_series(floor((f.lat - f.lat_span) * 20)::bigint, floor((f.lat + f.lat_span) * 20)::bigint) AS row_no
     CROSS JOIN generate_series(floor((f.lng - f.lng_span) * 20)::bigint, floor((f.lng + f.lng_span) * 20)::bigint) AS column_no
     CROSS JOIN LATERAL (
         SELECT o.id, o.created_at, dispatchq_distance_m(f.lat, f.lng, o.pickup_lat, o.pickup_lng) AS distance_m
         FROM (SELECT o.id, o.created_at, o.pickup_lat, o.pickup_lng, o.former_drivers, o.round, o.next_attempt_at,
                      o.has_details FROM orders o
               WHERE o.service_type = f.service_type AND o.searching_fleet
                 AND floor(o.pickup_lat * 20) = row_no::float8 AND floor(o.pickup_lng * 20) = column_no::float8
                 AND (o.next_attempt_at IS NOT NULL OR o.attempt_deadline <= dispatchq_now()) AND NOT o.held_for_review
                 AND (o.lifetime_waived OR o.lifetime_deadline > dispatchq_now())
               ORDER BY o.created_at, o.id LIMIT $7) o
         WHERE o.pickup_lat BETWEEN f.lat - f.lat_span AND f.lat + f.lat_span
           AND round(dispatchq_distance_m(f.lat, f.lng, o.pickup_lat, o.pickup_lng)) <= f.radius_m
           AND f.id <> ALL (o.former_drivers)
           AND (NOT o.has_details
                OR (SELECT x.requires FROM order_details x WHERE x.order_id = o.id) <@ f.skills IS NOT FALSE)
           AND (SELECT count(*) FROM offers x
                WHERE x.order_id = o.id AND x.driver_id = f.id
                  AND (x.state = 'declined' OR x.round = o.round
                       OR (x.round = o.round - 1 AND o.next_attempt_at > dispatchq_now()))) = 0
         ORDER BY o.created_at, o.id LIMIT $6) o
     WHERE f.cools_for_s IS NULL AND NOT f.is_wide)
    UNION ALL
    (SELECT o.id, o.created_at, dispatchq_distance_m(f.lat, f.lng, o.pickup_lat, o.pickup_lng) AS distance_m
    -- in order, so that the scan ends with the last order needed
    FROM (SELECT * FROM w WHERE f.is_wide AND f.cools_for_s IS NULL AND w.service_type = f.service_type
          ORDER BY w.created_at, w.id LIMIT $8) o
    WHERE o.pickup_lat BETWEEN f.lat - f.lat_span AND f.lat + f.lat_span
      AND round(dispatchq_distance_m(f.lat, f.lng, o.pickup_lat, o.pickup_lng)) <= f.radius_m
      AND f.id <> ALL (o.former_drivers)
      AND (NOT o.has_details
           OR (SELECT x.requires FROM order_details x WHERE x.order_id = o.id) <@ f.skills IS NOT FALSE)
      AND (SELECT count(*) FROM offers x
           WHERE x.order_id = o.id AND x.driver_id = f.id
             AND (x.state = 'declined' OR x.round = o.round
                  OR (x.round = o.round - 1 AND o.next_attempt_at > dispatchq_now()))) = 0
     ORDER BY o.created_at, o.id LIMIT $6)
    ORDER BY created_at, id LIMIT $6) n ON true
