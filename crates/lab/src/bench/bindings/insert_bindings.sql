-- bench: idle bindings
WITH b AS (
    INSERT INTO bindings (id, server_id, account_id, state, config, next_at, version, created_at, updated_at)
    SELECT 'B-' || lpad(n::text, 6, '0'), 'S-' || lpad(((n - 1) % $3::bigint + 1)::text, 4, '0'),
           'A-' || lpad(n::text, 6, '0'), 'RUNNING', $4::jsonb,
           dispatchq_now() + interval '12 hours' + n * interval '10 milliseconds', 1,
           dispatchq_now(), dispatchq_now()
    FROM generate_series($1::bigint + 1, $2::bigint) n
    RETURNING id, created_at)
INSERT INTO binding_events (binding_id, at, kind, actor, cycle)
SELECT b.id, b.created_at, kind, 'operator:bench', 0
FROM b CROSS JOIN unnest(ARRAY['created', 'started']) AS kind
