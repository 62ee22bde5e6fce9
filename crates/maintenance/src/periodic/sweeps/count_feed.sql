-- count old steps
WITH RECURSIVE pages (found, tx, seq) AS (
    SELECT 0::bigint, '0'::xid8, 0::bigint
    UNION ALL
    SELECT page.found, page.tx, page.seq
    FROM pages p CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE f.at < $1) AS found,
               (array_agg(f.tx ORDER BY f.tx DESC, f.seq DESC))[1] AS tx,
               (array_agg(f.seq ORDER BY f.tx DESC, f.seq DESC))[1] AS seq
        FROM (SELECT tx, seq, at FROM order_feed WHERE (tx, seq) > (p.tx, p.seq)
              ORDER BY tx, seq LIMIT 1000) f) page
    WHERE page.found > 0)
SELECT sum(found)::bigint FROM pages
