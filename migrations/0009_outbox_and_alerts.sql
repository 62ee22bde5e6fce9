-- Messages to people and programs, and alerts that a person must acknowledge. Both are written in the transaction of the transition
-- that causes them.
--
-- A message or an alert about a binding has its binding_id, and '__binding__' as its order. The order is never null, so the unique
-- constraints hold for these rows as well. No order has that id: dispatchq_check_order() and HTTP refuse it.

CREATE TABLE outbox (
    id              bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    message_id      uuid NOT NULL DEFAULT gen_random_uuid(),
    order_id        text NOT NULL,
    binding_id      text,
    kind            text NOT NULL,
    channel         text NOT NULL,
    dedupe_key      text NOT NULL,
    payload         jsonb NOT NULL,
    state           text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'expired', 'dead')),
    unreachable     boolean NOT NULL DEFAULT false,
    attempts        integer NOT NULL DEFAULT 0,
    backoff_from    integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz(3) NOT NULL,
    expires_at      timestamptz(3) NOT NULL,
    last_error      text,
    ticket          text CHECK (octet_length(ticket) BETWEEN 1 AND 128),
    created_at      timestamptz(3) NOT NULL,
    delivered_at    timestamptz(3),
    UNIQUE (order_id, kind, channel, dedupe_key),
    CONSTRAINT outbox_one_subject CHECK (binding_id IS NULL OR order_id = '__binding__')
);
COMMENT ON COLUMN outbox.message_id IS 'the id receivers see: the same for every repeat, and unique across databases';
COMMENT ON COLUMN outbox.order_id IS 'the order it is about; ''__binding__'' where it is about a binding';
COMMENT ON COLUMN outbox.binding_id IS 'the binding it is about; null where it is about an order';
COMMENT ON COLUMN outbox.dedupe_key IS 'what makes the message unique: the offer, the person, the transaction and the ask, or nothing';
-- Of two channels that fail at the same time each sees the other's mark, so the later one withdraws the offer.
COMMENT ON COLUMN outbox.unreachable IS 'an offer that its receiver refused on this channel; the sender then checks whether another channel still may';
COMMENT ON COLUMN outbox.attempts IS 'tries claimed: a try counts before anything is sent';
COMMENT ON COLUMN outbox.backoff_from IS 'tries made before a person last requeued the message: backoff starts again, the count of tries goes on';
COMMENT ON COLUMN outbox.expires_at IS
    'after this it is no longer worth sending (an offer, a request for an OTP), or is abandoned (an alert)';
COMMENT ON COLUMN outbox.ticket IS 'id that the ticket system returned; null: it opened no ticket, or did not return its id';
CREATE INDEX outbox_pending ON outbox (order_id) WHERE state = 'pending';
CREATE INDEX outbox_pending_by_id ON outbox (id) WHERE state = 'pending';
CREATE INDEX outbox_pending_by_age ON outbox (created_at) WHERE state = 'pending';
CREATE INDEX outbox_dead ON outbox (id) WHERE state = 'dead';
-- Callbacks of phone calls name the message.
CREATE INDEX outbox_offers_by_message ON outbox (message_id) WHERE kind = 'OFFER';
CREATE INDEX outbox_of_binding ON outbox (binding_id) WHERE binding_id IS NOT NULL;
-- Offers, messages about an order that may not exist, and messages about bindings. Others are removed with their order.
CREATE INDEX outbox_removable ON outbox (created_at)
    WHERE kind IN ('OFFER', 'FAILED_TO_GET_ORDER') AND state <> 'pending';
CREATE INDEX outbox_of_bindings_removable ON outbox (created_at) WHERE binding_id IS NOT NULL AND state <> 'pending';

CREATE TABLE outbox_attempts (
    outbox_id  bigint NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
    attempt_no integer NOT NULL,
    at         timestamptz(3) NOT NULL,
    error      text,
    PRIMARY KEY (outbox_id, attempt_no)
);
COMMENT ON TABLE outbox_attempts IS 'delivery log: one row per try, written before it is sent; error is null when it was delivered';

-- Records how a delivery ended, once; null: it arrived. Until then a claimed try has the text below. roles.sql takes UPDATE on the
-- table from every role.
CREATE FUNCTION dispatchq_end_attempt(message bigint, attempt integer, problem text) RETURNS void
    LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE outbox_attempts SET error = problem WHERE outbox_id = message AND attempt_no = attempt AND error = 'no answer was recorded';
$$;

CREATE TABLE outbox_replays (
    id        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    outbox_id bigint NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
    at        timestamptz(3) NOT NULL,
    actor     text NOT NULL
);
COMMENT ON TABLE outbox_replays IS 'requeued dead messages, with the person who requeued them';
CREATE INDEX outbox_replays_of ON outbox_replays (outbox_id);

-- An alert that is not acknowledged escalates. One about an order that waits for a dispatcher reminds.
CREATE TABLE alerts (
    id                 bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    order_id           text NOT NULL,
    binding_id         text,
    kind               text NOT NULL,
    dedupe_key         text NOT NULL,
    payload            jsonb NOT NULL,
    raised_at          timestamptz(3) NOT NULL,
    escalations        integer NOT NULL DEFAULT 0 CHECK (escalations >= 0),
    next_escalation_at timestamptz(3),
    gave_up_at         timestamptz(3),
    acked_at           timestamptz(3),
    acked_by           text,
    acked_key_id       uuid,
    ack_note           text,
    UNIQUE (order_id, kind, dedupe_key),
    CONSTRAINT alerts_one_subject CHECK (binding_id IS NULL OR order_id = '__binding__'),
    CHECK ((acked_at IS NULL) = (acked_by IS NULL)),
    CHECK (acked_at IS NULL OR next_escalation_at IS NULL)
);
COMMENT ON TABLE alerts IS 'no foreign key: an alert may be about an order that is not in the database';
COMMENT ON COLUMN alerts.order_id IS 'the order it is about; ''__binding__'' where it is about a binding';
COMMENT ON COLUMN alerts.binding_id IS 'the binding it is about; null where it is about an order';
COMMENT ON COLUMN alerts.dedupe_key IS 'the same as in its outbox rows';
COMMENT ON COLUMN alerts.next_escalation_at IS 'when it escalates or reminds next; null: acknowledged, or repeated often enough';
COMMENT ON COLUMN alerts.gave_up_at IS 'when its escalation job was found dead; the alert stays due, and this is null again once the job is requeued';
CREATE INDEX alerts_open ON alerts (id) WHERE acked_at IS NULL;
CREATE INDEX alerts_acknowledged ON alerts (acked_at) WHERE acked_at IS NOT NULL;
CREATE INDEX alerts_of_binding ON alerts (binding_id) WHERE binding_id IS NOT NULL;
CREATE INDEX alerts_removable ON alerts (raised_at) WHERE kind = 'FAILED_TO_GET_ORDER' AND acked_at IS NOT NULL;
CREATE INDEX alerts_of_bindings_removable ON alerts (raised_at) WHERE binding_id IS NOT NULL AND acked_at IS NOT NULL;
