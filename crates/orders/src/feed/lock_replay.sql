-- lock replay
SELECT r.endpoint_id, r.run, r.position, r.seq, r.until, e.producer, e.events,
       (SELECT count(*) >= $2 FROM (
            SELECT FROM outbox m
            WHERE starts_with(m.channel, 'endpoint:') AND m.channel = 'endpoint:' || r.endpoint_id AND m.state = 'pending'
            LIMIT $2) pending) AS is_crowded
FROM webhook_replays r JOIN webhook_endpoints e ON e.id = r.endpoint_id
WHERE r.endpoint_id = $1 AND r.next_step_at <= dispatchq_now() AND e.state = 'active'
FOR UPDATE OF r SKIP LOCKED
