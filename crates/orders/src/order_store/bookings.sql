,
c AS MATERIALIZED (
    SELECT c.* FROM json_to_recordset($4::json) AS c (
        order_id text, is_newly_known boolean, attempt_no integer, partner text, state text, booking_id text,
        job_id text, tries integer, next_try_at timestamptz, last_error text, created_at timestamptz,
        booked_at timestamptz, assigned_at timestamptz, closed_at timestamptz, places jsonb)
    JOIN u ON u.id = c.order_id),
b AS (
    INSERT INTO bookings (order_id, attempt_no, partner, state, booking_id, job_id, tries, next_try_at,
                          last_error, created_at, booked_at, assigned_at, closed_at, places)
    SELECT order_id, attempt_no, partner, state, booking_id, job_id, tries, next_try_at, last_error, created_at,
           booked_at, assigned_at, closed_at, places FROM c
    ON CONFLICT (order_id, attempt_no) DO UPDATE
       SET state = excluded.state, booking_id = excluded.booking_id, job_id = excluded.job_id,
           tries = excluded.tries, next_try_at = excluded.next_try_at, last_error = excluded.last_error,
           booked_at = excluded.booked_at, assigned_at = excluded.assigned_at, closed_at = excluded.closed_at,
           places = coalesce(excluded.places, bookings.places))
