-- free candidates
SELECT d.id FROM drivers d
WHERE d.available AND $2 = ANY (d.service_types) AND d.id <> ALL ($9)
  AND d.lat BETWEEN $3 - $5 AND $3 + $5 AND d.lng BETWEEN $4 - $6 AND $4 + $6
  AND (SELECT count(*) FROM orders o
       WHERE o.driver_id = d.id AND o.on_trip AND o.partner IS NULL) = 0
  AND (SELECT count(*) FROM offers f WHERE f.driver_id = d.id AND f.state = 'offered') < $10
  AND NOT EXISTS (SELECT 1 FROM offers f WHERE f.order_id = $1 AND f.driver_id = d.id
                  AND (f.state = 'declined' OR f.round = $7))
  AND ($11::timestamptz IS NULL
       OR (SELECT max(f.responded_at) FROM offers f
           WHERE f.driver_id = d.id AND f.state IN ('declined', 'expired')) > $11 IS NOT TRUE)
  AND ($12::boolean IS FALSE
       OR (SELECT x.requires FROM order_details x WHERE x.order_id = $1) <@ d.skills IS NOT FALSE)
ORDER BY ((d.lat - $3) / $5) ^ 2 + ((d.lng - $4) / $6) ^ 2, d.idle_since, d.id
LIMIT $8
