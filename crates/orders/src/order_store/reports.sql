,
m AS (
    INSERT INTO outbox (message_id, order_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
    SELECT r.message_id, o.id, f.kind, r.channel, f.seq::text, dispatchq_step_payload(r.payload, f.seq, o.status, o.created_at),
           o.created_at, o.created_at + r.lifetime_s * interval '1 second', o.created_at
    FROM f JOIN o ON o.id = f.order_id JOIN c ON c.id = f.order_id
    CROSS JOIN LATERAL json_to_recordset(c.reports) AS r (
        message_id uuid, kind text, channel text, payload jsonb, lifetime_s bigint)
    WHERE r.kind = f.kind ORDER BY f.seq
    RETURNING id, order_id)
