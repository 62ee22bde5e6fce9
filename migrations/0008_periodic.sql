-- Periodic work: each run of a schedule is one row, however many replicas there are.
CREATE TABLE schedule_runs (
    name        text NOT NULL,
    slot        timestamptz(3) NOT NULL,
    started_at  timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    finished_at timestamptz(3),
    result      jsonb,
    PRIMARY KEY (name, slot)
);
COMMENT ON COLUMN schedule_runs.slot IS 'the time the run stands for, not the time it ran';

-- How the queues stood, minute by minute.
CREATE TABLE queue_snapshots (
    at        timestamptz(3) NOT NULL,
    queue     text NOT NULL,
    due       bigint NOT NULL,
    scheduled bigint NOT NULL,
    leased    bigint NOT NULL,
    dead      bigint NOT NULL,
    PRIMARY KEY (at, queue)
);

-- What operators paused stays paused when Redis forgets.
CREATE TABLE paused_queues (
    queue     text PRIMARY KEY,
    paused_by text NOT NULL,
    paused_at timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);

-- Drops the daily partitions of the history that end before a time, and before every order that is still there; returns
-- their names.
CREATE FUNCTION dispatchq_drop_event_partitions(before timestamptz, dry_run boolean) RETURNS SETOF text
    LANGUAGE plpgsql AS $$
DECLARE
    partition text;
    oldest timestamptz := least(before, (SELECT min(created_at) FROM orders));
BEGIN
    FOR partition IN
        SELECT c.relname FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'order_events'::regclass AND c.relname ~ '^order_events_[0-9]{8}$'
          AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= oldest
        ORDER BY c.relname
    LOOP
        IF NOT dry_run THEN
            EXECUTE format('DROP TABLE %I', partition);
        END IF;
        RETURN NEXT partition;
    END LOOP;
END $$;
