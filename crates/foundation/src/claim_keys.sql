-- claim idempotency key
INSERT INTO idempotency_keys AS k (holder_id, key, request_hash, work_id, id_prefix)
SELECT n.*, $5::text FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::uuid[]) n ORDER BY 1, 2
ON CONFLICT (holder_id, key) DO UPDATE
SET request_hash = excluded.request_hash, created_at = dispatchq_now(), status = NULL, body = NULL,
    work_id = CASE WHEN k.created_at < dispatchq_now() - interval '24 hours' THEN excluded.work_id ELSE k.work_id END,
    id_prefix = CASE WHEN k.created_at < dispatchq_now() - interval '24 hours' THEN excluded.id_prefix ELSE k.id_prefix END
WHERE k.created_at < dispatchq_now() - interval '24 hours'
   OR (k.status IS NULL AND k.request_hash = excluded.request_hash
       AND k.created_at < dispatchq_now() - interval '1 minute')
RETURNING holder_id, key, work_id, id_prefix, created_at
