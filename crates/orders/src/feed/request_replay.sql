-- request replay
INSERT INTO webhook_replays AS r (endpoint_id, position, seq, next_step_at)
VALUES ($1, $2, $3, dispatchq_now() + $4 * interval '1 second')
-- A running replay continues from the earlier cursor, under another run, so that it sends each step again.
ON CONFLICT (endpoint_id) DO UPDATE
SET run = DEFAULT, until = NULL, next_step_at = excluded.next_step_at,
    position = CASE WHEN (excluded.position, excluded.seq) < (r.position, r.seq) THEN excluded.position ELSE r.position END,
    seq = CASE WHEN (excluded.position, excluded.seq) < (r.position, r.seq) THEN excluded.seq ELSE r.seq END
