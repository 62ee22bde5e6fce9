,
k AS (
    INSERT INTO idempotency_keys (holder_id, key, request_hash, work_id, status, body)
    SELECT c.holder, c.key, decode(c.request_hash, 'hex'), c.work_id, 201,
           jsonb_build_object('order_id', o.id, 'created', jsonb_strip_nulls(jsonb_build_object(
               'payment_status', o.payment_status, 'partner', o.partner,
               'pickup_at', o.pickup_at, 'starts_at', o.starts_at,
               'lifetime_deadline', CASE WHEN o.starts_at IS NOT NULL THEN o.lifetime_deadline END)))
    FROM o JOIN c ON c.id = o.id WHERE c.key IS NOT NULL)
