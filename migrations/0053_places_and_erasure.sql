-- Orders that wait are found by place and age; what tells of a driver is found or walked in steps.

-- The cells of the map are squares of a twentieth of a degree, some 5.5 km from south to north. Of each the oldest orders that wait
-- are read in order, so a look at a few cells costs the same however many wait elsewhere. No column in it changes while an order waits.
CREATE INDEX orders_waiting_by_place ON orders (service_type, floor(pickup_lat * 20), floor(pickup_lng * 20), created_at, id)
    WHERE status = 'DISPATCHING' AND partner IS NULL;
