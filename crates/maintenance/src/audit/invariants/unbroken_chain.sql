SELECT order_id, 'event ' || seq || ' starts from ' || coalesce(from_status, 'nothing') || ' after '
       || coalesce(before, 'nothing')
FROM (SELECT order_id, seq, from_status,
             lag(to_status) OVER (PARTITION BY order_id ORDER BY seq) AS before
      FROM audit_events) e
WHERE from_status IS DISTINCT FROM before
UNION ALL
SELECT o.order_id, 'is ' || o.status || ' but its history ends in ' || coalesce(e.to_status, 'nothing')
FROM audit_orders o
LEFT JOIN (SELECT DISTINCT ON (order_id) order_id, to_status FROM audit_events ORDER BY order_id, seq DESC) e USING (order_id)
WHERE e.to_status IS DISTINCT FROM o.status
