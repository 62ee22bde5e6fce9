-- candidates
SELECT q.place, d.id AS driver_id, d.lat, d.lng, d.idle_since, held.live_offers,
       CASE WHEN NOT q.requires <@ d.skills
            THEN array(SELECT r FROM unnest(q.requires) AS r WHERE r <> ALL (d.skills)) END AS missing,
       CASE WHEN NOT q.requires <@ d.skills THEN 'lacks_skill'
            WHEN (SELECT count(*) FROM orders o
                  WHERE o.driver_id = d.id AND o.on_trip
                    AND o.partner IS NULL) > 0 THEN 'busy'
            WHEN d.id = ANY (q.former_drivers) THEN 'had_it'
            WHEN mine.declined THEN 'declined'
            WHEN mine.asked THEN 'asked'
            WHEN held.live_offers >= q.offers_per_driver THEN 'enough_offers'
            WHEN (SELECT max(f.responded_at) FROM offers f
                  WHERE f.driver_id = d.id AND f.state IN ('declined', 'expired')) > q.warm_since THEN 'cooling_down'
       END AS excluded
FROM (SELECT q.*, CASE WHEN q.has_details
                       THEN (SELECT x.requires FROM order_details x WHERE x.order_id = q.order_id) END AS requires
      FROM json_to_recordset($1::json) AS q (
          place bigint, ids text[], service_type text, order_id text, former_drivers text[], round integer,
          offers_per_driver bigint, warm_since timestamptz, has_details boolean) OFFSET 0) q
JOIN drivers d ON d.id = ANY (q.ids) AND d.available AND q.service_type = ANY (d.service_types)
CROSS JOIN LATERAL (SELECT count(*) AS live_offers FROM offers f
                    WHERE f.driver_id = d.id AND f.state = 'offered') held
CROSS JOIN LATERAL (SELECT bool_or(f.state = 'declined') AS declined, bool_or(f.round = q.round) AS asked
                    FROM offers f WHERE f.order_id = q.order_id AND f.driver_id = d.id) mine
