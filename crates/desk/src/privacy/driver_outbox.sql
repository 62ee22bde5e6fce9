-- erase driver from outbox
WITH page AS MATERIALIZED (
    SELECT id, kind IN ('ASSIGNED', 'UNASSIGNED', 'UPDATED') AND starts_with(dedupe_key, $1::text || '-') AS names_key,
           strpos(payload::text, to_json($1::text)::text) > 0 AS names_driver
    FROM outbox WHERE id > ($2::text[])[1]::bigint ORDER BY id LIMIT $3),
renamed AS (
    UPDATE outbox m
    SET payload = replace(m.payload::text, to_json($1::text)::text, to_json($4::text)::text)::jsonb,
        dedupe_key = CASE WHEN p.names_key THEN $4::text || substr(m.dedupe_key, length($1::text) + 1) ELSE m.dedupe_key END,
        last_error = NULL
    FROM page p WHERE (p.names_driver OR p.names_key) AND m.id = p.id)
SELECT ARRAY[id::text] FROM page ORDER BY page.id DESC LIMIT 1
