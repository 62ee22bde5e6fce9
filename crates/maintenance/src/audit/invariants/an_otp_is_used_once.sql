WITH tries AS (
    SELECT c.binding_id, c.cycle, c.call_no, e.at AS ended_at,
           lead(c.call_no) OVER calls AS next_no, lead(c.at) OVER calls AS next_at,
           e.result NOT IN ('lost', 'late_refused', 'throttled', 'unavailable', 'unreachable') AS has_outcome
    FROM audit_provider_calls c
    LEFT JOIN audit_provider_calls e
        ON e.binding_id = c.binding_id AND e.cycle = c.cycle AND e.call_no = c.call_no AND e.part = 'end'
    WHERE c.part = 'claim' AND c.action = 'otp'
    WINDOW calls AS (PARTITION BY c.binding_id, c.cycle ORDER BY c.call_no))
SELECT a.binding_id, 'call ' || a.next_no || ' of cycle ' || a.cycle || ' sends the OTP that call ' || a.call_no
       || ' had used up'
FROM tries a
WHERE a.has_outcome AND a.next_no IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM audit_binding_events s
                  WHERE s.binding_id = a.binding_id AND s.kind = 'otp_submitted'
                    AND s.at BETWEEN a.ended_at AND a.next_at)
  -- only as far back as the binding's history
  AND EXISTS (SELECT 1 FROM audit_binding_events s WHERE s.binding_id = a.binding_id AND s.at <= a.ended_at)
UNION ALL
SELECT t.binding_id, count(*) || ' OTPs of cycle ' || t.cycle || ' had an outcome, of ' || max(b.otp_attempts)
FROM tries t JOIN audit_bindings b USING (binding_id)
WHERE t.has_outcome
GROUP BY t.binding_id, t.cycle
-- the allowed number may have been reduced since
HAVING count(*) > max(b.otp_attempts)
   AND (count(*) > 10 OR NOT EXISTS (SELECT 1 FROM audit_binding_events p WHERE p.binding_id = t.binding_id
                                     AND p.kind = 'patched' AND p.at >= max(t.ended_at)))
UNION ALL
SELECT binding_id, 'keeps an OTP while ' || phase FROM audit_bindings
WHERE otp_stored AND phase <> 'WAITING_OTP' AND call_action IS DISTINCT FROM 'otp'
