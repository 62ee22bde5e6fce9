-- record proof slice
-- $1 slices so far, $2 position, $3 seq, $4 event, $5 steps of the slice, $6 proven at, $7 walk, $8 processor time in us,
-- $9 violations that were checked again and not found, $10 invariants of the rounds in Redis that ended, $11 start of
-- each round, $12 to $15 invariant, subject, detail and order of each violation found
-- If another slice was recorded since the place was read, no row changes.
WITH moved AS (
    UPDATE proof_place
    SET position = $2, seq = $3, event = greatest(event, $4), steps = steps + $5, proven_at = $6, walk = $7,
        cpu_us = cpu_us + $8, slices = slices + 1
    WHERE slices = $1
    RETURNING (SELECT dispatchq_now()) AS at),
found AS (
    SELECT * FROM unnest($12::text[], $13::text[], $14::text[], $15::text[]) AS f (invariant, subject, detail, order_id)
    -- The slice may have read a driver whose erasure has passed this table since.
    WHERE NOT EXISTS (SELECT 1 FROM erasures e
                      WHERE e.subject = 'driver' AND e.erased_at > (SELECT dispatchq_now()) - interval '10 minutes'
                        AND (f.subject = e.subject_id OR strpos(f.detail, e.subject_id) > 0))),
gone AS (
    UPDATE proof_violations v SET gone_at = moved.at
    FROM moved
    WHERE v.gone_at IS NULL
      AND (v.id = ANY ($9)
           OR EXISTS (SELECT 1 FROM unnest($10::text[], $11::timestamptz[]) AS r (invariant, begun_at)
                      WHERE r.invariant = v.invariant AND v.seen_at < r.begun_at))
      AND NOT EXISTS (SELECT 1 FROM found f WHERE f.invariant = v.invariant AND f.subject = v.subject)
    RETURNING v.id),
written AS (
    INSERT INTO proof_violations AS v (invariant, subject, detail, order_id, event_seq, event, step, found_at, seen_at)
    SELECT f.invariant, f.subject, left(f.detail, 2000),
           coalesce(o.id, CASE WHEN f.order_id = f.subject THEN f.order_id END), e.seq, e.reason, $4, moved.at, moved.at
    FROM moved
    CROSS JOIN found f
    LEFT JOIN orders o ON o.id = f.order_id
    LEFT JOIN LATERAL (SELECT e.seq, e.reason FROM audit_events e
                       WHERE e.order_id = f.order_id AND e.at >= o.created_at ORDER BY e.seq DESC LIMIT 1) e ON true
    ON CONFLICT (invariant, subject) WHERE gone_at IS NULL DO UPDATE SET seen_at = excluded.seen_at
    RETURNING v.id, v.invariant, xmax = 0 AS is_new),
counted AS (
    INSERT INTO proof_counts AS c (invariant, found)
    SELECT invariant, count(*) FROM written WHERE is_new GROUP BY invariant
    ON CONFLICT (invariant) DO UPDATE SET found = c.found + excluded.found)
SELECT EXISTS (SELECT 1 FROM moved) AS was_recorded, ARRAY(SELECT id FROM written WHERE is_new ORDER BY id) AS new
