-- The steps of orders that producers hear of: as a stream (GET /api/v1/events), and each as a signed webhook to a producer
-- that subscribes to it. A row is written in the transaction of its step.

-- `tx` is what makes a cursor safe: numbers of a sequence are drawn before the commit and become visible in another order. A
-- reader takes rows of transactions below the oldest one that still runs (pg_snapshot_xmin): none can be added to those.
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
COMMENT ON TABLE order_feed IS 'steps of orders, as producers hear of them; kept as long as retention.events says';
COMMENT ON COLUMN order_feed.tx IS 'the transaction that wrote it; readers wait until all before it have ended';
COMMENT ON COLUMN order_feed.seq IS 'drawn while the order''s row is locked, so that it orders the steps of one order';
COMMENT ON COLUMN order_feed.owner IS 'the producer the order belongs to; null: of none, staff alone see it';

CREATE INDEX order_feed_of_owner ON order_feed (owner, tx, seq) WHERE owner IS NOT NULL;
CREATE INDEX order_feed_of_order ON order_feed (order_id);

-- Creation is a step, too, whether by the API, a producer in SQL or a program of the version before. Once a
-- statement, so that many orders cost one call.
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
