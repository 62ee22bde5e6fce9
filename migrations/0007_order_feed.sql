-- Steps of orders. Producers read them as a stream (GET /api/v1/events), and subscribed producers receive them as signed
-- webhooks. A row is written in the transaction of its step.
--
-- `tx` makes a cursor safe. A sequence assigns numbers before the commit, so rows become visible in another order. Readers take
-- only rows of transactions older than the oldest running one (pg_snapshot_xmin), because no row can be added to those.
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
    changed     text[],
    has_details boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tx, seq)
);
COMMENT ON TABLE order_feed IS 'steps of orders for producers; kept as long as retention.events';
COMMENT ON COLUMN order_feed.tx IS 'the transaction that wrote the row; readers wait until all older transactions have ended';
COMMENT ON COLUMN order_feed.seq IS 'assigned while the order''s row is locked, so it orders the steps of one order';
COMMENT ON COLUMN order_feed.changed IS 'names of the members of the order that the step order.updated changed';
COMMENT ON COLUMN order_feed.has_details IS 'whether the order had contents; readers of the step then get the current ones';
COMMENT ON COLUMN order_feed.owner IS 'the producer that owns the order; null: only staff see it';
CREATE INDEX order_feed_of_owner ON order_feed (owner, tx, seq) WHERE owner IS NOT NULL;
-- For the webhook about the creation of an order in SQL, which is sent with the order's first change.
CREATE INDEX order_feed_created ON order_feed (order_id) WHERE kind = 'order.created';

-- Adds the creations of orders, by the API or in SQL. The trigger runs once per statement, so a batch of orders costs one call.
CREATE FUNCTION dispatchq_feed_created_orders() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_feed (order_id, owner, kind, status, reason, at, has_details)
    SELECT id, owner, 'order.created', status, 'ORDER_CREATED', created_at, has_details FROM made;
    RETURN NULL;
END $$;
CREATE TRIGGER orders_feed_created AFTER INSERT ON orders
    REFERENCING NEW TABLE AS made
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_feed_created_orders();
