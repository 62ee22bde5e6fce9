SELECT binding_id, 'cycle ' || cycle || ' follows cycle ' || before
FROM (SELECT t.binding_id, t.cycle,
             lag(t.cycle, 1, b.removed_through) OVER (PARTITION BY t.binding_id ORDER BY t.cycle) AS before
      FROM audit_transactions t JOIN audit_bindings b USING (binding_id)
      WHERE t.cycle > b.removed_through) c
WHERE cycle <> before + 1
UNION ALL
SELECT b.binding_id, 'has started ' || b.cycle || ' cycles and the last header is of cycle '
       || greatest(coalesce(t.last, 0), b.removed_through)
FROM audit_bindings b
LEFT JOIN (SELECT binding_id, max(cycle) AS last FROM audit_transactions GROUP BY binding_id) t USING (binding_id)
WHERE greatest(coalesce(t.last, 0), b.removed_through) <> b.cycle
UNION ALL
SELECT DISTINCT t.binding_id, 'has transactions but is not a binding' FROM audit_transactions t
WHERE NOT EXISTS (SELECT 1 FROM audit_bindings b WHERE b.binding_id = t.binding_id)
