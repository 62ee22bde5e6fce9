-- orders of the fleet map
WITH newest AS MATERIALIZED (
    SELECT id, status, searching, on_trip, partner, driver_id, pickup_lat, pickup_lng FROM orders
    WHERE closed_at IS NULL ORDER BY created_at DESC, id DESC LIMIT $5
)
SELECT c.read, o.id, o.status, o.pickup_lat AS lat, o.pickup_lng AS lng,
       CASE WHEN o.on_trip AND o.partner IS NULL THEN o.driver_id END AS driver
FROM (SELECT count(*) AS read FROM newest) c
LEFT JOIN newest o ON (o.searching OR o.on_trip) AND o.pickup_lat BETWEEN $1 AND $3 AND o.pickup_lng BETWEEN $2 AND $4
