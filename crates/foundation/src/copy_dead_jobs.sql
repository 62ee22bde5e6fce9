-- copy dead letters
WITH dead (job_id, died_at, queue, error, failed, lost, due_at, envelope) AS (
    SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::integer[], $6::integer[],
                         $7::timestamptz[], $8::text[])),
earlier AS (
    UPDATE dead_letters e SET resolved_at = dispatchq_now(), resolved_by = 'dispatchq',
           resolved_how = 'revived', resolved_why = 'it lived and died again'
    FROM dead WHERE e.job_id = dead.job_id AND e.died_at < dead.died_at AND e.resolved_at IS NULL)
INSERT INTO dead_letters AS l (job_id, died_at, queue, error, failed, lost, due_at, envelope)
SELECT * FROM dead
ON CONFLICT (job_id, died_at) DO UPDATE
    SET resolved_at = NULL, resolved_by = NULL, resolved_how = NULL, resolved_why = NULL
    WHERE l.resolved_at < dispatchq_now() - interval '1 minute'
