-- write contents
WITH o AS (
    UPDATE orders SET pickup_lat = $2, pickup_lng = $3, has_details = true WHERE id = $1 RETURNING created_at)
INSERT INTO order_details AS d (order_id, pickup_address, dropoff_lat, dropoff_lng, dropoff_address, notes, contact,
                                metadata, requires, created_at, version)
SELECT r.order_id, r.pickup_address, r.dropoff_lat, r.dropoff_lng, r.dropoff_address, r.notes, r.contact, r.metadata,
       r.requires, r.created_at, 1
FROM o CROSS JOIN LATERAL dispatchq_details_row($1, $4, o.created_at) r
ON CONFLICT (order_id) DO UPDATE
   SET pickup_address = excluded.pickup_address, dropoff_lat = excluded.dropoff_lat,
       dropoff_lng = excluded.dropoff_lng, dropoff_address = excluded.dropoff_address, notes = excluded.notes,
       contact = excluded.contact, metadata = excluded.metadata, requires = excluded.requires, version = d.version + 1
