-- Steps of orders. Producers read them as a stream (GET /api/v1/events), and subscribed producers receive them as signed
-- webhooks. The statement that changes or creates an order writes the rows of its steps.

-- The two functions below are the only part of the feed that depends on the engine (docs/design/events-feed.md). They fulfil three
-- conditions: a row that is written later gets a position at or above the current horizon; the horizon never decreases; and every
-- position is below the horizon some time after its commit. On Postgres both are transaction ids.

-- Returns the position of a row that the current transaction writes.
CREATE FUNCTION dispatchq_feed_position() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT pg_current_xact_id()::text::bigint
$$;

-- Returns the position from which on rows may still be added: the oldest running transaction.
CREATE FUNCTION dispatchq_feed_horizon() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint
$$;

-- `position` makes a cursor safe. A sequence assigns numbers before the commit, so rows become visible in another order. Readers
-- take only rows below the horizon, because no row can be added to those.
CREATE TABLE order_feed (
    position    bigint NOT NULL DEFAULT dispatchq_feed_position(),
    seq         bigint GENERATED ALWAYS AS IDENTITY,
    order_id    text NOT NULL,
    owner       text,
    kind        text NOT NULL,
    status      text NOT NULL,
    from_status text,
    reason      text NOT NULL,
    attempt_no  integer,
    driver_id   text,
    at          timestamptz(3) NOT NULL,
    changed     text[],
    has_details boolean NOT NULL DEFAULT false,
    PRIMARY KEY (position, seq)
);
COMMENT ON TABLE order_feed IS 'steps of orders for producers; kept as long as retention.events';
COMMENT ON COLUMN order_feed.position IS 'readers wait until it is below dispatchq_feed_horizon()';
COMMENT ON COLUMN order_feed.seq IS 'assigned while the order''s row is locked, so it orders the steps of one order';
COMMENT ON COLUMN order_feed.changed IS 'names of the members of the order that the step order.updated changed';
COMMENT ON COLUMN order_feed.has_details IS 'whether the order had contents; readers of the step then get the current ones';
COMMENT ON COLUMN order_feed.owner IS 'the producer that owns the order; null: only staff see it';
CREATE INDEX order_feed_of_owner ON order_feed (owner, position, seq) WHERE owner IS NOT NULL;
-- For the webhooks about the creation of an order in SQL, which are sent with the order's first change.
CREATE INDEX order_feed_created ON order_feed (order_id) WHERE kind IN ('order.created', 'order.scheduled');

-- Returns the message to a producer about a step, with the values that only Postgres knows.
CREATE FUNCTION dispatchq_step_payload(payload jsonb, seq bigint, status text, at timestamptz) RETURNS jsonb
    LANGUAGE sql STABLE AS $$
    SELECT payload || jsonb_build_object(
        'seq', seq, 'status', status,
        'timestamp', replace(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), '.000Z', 'Z'))
$$;
