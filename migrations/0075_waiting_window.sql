-- How long an order counts as waiting in an area. Source: the requirement on server busy, 3.4.2 and appendix A.
ALTER TABLE area_limits ADD COLUMN waiting_timeout_sec bigint CHECK (waiting_timeout_sec BETWEEN 1 AND 604800);
COMMENT ON COLUMN area_limits.waiting_timeout_sec IS
    'an order counts against the threshold for so long after its creation; null: for its whole lifetime';

-- Orders that wait in an area for this service. Without a window the index alone answers.
CREATE OR REPLACE FUNCTION dispatchq_waiting(area_id text, service_type text) RETURNS bigint
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    waits_for bigint := (SELECT l.waiting_timeout_sec FROM area_limits l
                         WHERE l.area_id = $1 AND l.service_type = $2);
BEGIN
    IF waits_for IS NULL THEN
        RETURN (SELECT count(*) FROM orders o
                WHERE o.area_id = $1 AND o.service_type = $2
                  AND o.status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING')
                  AND o.lifetime_deadline > dispatchq_now());
    END IF;
    RETURN (SELECT count(*) FROM orders o
            WHERE o.area_id = $1 AND o.service_type = $2
              AND o.status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING')
              AND o.lifetime_deadline > dispatchq_now()
              AND o.created_at > dispatchq_now() - make_interval(secs => waits_for));
END $$;
