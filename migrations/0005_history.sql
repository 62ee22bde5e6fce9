-- The history of orders, with one partition for each UTC day, so that retention can drop a table. It has no foreign key for the
-- same reason.
--
-- crates/foundation/src/db/history_days.rs attaches and detaches days with locks that do not block changes of orders. The
-- history therefore has no default partition: ATTACH would lock it exclusively, and Postgres would refuse DETACH CONCURRENTLY.

CREATE SEQUENCE order_events_seq;
CREATE TABLE order_events (
    seq         bigint NOT NULL DEFAULT nextval('order_events_seq'),
    order_id    text NOT NULL,
    from_status text,
    to_status   text NOT NULL,
    reason      text NOT NULL,
    actor       text NOT NULL,
    key_id      uuid,
    attempt_no  integer,
    detail      text,
    at          timestamptz(3) NOT NULL,
    PRIMARY KEY (order_id, seq, at)
) PARTITION BY RANGE (at);
COMMENT ON COLUMN order_events.seq IS 'from a sequence, so it is unique; assigned after the order''s row is updated, so it orders the events of one order';
COMMENT ON COLUMN order_events.actor IS 'role:name';
COMMENT ON COLUMN order_events.key_id IS 'API key of the request; null for workers, partners, the command line and SQL';
-- The index is partial because changes by staff are a small part of the history.
CREATE INDEX order_events_by_staff ON order_events (at)
    WHERE split_part(actor, ':', 1) IN ('dispatcher', 'support', 'operator', 'admin', 'cli');

-- Events older than retention.events whose order still exists, because it is open or owes a refund. They move here before their
-- day is dropped. Otherwise one such order would keep its day and every later day.
CREATE TABLE order_events_kept (LIKE order_events);
ALTER TABLE order_events_kept ADD PRIMARY KEY (order_id, seq);
COMMENT ON TABLE order_events_kept IS 'events of dropped days whose order still exists; removed with the order';
CREATE INDEX order_events_kept_by_staff ON order_events_kept (at)
    WHERE split_part(actor, ':', 1) IN ('dispatcher', 'support', 'operator', 'admin', 'cli');

-- Adds the partition of one day. It first creates the table and its indexes. ATTACH then takes SHARE UPDATE EXCLUSIVE on the
-- history, which blocks neither changes nor readers. Because of the constraint, ATTACH does not scan the table.
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
    -- The owner of the history must be able to drop a day that another role adds.
    IF owner <> current_user THEN
        EXECUTE format('ALTER TABLE %I OWNER TO %I', name, owner);
    END IF;
    EXECUTE format('ALTER TABLE order_events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, first, after);
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT of_its_day', name);
END $$;
