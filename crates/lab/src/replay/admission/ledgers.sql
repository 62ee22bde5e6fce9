-- replay counts of admission by all tables
-- Rows of table, area, line and count. An answer with cause 'unavailable' names no area, and the client retries.
SELECT 'counts', x.area_id, x.line, x.requests FROM (
    WITH c AS (SELECT *, CASE verdict WHEN 'REFUSED' THEN 'refused' WHEN 'BYPASSED' THEN 'bypassed'
                                      WHEN 'WOULD_REFUSE' THEN 'in_shadow' END AS met,
                      CASE source WHEN 'check' THEN 'checks_' ELSE 'creations_' END AS asked FROM admission_counts)
    SELECT area_id, line, sum(requests)::bigint FROM (
        SELECT area_id, met AS line, requests FROM c
        UNION ALL SELECT area_id, asked || met, requests FROM c WHERE cause <> 'unavailable'
        UNION ALL SELECT area_id, 'server_busy', requests FROM c
                  WHERE met = 'refused' AND cause IN ('threshold', 'disabled', 'forced')
        UNION ALL SELECT area_id, 'threshold_reached', requests FROM c WHERE cause = 'threshold') lines
    WHERE line IS NOT NULL GROUP BY 1, 2) x (area_id, line, requests)
UNION ALL
SELECT 'orders', x.area_id, x.line, x.requests FROM (
    SELECT coalesce(area_id, ''), CASE admission WHEN 'BYPASSED' THEN 'creations_bypassed' ELSE 'creations_in_shadow' END,
           count(*) FROM orders WHERE admission IN ('BYPASSED', 'WOULD_REFUSE') GROUP BY 1, 2) x (area_id, line, requests)
UNION ALL
SELECT 'shadow_refusals', x.area_id, x.line, x.requests FROM (
    SELECT area_id, CASE source WHEN 'check' THEN 'checks_in_shadow' ELSE 'creations_in_shadow' END, count(*)
    FROM shadow_refusals GROUP BY 1, 2) x (area_id, line, requests)
UNION ALL
SELECT 'snapshots', x.area_id, x.line, x.requests FROM (
    SELECT area_id, line, sum(requests)::bigint
    FROM waiting_snapshots,
         LATERAL (VALUES ('refused', rejected), ('bypassed', bypassed), ('in_shadow', would_reject)) l (line, requests)
    GROUP BY 1, 2) x (area_id, line, requests)
