-- orders to reconcile
WITH page AS MATERIALIZED (
    SELECT id, status, partner, attempt_no, round, attempt_deadline, wave_no, next_wave_at,
           next_attempt_at, poll_no, next_poll_at,
           lifetime_deadline, warn_at, lifetime_waived, trip_deadline, held_for_review, updated_at
    FROM orders WHERE closed_at IS NULL AND id > $1 ORDER BY id LIMIT $3),
t AS (SELECT max(id) AS last, dispatchq_now() AS now FROM page)
SELECT t.last, t.now, page.* FROM t LEFT JOIN page ON NOT held_for_review
  AND ($2::float8 IS NULL
       OR (status = 'COMPENSATING' AND updated_at < t.now - $2 * interval '1 second')
       OR (status IN ('SCHEDULED', 'PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING')
           AND least(attempt_deadline, next_wave_at, next_attempt_at, next_poll_at, warn_at,
                     CASE WHEN NOT lifetime_waived THEN lifetime_deadline END)
               < t.now - $2 * interval '1 second')
       OR (status IN ('DRIVER_ASSIGNED', 'PICKED_UP')
           AND least(next_poll_at, trip_deadline) < t.now - $2 * interval '1 second'))
ORDER BY page.id
