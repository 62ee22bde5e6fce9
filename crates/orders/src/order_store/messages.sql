,
m AS (
    INSERT INTO outbox (message_id, order_id, kind, channel, dedupe_key, payload, attempts, next_attempt_at, expires_at,
                        created_at)
    SELECT m.message_id, m.order_id, m.kind, m.channel, {dedupe_key}, {payload},
           CASE WHEN q.is_paused THEN 0 ELSE m.attempts END, CASE WHEN q.is_paused THEN m.at ELSE m.due_at END,
           m.expires_at, m.at
    FROM ROWS FROM (json_to_recordset($6::json) AS (
        message_id uuid, order_id text, kind text, channel text, dedupe_key text, payload jsonb, attempts integer,
        at timestamptz, due_at timestamptz, expires_at timestamptz, step_no bigint)) WITH ORDINALITY
        AS m (message_id, order_id, kind, channel, dedupe_key, payload, attempts, at, due_at, expires_at, step_no, place)
    JOIN u ON u.id = m.order_id {numbered}
    -- While an operator pauses the messages, nothing is claimed.
    CROSS JOIN (SELECT EXISTS (SELECT 1 FROM paused_queues WHERE queue = 'notify-queue') AS is_paused) q
    ORDER BY m.place
    ON CONFLICT DO NOTHING RETURNING id, order_id, message_id, attempts)
