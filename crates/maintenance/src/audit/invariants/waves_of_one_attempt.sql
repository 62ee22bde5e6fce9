SELECT order_id, 'the offers of attempt ' || attempt_no || ' have ' || count(DISTINCT expires_at) || ' deadlines'
FROM audit_offers GROUP BY order_id, attempt_no HAVING count(DISTINCT expires_at) > 1
UNION ALL
SELECT order_id, 'wave ' || wave || ' of attempt ' || attempt_no || ' asked before wave ' || earlier
FROM (SELECT order_id, attempt_no, wave, min(offered_at) AS first,
             lag(wave) OVER waves AS earlier, lag(max(offered_at)) OVER waves AS earlier_last
      FROM audit_offers GROUP BY order_id, attempt_no, wave
      WINDOW waves AS (PARTITION BY order_id, attempt_no ORDER BY wave)) w
WHERE first < earlier_last
