-- What a payment service is asked for: one row for each order whose refund has begun while a service was configured, written in the
-- transaction that begins it. Without a row people pay back by hand, as before.
CREATE TABLE refunds (
    order_id     text PRIMARY KEY REFERENCES orders (id),
    amount_minor bigint NOT NULL CHECK (amount_minor >= 0),
    currency     text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    state        text NOT NULL DEFAULT 'asking' CHECK (state IN ('asking', 'accepted', 'refunded', 'refused')),
    refund_id    text CHECK (octet_length(refund_id) BETWEEN 1 AND 128),
    tries        integer NOT NULL DEFAULT 0 CHECK (tries >= 0),
    next_try_at  timestamptz(3),
    last_error   text,
    created_at   timestamptz(3) NOT NULL,
    closed_at    timestamptz(3),
    CHECK ((next_try_at IS NOT NULL) = (state IN ('asking', 'accepted'))),
    CHECK ((closed_at IS NOT NULL) = (state IN ('refunded', 'refused')))
);
COMMENT ON TABLE refunds IS 'what a payment service is asked for; no row: the refund is paid by hand';
COMMENT ON COLUMN refunds.state IS 'asking: to be asked; accepted: the service is at it and is asked again, in case its callback is lost; refused: a person must pay';
COMMENT ON COLUMN refunds.refund_id IS 'the service''s own id';
COMMENT ON COLUMN refunds.next_try_at IS 'when the service is asked (again); a version before 0043 ends an order''s refund without it';
-- Its predicate names no column that changes from try to try.
CREATE INDEX refunds_waiting ON refunds (order_id) WHERE state IN ('asking', 'accepted');
