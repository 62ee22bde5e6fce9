,
ct AS MATERIALIZED (
    SELECT ct.* FROM json_to_recordset($14::json) AS ct (
        order_id text, details jsonb, created_at timestamptz, pickup_lat float8, pickup_lng float8,
        is_offered boolean, is_moved boolean)
    JOIN u ON u.id = ct.order_id),
dr AS (
    INSERT INTO order_details AS o (order_id, pickup_address, dropoff_lat, dropoff_lng, dropoff_address, notes, contact,
                                    metadata, requires, created_at, version)
    SELECT w.order_id, w.pickup_address, w.dropoff_lat, w.dropoff_lng, w.dropoff_address, w.notes, w.contact,
           w.metadata, w.requires, w.created_at, 1
    FROM ct CROSS JOIN LATERAL dispatchq_details_row(ct.order_id, ct.details, ct.created_at) w
    ON CONFLICT (order_id) DO UPDATE
       SET pickup_address = excluded.pickup_address, dropoff_lat = excluded.dropoff_lat,
           dropoff_lng = excluded.dropoff_lng, dropoff_address = excluded.dropoff_address, notes = excluded.notes,
           contact = excluded.contact, metadata = excluded.metadata, requires = excluded.requires,
           version = o.version + 1),
lo AS (
    UPDATE offers
    SET version = offers.version + 1,
        distance_m = CASE WHEN ct.is_moved THEN dispatchq_distance_m(w.lat, w.lng, ct.pickup_lat, ct.pickup_lng)
                          ELSE offers.distance_m END
    FROM ct CROSS JOIN drivers w
    WHERE ct.is_offered AND offers.order_id = ct.order_id AND offers.state || '' = 'offered'
      AND w.id = offers.driver_id)
