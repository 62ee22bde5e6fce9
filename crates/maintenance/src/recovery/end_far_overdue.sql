-- orders far past their lifetime
WITH page AS MATERIALIZED (
    SELECT id, status, lifetime_waived, lifetime_deadline, updated_at, held_for_review
    FROM orders WHERE closed_at IS NULL AND id > $1 ORDER BY id LIMIT $3),
t AS (SELECT max(id) AS last, dispatchq_now() - $2 * interval '1 second' AS long_ago FROM page)
SELECT t.last, array(
    SELECT id FROM page
    WHERE NOT held_for_review
      AND ((status IN ('SCHEDULED', 'PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING') AND NOT lifetime_waived
            AND lifetime_deadline <= t.long_ago)
           OR (status = 'COMPENSATING' AND updated_at < t.long_ago))
    ORDER BY id)
FROM t
