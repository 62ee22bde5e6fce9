-- Several partners may serve one service type: attempts of one order are booked with different ones.

COMMENT ON COLUMN orders.partner IS 'the partner of the latest attempt, before it the one that comes first for the service type; null for the own fleet';
COMMENT ON COLUMN bookings.partner IS 'who is booked; from the intent on the booking stays with it';
COMMENT ON COLUMN service_types.partner IS 'the partner that comes first; null for the own fleet';

CREATE OR REPLACE VIEW audit_bookings AS
    SELECT order_id, attempt_no, booking_id, job_id, state, created_at, closed_at, partner
    FROM bookings;
