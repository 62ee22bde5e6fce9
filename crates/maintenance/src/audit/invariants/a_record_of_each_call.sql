SELECT t.binding_id, t.trx_id || ' has no call' FROM audit_transactions t
WHERE NOT EXISTS (SELECT 1 FROM audit_provider_calls c
                  WHERE c.binding_id = t.binding_id AND c.cycle = t.cycle AND c.part = 'claim')
UNION ALL
SELECT c.binding_id, 'call ' || c.call_no || ' of cycle ' || c.cycle || ' has no end'
FROM audit_provider_calls c LEFT JOIN audit_bindings b USING (binding_id)
WHERE c.part = 'claim' AND (b.phase = 'CALLING' AND b.call_no = c.call_no) IS NOT TRUE
  AND NOT EXISTS (SELECT 1 FROM audit_provider_calls e
                  WHERE e.binding_id = c.binding_id AND e.cycle = c.cycle AND e.call_no = c.call_no
                    AND e.part = 'end')
UNION ALL
SELECT e.binding_id, 'call ' || e.call_no || ' of cycle ' || e.cycle || ' has an end but no claim'
FROM audit_provider_calls e
WHERE e.part = 'end'
  AND NOT EXISTS (SELECT 1 FROM audit_provider_calls c
                  WHERE c.binding_id = e.binding_id AND c.cycle = e.cycle AND c.call_no = e.call_no
                    AND c.part = 'claim')
