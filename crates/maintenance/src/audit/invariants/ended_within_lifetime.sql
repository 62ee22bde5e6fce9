SELECT o.id, 'still ' || o.status || ' ' || (dispatchq_now() - o.lifetime_deadline) || ' past its lifetime'
FROM orders o
WHERE o.closed_at IS NULL AND o.status IN ('SCHEDULED', 'PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING', 'COMPENSATING')
  AND NOT o.lifetime_waived AND NOT o.held_for_review
  AND dispatchq_now() > o.lifetime_deadline + interval '30 seconds'
UNION ALL
SELECT o.order_id, 'ended ' || (o.closed_at - o.lifetime_deadline) || ' past its lifetime'
FROM audit_orders o
WHERE o.status IN ('CANCELLED_BY_SYSTEM', 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT')
  AND o.closed_at > o.lifetime_deadline + interval '30 seconds'
  AND NOT EXISTS (SELECT 1 FROM audit_events e WHERE e.order_id = o.order_id
                  AND e.reason IN ('HELD_FOR_REVIEW', 'NO_CANDIDATES'))
