-- job ids and polls for them
WITH first AS (SELECT DISTINCT ON (e.order_id) e.reason, extract(epoch FROM e.at - o.created_at)::float8 AS wall_s
               FROM order_events e JOIN orders o ON o.id = e.order_id
               WHERE e.reason IN ('JOB_ID_VIA_CALLBACK', 'JOB_ID_VIA_PROACTIVE')
               ORDER BY e.order_id, e.seq),
     questions AS (SELECT substring(e.detail FROM 'after ([0-9]+) polls')::bigint AS asked,
                          greatest(ceil(extract(epoch FROM e.at - b.booked_at)::float8 * $1 / $2), 1) AS naive
                   FROM order_events e JOIN bookings b USING (order_id, attempt_no)
                   WHERE e.reason IN ('JOB_ID_VIA_CALLBACK', 'JOB_ID_VIA_PROACTIVE'))
SELECT count(*) AS orders, count(*) FILTER (WHERE reason = 'JOB_ID_VIA_CALLBACK') AS via_callback,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY wall_s) AS p50_s,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY wall_s) AS p95_s,
       (SELECT coalesce(sum(asked), 0)::bigint FROM questions) AS asked,
       (SELECT coalesce(sum(naive), 0)::bigint FROM questions) AS naive,
       (SELECT count(*) FROM orders o WHERE o.held_for_review
           OR EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = o.id)) AS manual
FROM first
