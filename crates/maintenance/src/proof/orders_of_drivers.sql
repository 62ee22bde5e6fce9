-- orders of drivers with several
WITH wanted AS (
    SELECT driver_id FROM orders WHERE id = ANY ($1) AND on_trip AND driver_id NOT LIKE '%:%'
    UNION
    SELECT unnest($2::text[])),
-- A driver has few active orders among many old ones, and the active ones are the latest.
active AS (
    SELECT latest.id, count(*) OVER (PARTITION BY w.driver_id) AS orders
    FROM wanted w
    CROSS JOIN LATERAL (SELECT o.id, o.on_trip FROM orders o WHERE o.driver_id = w.driver_id
                        ORDER BY o.created_at DESC, o.id DESC LIMIT 20) latest
    WHERE latest.on_trip)
SELECT id FROM active WHERE orders > 1
