-- move times of an order
WITH moved AS (
    UPDATE orders o
    SET attempt_deadline = o.attempt_deadline - t.passed, next_wave_at = o.next_wave_at - t.passed,
        next_attempt_at = o.next_attempt_at - t.passed, next_poll_at = o.next_poll_at - t.passed,
        lifetime_deadline = o.lifetime_deadline - t.passed, pickup_at = o.pickup_at - t.passed,
        starts_at = o.starts_at - t.passed, warn_at = o.warn_at - t.passed,
        trip_deadline = o.trip_deadline - t.passed, version = o.version + 1
    FROM (SELECT $3::bigint * interval '1 millisecond' AS passed) t
    WHERE o.id = $1 AND o.version = $2
    RETURNING o.id, o.attempt_no, o.attempt_deadline IS NOT NULL AS has_attempt, t.passed),
-- all offers of an attempt have its deadline
offered AS (
    UPDATE offers f SET expires_at = f.expires_at - m.passed, version = f.version + 1
    FROM moved m WHERE m.has_attempt AND f.order_id = m.id AND f.attempt_no = m.attempt_no)
SELECT id FROM moved
