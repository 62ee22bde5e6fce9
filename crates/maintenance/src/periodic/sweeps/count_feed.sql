-- count old steps
WITH RECURSIVE pages (found, position, seq) AS (
    SELECT 0::bigint, 0::bigint, 0::bigint
    UNION ALL
    SELECT page.found, page.position, page.seq
    FROM pages p CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE f.at < $1) AS found,
               (array_agg(f.position ORDER BY f.position DESC, f.seq DESC))[1] AS position,
               (array_agg(f.seq ORDER BY f.position DESC, f.seq DESC))[1] AS seq
        FROM (SELECT position, seq, at FROM order_feed WHERE (position, seq) > (p.position, p.seq)
              ORDER BY position, seq LIMIT 1000) f) page
    WHERE page.found > 0)
SELECT sum(found)::bigint FROM pages
