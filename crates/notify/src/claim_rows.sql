-- claim try
WITH n AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $6::float8[]) AS n (id, jitter)),
l AS MATERIALIZED (
    SELECT id FROM outbox WHERE id = ANY ($1) AND state || '' = 'pending' AND next_attempt_at <= dispatchq_now()
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED),
claimed AS (
    UPDATE outbox m SET attempts = attempts + 1, next_attempt_at = dispatchq_now() + interval '1 second'
           * greatest($7, n.jitter * least($4, $2 * power($3, least(attempts - backoff_from, 30))))
    FROM l JOIN n ON n.id = l.id
    WHERE m.id = l.id AND m.state || '' = 'pending' AND m.next_attempt_at <= dispatchq_now()
    RETURNING m.*, n.jitter),
log AS (
    INSERT INTO outbox_attempts (outbox_id, attempt_no, at, error)
    SELECT id, attempts, dispatchq_now(), $5 FROM claimed
    UNION ALL
    -- The process that wrote the message claimed its first try with it, and died before it recorded the result.
    SELECT id, 1, created_at, $5 FROM claimed
    WHERE attempts = 2 AND NOT EXISTS (SELECT 1 FROM outbox_attempts a WHERE a.outbox_id = claimed.id)
    ON CONFLICT DO NOTHING)
SELECT m.id, message_id, order_id, binding_id, kind, m.channel, payload, state, attempts, backoff_from,
       now + jitter * interval '1 second' * least($4, $2 * power($3, least(attempts - 1 - backoff_from, 30)))
           AS next_attempt_at,
       expires_at, NULL::boolean AS offer_is_live,
       coalesce((SELECT phone FROM drivers d WHERE d.id = m.payload->>'driver_id'), u.phone) AS phone, u.email, now
FROM claimed m LEFT JOIN users u ON u.id = m.payload->>'user_id' AND u.disabled_at IS NULL,
     (SELECT dispatchq_now() AS now) clock
