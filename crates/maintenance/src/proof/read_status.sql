-- status of proof
SELECT p.event, p.proven_at, greatest(extract(epoch FROM (SELECT dispatchq_now()) - p.proven_at), 0)::float8 AS lag_seconds,
       (SELECT count(*) FROM (SELECT 1 FROM order_feed f
                              WHERE (f.position, f.seq) > (p.position, p.seq)
                              ORDER BY f.position, f.seq LIMIT 10000) later) AS lag_events,
       (SELECT count(*) FROM proof_violations WHERE gone_at IS NULL) AS open_violations, p.steps, p.cpu_us
FROM proof_place p
