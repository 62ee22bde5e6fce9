-- candidates
SELECT d.id AS driver_id, d.lat, d.lng, d.idle_since, held.live_offers,
       CASE WHEN (SELECT count(*) FROM orders o
                  WHERE o.driver_id = d.id AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP')
                    AND o.partner IS NULL) > 0 THEN 'busy'
            WHEN d.id = ANY ($4) THEN 'had_it'
            WHEN mine.declined THEN 'declined'
            WHEN mine.asked THEN 'asked'
            WHEN held.live_offers >= $6 THEN 'enough_offers'
            WHEN (SELECT max(f.responded_at) FROM offers f
                  WHERE f.driver_id = d.id AND f.state IN ('declined', 'expired')) > $7::timestamptz THEN 'cooling_down'
       END AS excluded
FROM drivers d
CROSS JOIN LATERAL (SELECT count(*) AS live_offers FROM offers f
                    WHERE f.driver_id = d.id AND f.state = 'offered') held
CROSS JOIN LATERAL (SELECT bool_or(f.state = 'declined') AS declined, bool_or(f.round = $5) AS asked
                    FROM offers f WHERE f.order_id = $3 AND f.driver_id = d.id) mine
WHERE d.id = ANY ($1) AND d.available AND $2 = ANY (d.service_types)
