-- insert replayed steps
WITH n AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::jsonb[])
        WITH ORDINALITY AS n (message_id, order_id, kind, seq, payload, place)),
-- The lock keeps the cleanup from removing the order before its message is visible.
kept AS MATERIALIZED (
    SELECT id FROM orders WHERE id = ANY ($2) ORDER BY id FOR KEY SHARE)
INSERT INTO outbox (message_id, order_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
SELECT coalesce(
           (SELECT m.message_id FROM outbox m
            WHERE m.order_id = n.order_id AND m.kind = n.kind AND m.channel = $6 AND m.dedupe_key = n.seq),
           n.message_id),
       n.order_id, n.kind, $6, 'replay:' || $7::bigint || ':' || n.seq, n.payload, $8, $9, $8
FROM n JOIN kept ON kept.id = n.order_id
ORDER BY n.place
ON CONFLICT DO NOTHING RETURNING id, order_id
