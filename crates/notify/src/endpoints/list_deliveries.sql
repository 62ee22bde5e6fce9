-- deliveries of endpoint
SELECT m.id AS message, a.attempt_no, m.message_id, m.kind, m.payload, m.state, a.at, a.error
FROM outbox m JOIN outbox_attempts a ON a.outbox_id = m.id
WHERE starts_with(m.channel, 'endpoint:') AND m.channel = $1
  AND ($2::bigint IS NULL OR m.id <= $2)
  AND ($2::bigint IS NULL OR (m.id, a.attempt_no) < ($2, $3))
ORDER BY m.id DESC, a.attempt_no DESC LIMIT $4
