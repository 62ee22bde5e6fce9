-- count a page of open orders
WITH page AS MATERIALIZED (
    SELECT id, area_id, service_type, status, held_for_review, attempt_no, round, next_attempt_at, poll_no,
           next_poll_at, lifetime_deadline, coalesce(starts_at, created_at) AS waits_since, created_at
    FROM orders WHERE closed_at IS NULL AND id > $1 ORDER BY id LIMIT $2),
judged AS (
    SELECT page.*, area_id IS NOT NULL AND status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING')
              AND lifetime_deadline > (SELECT dispatchq_now())
              AND (w.seconds IS NULL
                   OR waits_since > (SELECT dispatchq_now()) - w.seconds * interval '1 second') AS waits
    FROM page LEFT JOIN unnest($3::text[], $4::text[], $5::bigint[]) AS w (area, service, seconds)
         ON w.area = area_id AND w.service = service_type)
SELECT CASE WHEN waits THEN area_id END AS area_id, CASE WHEN waits THEN service_type END AS service_type,
       status, count(*) AS orders, min(waits_since) AS oldest,
       count(*) FILTER (WHERE held_for_review) AS held,
       count(*) FILTER (WHERE status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING')
                          AND (attempt_no > 1 OR round > 1
                               OR (attempt_no = 1 AND next_attempt_at IS NOT NULL))) AS retrying,
       count(*) FILTER (WHERE status = 'PENDING_JOB_ID' AND poll_no > 0
                          AND next_poll_at IS NOT NULL) AS retrievals,
       (SELECT max(id) FROM page) AS last
FROM judged GROUP BY 1, 2, 3
