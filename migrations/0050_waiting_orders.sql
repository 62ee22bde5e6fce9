-- Orders of the own fleet that wait for a driver are found the oldest first when one is free.

-- Metres between two places, on a sphere, as the ranking of drivers measures it.
CREATE FUNCTION dispatchq_distance_m(lat_a float8, lng_a float8, lat_b float8, lng_b float8) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 2 * 6371008.8 * asin(sqrt(least(1.0,
        sin(radians(lat_b - lat_a) / 2) ^ 2
        + cos(radians(lat_a)) * cos(radians(lat_b)) * sin(radians(lng_b - lng_a) / 2) ^ 2)))
$$;

-- No column in it changes while an order waits.
CREATE INDEX orders_waiting_by_age ON orders (service_type, created_at, id)
    WHERE status = 'DISPATCHING' AND partner IS NULL;
