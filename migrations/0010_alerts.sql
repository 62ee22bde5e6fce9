-- Alerts: messages that a person acknowledges. An alert nobody acknowledges escalates; one about an order that waits for a
-- dispatcher reminds.

CREATE TABLE alerts (
    id                 bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    order_id           text NOT NULL,
    kind               text NOT NULL,
    dedupe_key         text NOT NULL,
    payload            jsonb NOT NULL,
    raised_at          timestamptz(3) NOT NULL,
    escalations        integer NOT NULL DEFAULT 0 CHECK (escalations >= 0),
    next_escalation_at timestamptz(3),
    acked_at           timestamptz(3),
    acked_by           text,
    ack_note           text,
    UNIQUE (order_id, kind, dedupe_key),
    CHECK ((acked_at IS NULL) = (acked_by IS NULL)),
    CHECK (acked_at IS NULL OR next_escalation_at IS NULL)
);
COMMENT ON TABLE alerts IS 'no foreign key: an alert may be about an order that is not in the database';
COMMENT ON COLUMN alerts.dedupe_key IS 'as that of its outbox rows';
COMMENT ON COLUMN alerts.next_escalation_at IS 'when it escalates or reminds next; null when acknowledged, or often enough';
CREATE INDEX alerts_open ON alerts (id) WHERE acked_at IS NULL;
CREATE INDEX alerts_by_age ON alerts USING brin (raised_at);

-- The id receivers see: the same whenever a message is repeated, and no other message's, not even of another database.
ALTER TABLE outbox ADD COLUMN message_id uuid NOT NULL DEFAULT gen_random_uuid();
-- Dead messages that are sent again begin their backoff anew, and go on counting their tries.
ALTER TABLE outbox ADD COLUMN backoff_from integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN outbox.backoff_from IS 'tries made before the message was last sent again by hand';
CREATE INDEX outbox_dead ON outbox (id) WHERE state = 'dead';

CREATE TABLE outbox_replays (
    id        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    outbox_id bigint NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
    at        timestamptz(3) NOT NULL,
    actor     text NOT NULL
);
CREATE INDEX outbox_replays_of ON outbox_replays (outbox_id);
COMMENT ON TABLE outbox_replays IS 'who had a dead message sent again';
