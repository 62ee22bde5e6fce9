-- A driver who vanishes after accepting: the next step of a trip has a deadline, after which support is told.
ALTER TABLE orders ADD COLUMN trip_deadline timestamptz(3);
COMMENT ON COLUMN orders.trip_deadline IS 'with a driver: when the next step is overdue; null once support was told, or when none is configured';
-- Trips under way get the default.
UPDATE orders SET trip_deadline = dispatchq_now() + interval '12 hours'
WHERE status IN ('DRIVER_ASSIGNED', 'PICKED_UP') AND closed_at IS NULL;
