-- free drivers of waiting orders
WITH w AS MATERIALIZED (
    SELECT o.id, o.service_type, o.pickup_lat, o.pickup_lng, o.round, o.former_drivers, o.created_at,
           CASE WHEN o.has_details THEN (SELECT x.requires FROM order_details x WHERE x.order_id = o.id) END AS requires,
           t.radius_m, t.most_offers, t.cool_down_s,
           round(o.pickup_lat * 5) AS row_no, round(o.pickup_lng * 5) AS column_no,
           (t.radius_m + 1) / 111000 AS lat_span,
           (t.radius_m + 1) / 111000 / greatest(cos(radians(o.pickup_lat)), 0.01) AS lng_span
    FROM unnest($1::text[], $2::float8[], $3::bigint[], $4::float8[])
         AS t (id, radius_m, most_offers, cool_down_s)
    JOIN orders o ON o.id = t.id),
stretches AS (
    SELECT service_type, row_no, column_no, max(most_offers) AS most_offers, max(cool_down_s) AS cool_down_s,
           min(pickup_lat - lat_span) AS south, max(pickup_lat + lat_span) AS north,
           min(pickup_lng - lng_span) AS west, max(pickup_lng + lng_span) AS east
    FROM w GROUP BY service_type, row_no, column_no),
free AS MATERIALIZED (
    SELECT s.service_type, s.row_no, s.column_no, d.id, d.lat, d.lng, d.skills
    FROM stretches s
    JOIN drivers d ON d.available AND s.service_type = ANY (d.service_types)
                  AND d.lat BETWEEN s.south AND s.north AND d.lng BETWEEN s.west AND s.east
    WHERE (SELECT count(*) FROM orders o
           WHERE o.driver_id = d.id AND o.on_trip AND o.partner IS NULL) = 0
      AND (SELECT count(*) FROM offers f WHERE f.driver_id = d.id AND f.state = 'offered') < s.most_offers
      AND (s.cool_down_s = 0
           OR (SELECT max(f.responded_at) FROM offers f
               WHERE f.driver_id = d.id AND f.state IN ('declined', 'expired'))
              > dispatchq_now() - s.cool_down_s * interval '1 second' IS NOT TRUE))
SELECT w.id AS order_id, w.created_at, n.id AS driver_id, n.distance_m
FROM w CROSS JOIN LATERAL (
    SELECT f.id, dispatchq_distance_m(f.lat, f.lng, w.pickup_lat, w.pickup_lng) AS distance_m
    FROM free f
    WHERE f.service_type = w.service_type AND f.row_no = w.row_no AND f.column_no = w.column_no
      AND round(dispatchq_distance_m(f.lat, f.lng, w.pickup_lat, w.pickup_lng)) <= w.radius_m
      AND f.id <> ALL (w.former_drivers) AND (w.requires IS NULL OR w.requires <@ f.skills)
      AND NOT EXISTS (SELECT 1 FROM offers x WHERE x.order_id = w.id AND x.driver_id = f.id
                      AND (x.state = 'declined' OR x.round = w.round))
    ORDER BY distance_m, f.id LIMIT $5) n
