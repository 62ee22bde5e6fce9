,
k AS (
    INSERT INTO idempotency_keys (holder_id, key, request_hash, work_id, status, body)
    SELECT c.holder, c.key, decode(c.request_hash, 'hex'), c.work_id, 201,
           jsonb_strip_nulls(jsonb_build_object(
               'area_id', o.area_id, 'customer_id', o.customer_id, 'language', o.language, 'channel', o.channel,
               'loyalty_level', o.loyalty_level, 'admission', o.admission, 'amount_minor', o.amount_minor,
               'currency', o.currency, 'partner', o.partner,
               'paid_at', CASE WHEN o.paid_at IS NOT NULL THEN d.created_at END))
           || jsonb_build_object(
               'order_id', o.id, 'status', o.status, 'service_type', o.service_type,
               'payment_status', o.payment_status, 'driver_id', NULL, 'attempt_no', o.attempt_no,
               'held_for_review', o.held_for_review,
               'pickup', jsonb_build_object('latitude', o.pickup_lat, 'longitude', o.pickup_lng),
               'next', jsonb_build_object('action', 'NEXT_ATTEMPT', 'at', d.created_at, 'in_sec', 0),
               'created_at', d.created_at, 'lifetime_deadline', d.lifetime_deadline,
               'lifetime_left_sec', floor(extract(epoch FROM o.lifetime_deadline - o.created_at)),
               'closed_at', NULL)
    FROM o JOIN c ON c.id = o.id CROSS JOIN LATERAL (
        SELECT replace(to_char(o.created_at AT TIME ZONE 'UTC', f.form), '.000Z', 'Z') AS created_at,
               replace(to_char(o.lifetime_deadline AT TIME ZONE 'UTC', f.form), '.000Z', 'Z') AS lifetime_deadline
        FROM (SELECT 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"' AS form) f) d
    WHERE c.key IS NOT NULL)
