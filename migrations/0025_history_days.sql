-- The history by days, without a default partition: days are attached and detached under locks that no change of an order
-- waits for (src/db/history_days.rs). Beside a default partition that is impossible: ATTACH locks it in full, and
-- DETACH CONCURRENTLY is refused.

-- Events of orders that are older than retention.events and still there: open ones, and those whose refund is owed. Moved
-- here before their day is dropped, so that one such order does not keep every day after it.
CREATE TABLE order_events_kept (LIKE order_events);
ALTER TABLE order_events_kept ADD PRIMARY KEY (seq);
CREATE INDEX order_events_kept_by_order ON order_events_kept (order_id, seq);
COMMENT ON TABLE order_events_kept IS 'events whose day was dropped and whose order is still there; removed with the order';

CREATE OR REPLACE VIEW audit_events AS
    SELECT seq, order_id, from_status, to_status, reason, actor, attempt_no, at FROM order_events
    UNION ALL
    SELECT seq, order_id, from_status, to_status, reason, actor, attempt_no, at FROM order_events_kept;
CREATE OR REPLACE VIEW audit_event_keys AS
    SELECT seq, order_id, at, actor, key_id FROM order_events WHERE key_id IS NOT NULL
    UNION ALL
    SELECT seq, order_id, at, actor, key_id FROM order_events_kept WHERE key_id IS NOT NULL;

-- The rows of the default partition move to partitions of their days.
ALTER TABLE order_events DETACH PARTITION order_events_default;
DO $$
DECLARE
    day date;
BEGIN
    FOR day IN SELECT DISTINCT (at AT TIME ZONE 'UTC')::date FROM order_events_default LOOP
        CONTINUE WHEN to_regclass('order_events_' || to_char(day, 'YYYYMMDD')) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I PARTITION OF order_events FOR VALUES FROM (%L) TO (%L)',
            'order_events_' || to_char(day, 'YYYYMMDD'),
            day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
    END LOOP;
END $$;
INSERT INTO order_events SELECT * FROM order_events_default;
DROP TABLE order_events_default;

-- Adds the partition of one day. The table is made and indexed by itself; ATTACH then takes SHARE UPDATE EXCLUSIVE on the
-- history, which stands in the way of no change and of no reader. The constraint spares ATTACH the scan.
CREATE FUNCTION dispatchq_add_history_day(day date) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    name text := 'order_events_' || to_char(day, 'YYYYMMDD');
    first timestamptz := day::timestamp AT TIME ZONE 'UTC';
    after timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    owner text := (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'order_events'::regclass);
BEGIN
    EXECUTE format('CREATE TABLE %I (LIKE order_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES,
                    CONSTRAINT of_its_day CHECK (at >= %L AND at < %L))', name, first, after);
    -- The owner of the history can drop a day that another role adds.
    IF owner <> current_user THEN
        EXECUTE format('ALTER TABLE %I OWNER TO %I', name, owner);
    END IF;
    EXECUTE format('ALTER TABLE order_events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, first, after);
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT of_its_day', name);
END $$;

-- What programs of the version before call at run time does nothing any more: it would take ACCESS EXCLUSIVE on the history.
CREATE OR REPLACE FUNCTION dispatchq_make_event_partitions(days integer) RETURNS integer
    LANGUAGE sql AS 'SELECT 0';
CREATE OR REPLACE FUNCTION dispatchq_drop_event_partitions(before timestamptz, dry_run boolean) RETURNS SETOF text
    LANGUAGE sql AS 'SELECT NULL::text WHERE false';
