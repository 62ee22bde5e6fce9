-- Messages to people and programs, written in the transaction of the transition that causes them.

CREATE TABLE outbox (
    id              bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    order_id        text NOT NULL,
    kind            text NOT NULL,
    channel         text NOT NULL,
    dedupe_key      text NOT NULL,
    payload         jsonb NOT NULL,
    state           text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'expired', 'dead')),
    attempts        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz(3) NOT NULL,
    expires_at      timestamptz(3) NOT NULL,
    last_error      text,
    created_at      timestamptz(3) NOT NULL,
    delivered_at    timestamptz(3),
    UNIQUE (order_id, kind, channel, dedupe_key)
);
COMMENT ON COLUMN outbox.dedupe_key IS 'what makes the message one: the offer, the person, or nothing';
COMMENT ON COLUMN outbox.expires_at IS 'after this it is no longer worth sending (an offer) or is given up (an alert)';
-- Small, for retention: rows lie in the order of their age.
CREATE INDEX outbox_by_age ON outbox USING brin (created_at);
CREATE INDEX outbox_pending ON outbox (order_id) WHERE state = 'pending';

CREATE TABLE outbox_attempts (
    outbox_id  bigint NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
    attempt_no integer NOT NULL,
    at         timestamptz(3) NOT NULL,
    error      text,
    PRIMARY KEY (outbox_id, attempt_no)
);
COMMENT ON TABLE outbox_attempts IS 'delivery log: one row per try, error null when it was delivered';
