-- audit of areas
SELECT id, at, actor, what, area_id, reason,
       CASE WHEN jsonb_typeof(before -> 'geometry') = 'object'
            THEN before - 'geometry' || jsonb_build_object('geometry_sha256',
                     encode(sha256(convert_to(before ->> 'geometry', 'UTF8')), 'hex'))
            ELSE before END AS before,
       CASE WHEN jsonb_typeof(after -> 'geometry') = 'object'
            THEN after - 'geometry' || jsonb_build_object('geometry_sha256',
                     encode(sha256(convert_to(after ->> 'geometry', 'UTF8')), 'hex'))
            ELSE after END AS after
FROM admission_audit
WHERE ($1::text IS NULL OR area_id = $1) AND ($2::bigint IS NULL OR id < $2) ORDER BY id DESC LIMIT $3
