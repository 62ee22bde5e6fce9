-- erase driver from violations
WITH page AS MATERIALIZED (
    SELECT id, subject = $1::text OR $1::text = ANY (regexp_split_to_array(detail, '[^A-Za-z0-9_:-]+'))
               OR ($1::text ~ '[^A-Za-z0-9_:-]' AND strpos(detail, $1::text) > 0) AS names_driver
    FROM proof_violations WHERE id > ($2::text[])[1]::bigint ORDER BY id LIMIT $3),
renamed AS (
    UPDATE proof_violations v
    SET subject = CASE WHEN v.subject = $1::text THEN $4::text ELSE v.subject END,
        detail = left(replace(v.detail, $1::text, $4::text), 2000)
    FROM page p WHERE p.names_driver AND v.id = p.id)
SELECT ARRAY[id::text] FROM page ORDER BY page.id DESC LIMIT 1
