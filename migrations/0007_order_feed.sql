-- Steps of orders that producers read as a stream (GET /api/v1/events), and that subscribed producers receive as signed webhooks. A
-- row is written in the transaction of its step.
--
-- `tx` makes a cursor safe. Numbers of a sequence are drawn before the commit, so rows become visible in another order. Readers take
-- only rows of transactions older than the oldest running one (pg_snapshot_xmin), to which no row can be added.
CREATE TABLE order_feed (
    tx          xid8 NOT NULL DEFAULT pg_current_xact_id(),
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
    PRIMARY KEY (tx, seq)
);
COMMENT ON TABLE order_feed IS 'steps of orders for producers; kept as long as retention.events';
COMMENT ON COLUMN order_feed.tx IS 'the transaction that wrote it; readers wait until all older ones have ended';
COMMENT ON COLUMN order_feed.seq IS 'drawn while the order''s row is locked, so it orders the steps of one order';
COMMENT ON COLUMN order_feed.owner IS 'the producer the order belongs to; null: only staff see it';
CREATE INDEX order_feed_of_owner ON order_feed (owner, tx, seq) WHERE owner IS NOT NULL;
CREATE INDEX order_feed_of_order ON order_feed (order_id);

-- Adds the creation of orders, by the API or in SQL. It runs once a statement, so that many orders cost one call.
CREATE FUNCTION dispatchq_feed_created_orders() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_feed (order_id, owner, kind, status, reason, at)
    SELECT id, owner, 'order.created', status, 'ORDER_CREATED', created_at FROM made;
    RETURN NULL;
END $$;
CREATE TRIGGER orders_feed_created AFTER INSERT ON orders
    REFERENCING NEW TABLE AS made
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_feed_created_orders();
