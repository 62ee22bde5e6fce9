-- Messages to people and programs, webhook endpoints, and alerts that a person must acknowledge. Messages and alerts are written in the transaction of the change
-- that causes them.
--
-- A message or an alert about a binding has its binding_id, and '__binding__' as its order_id. The order_id is never null, so
-- the unique constraints also apply to these rows. No order has that id, because dispatchq_check_order() and the API refuse it.
-- The same applies to '__endpoint__', for tests of webhook endpoints.

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
COMMENT ON COLUMN outbox.message_id IS 'the id that receivers see; the same for every try, and unique across databases';
COMMENT ON COLUMN outbox.order_id IS 'the order that the message is about; ''__binding__'': it is about a binding; ''__endpoint__'': it tests an endpoint';
COMMENT ON COLUMN outbox.binding_id IS 'the binding that the message is about; null: it is about an order';
COMMENT ON COLUMN outbox.dedupe_key IS 'what makes the message unique: the offer, the person, the transaction and the ask, the step and, after ''replay:'', the replay, or nothing';
-- If two channels fail at the same time, the later check sees the mark of the other channel and withdraws the offer.
COMMENT ON COLUMN outbox.unreachable IS 'the receiver refused this offer on this channel; the sender then checks whether another channel may still deliver it';
COMMENT ON COLUMN outbox.attempts IS 'claimed tries; a try is counted before anything is sent';
COMMENT ON COLUMN outbox.backoff_from IS 'tries before a person last requeued the message; the backoff starts again there, and attempts continues to count';
COMMENT ON COLUMN outbox.expires_at IS
    'after this time the message is not sent: an offer or a request for an OTP is no longer useful, an alert is given up';
COMMENT ON COLUMN outbox.ticket IS 'id that the ticket system returned; null: it opened no ticket, or did not return an id';
-- The messages of an order are found through the unique constraint. Their conditions test `state || ''`, because an index of
-- few waiting rows looks cheapest to the planner, also when many rows wait later.
CREATE INDEX outbox_pending ON outbox (id) WHERE state = 'pending';
CREATE INDEX outbox_dead ON outbox (id) WHERE state = 'dead';
-- For callbacks of phone calls, which name the message.
CREATE INDEX outbox_offers_by_message ON outbox (message_id) WHERE kind = 'OFFER';
CREATE INDEX outbox_of_binding ON outbox (binding_id) WHERE binding_id IS NOT NULL;
-- Messages that the cleanup removes by age: offers, messages about an order that may not exist or about none, messages of replays, and messages
-- about bindings. It removes other messages with their order.
CREATE INDEX outbox_removable ON outbox (created_at)
    WHERE kind IN ('OFFER', 'FAILED_TO_GET_ORDER', 'endpoint.test') AND state <> 'pending';
CREATE INDEX outbox_replayed ON outbox (created_at) WHERE starts_with(dedupe_key, 'replay:') AND state <> 'pending';
CREATE INDEX outbox_of_bindings_removable ON outbox (created_at) WHERE binding_id IS NOT NULL AND state <> 'pending';

-- Messages for webhook endpoints: the list of deliveries, and the backlog that a replay must not exceed.
CREATE INDEX outbox_of_endpoints ON outbox (channel, id) WHERE starts_with(channel, 'endpoint:');
CREATE INDEX outbox_pending_of_endpoints ON outbox (channel) WHERE starts_with(channel, 'endpoint:') AND state = 'pending';

-- Writes the messages to a producer about the steps of an order that dispatchq_create_order created in the same transaction.
-- `reports` has a message for each step that the producer subscribes to. Returns true.
CREATE FUNCTION dispatchq_report_creation(order_id text, reports json) RETURNS boolean
    LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO outbox (message_id, order_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
    SELECT r.message_id, f.order_id, f.kind, r.channel, f.seq::text, dispatchq_step_payload(r.payload, f.seq, f.status, f.at),
           f.at, f.at + r.lifetime_s * interval '1 second', f.at
    FROM order_feed f JOIN json_to_recordset(dispatchq_report_creation.reports) AS r (
        message_id uuid, kind text, channel text, payload jsonb, lifetime_s bigint) ON r.kind = f.kind
    WHERE f.order_id = dispatchq_report_creation.order_id AND f.kind IN ('order.created', 'order.scheduled')
      AND f.reason = 'ORDER_CREATED' AND f.position = dispatchq_feed_position()
    ORDER BY f.seq;
    RETURN true;
END $$;

CREATE TABLE outbox_attempts (
    outbox_id  bigint NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
    attempt_no integer NOT NULL,
    at         timestamptz(3) NOT NULL,
    error      text,
    PRIMARY KEY (outbox_id, attempt_no)
);
COMMENT ON TABLE outbox_attempts IS 'delivery log: one row per try, written before the message is sent, or with its result if the process that wrote the message also sent it; error is null if it was delivered';

-- Records the result of a claimed try once: its error, or null if the message was delivered. Until then `error` has the text below.
-- deploy/postgres/roles.sql revokes UPDATE on the table from `dispatchq_run`, so the function runs with the rights of its owner.
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
COMMENT ON TABLE outbox_replays IS 'requeues of dead messages, with the person who requeued them';
CREATE INDEX outbox_replays_of ON outbox_replays (outbox_id);

-- Webhook endpoints that were created by API. Endpoints of [producers.NAME] have no row.
CREATE TABLE webhook_endpoints (
    id              uuid PRIMARY KEY,
    producer        text NOT NULL,
    url             text NOT NULL CHECK (octet_length(url) BETWEEN 1 AND 2000),
    events          text[] NOT NULL,
    state           text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused')),
    secret          text NOT NULL,
    secret_previous text,
    previous_until  timestamptz(3),
    paused_after    text,
    created_at      timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    CHECK ((secret_previous IS NULL) = (previous_until IS NULL))
);
COMMENT ON TABLE webhook_endpoints IS 'no audit view shows this table, because it has secrets';
COMMENT ON COLUMN webhook_endpoints.producer IS 'name of the producer''s key, as in orders.owner';
COMMENT ON COLUMN webhook_endpoints.events IS 'types of the events to send; empty: all';
COMMENT ON COLUMN webhook_endpoints.secret IS 'key of the signatures: whsec_ and base64';
COMMENT ON COLUMN webhook_endpoints.secret_previous IS 'the secret before the last rotation; also signs until previous_until';
COMMENT ON COLUMN webhook_endpoints.paused_after IS 'cursor of the feed at the latest pause; a replay after it sends what the pause has skipped';
CREATE INDEX webhook_endpoints_of_producer ON webhook_endpoints (producer, id);

-- Number of the latest change of an endpoint. Processes cache the subscriptions and read them again when it changes. Creations lock
-- the row, so that they count the endpoints of a producer one after another.
CREATE TABLE webhook_revision (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL DEFAULT 1
);
INSERT INTO webhook_revision DEFAULT VALUES;
CREATE FUNCTION dispatchq_endpoints_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE webhook_revision SET number = number + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER changed AFTER INSERT OR UPDATE OF producer, events, state OR DELETE ON webhook_endpoints
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_endpoints_changed();

-- Running replays, one for each endpoint at most.
CREATE TABLE webhook_replays (
    endpoint_id  uuid PRIMARY KEY REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    run          bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    position     bigint NOT NULL,
    seq          bigint NOT NULL,
    until        bigint,
    next_step_at timestamptz(3) NOT NULL
);
COMMENT ON COLUMN webhook_replays.run IS 'part of the dedupe keys of the replay''s messages; a further request changes it';
COMMENT ON COLUMN webhook_replays.position IS 'with seq: the last step that was sent again';
COMMENT ON COLUMN webhook_replays.until IS 'position at which the replay ends; null: before its first step';
CREATE INDEX webhook_replays_due ON webhook_replays (next_step_at);

-- An alert that is not acknowledged escalates. An alert about an order that waits for a dispatcher sends reminders instead.
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
COMMENT ON COLUMN alerts.order_id IS 'the order that the alert is about; ''__binding__'': it is about a binding';
COMMENT ON COLUMN alerts.binding_id IS 'the binding that the alert is about; null: it is about an order';
COMMENT ON COLUMN alerts.dedupe_key IS 'the same as in its outbox rows';
COMMENT ON COLUMN alerts.next_escalation_at IS 'time of the next escalation or reminder; null: acknowledged, or no further repetition is due';
COMMENT ON COLUMN alerts.gave_up_at IS 'when its escalation job was found dead; the alert stays due; null again after the job is requeued';
CREATE INDEX alerts_open ON alerts (id) WHERE acked_at IS NULL;
CREATE INDEX alerts_acknowledged ON alerts (acked_at) WHERE acked_at IS NOT NULL;
CREATE INDEX alerts_of_binding ON alerts (binding_id) WHERE binding_id IS NOT NULL;
CREATE INDEX alerts_removable ON alerts (raised_at) WHERE kind = 'FAILED_TO_GET_ORDER' AND acked_at IS NOT NULL;
CREATE INDEX alerts_of_bindings_removable ON alerts (raised_at) WHERE binding_id IS NOT NULL AND acked_at IS NOT NULL;
