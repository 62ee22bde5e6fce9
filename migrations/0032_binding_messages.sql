-- Messages about bindings, in the outbox beside those about orders.
--
-- Such a row names its binding, and holds '__binding__' as its order, which reads as the id of one. Null would say it better. But
-- the reconciler of the version before reads order_id of every pending row as a text: a null would end each of its passes, and
-- with them the rebuild after a loss of Redis, beside this version and after a rollback. As it is, it delivers these messages,
-- too. Once no process of that version is left, a later migration may make order_id nullable.

ALTER TABLE outbox ADD COLUMN binding_id text;
-- An order of that id is refused by the API. Made in SQL it is an order like any other: its rows name no binding.
-- Not looked up in the rows there are, for none of them is about a binding.
ALTER TABLE outbox ADD CONSTRAINT outbox_one_subject CHECK (binding_id IS NULL OR order_id = '__binding__') NOT VALID;
COMMENT ON COLUMN outbox.order_id IS 'the order it is about; ''__binding__'' where it is about a binding';
COMMENT ON COLUMN outbox.binding_id IS 'the binding it is about; null where it is about an order';
COMMENT ON COLUMN outbox.dedupe_key IS 'what makes the message one: the offer, the person, the transaction and the ask, or nothing';
COMMENT ON COLUMN outbox.expires_at IS
    'after this it is no longer worth sending (an offer, a request for an OTP) or is given up (an alert)';

-- Of one binding, and those that retention may remove.
CREATE INDEX outbox_of_binding ON outbox (binding_id) WHERE binding_id IS NOT NULL;
CREATE INDEX outbox_of_bindings_removable ON outbox (created_at) WHERE binding_id IS NOT NULL AND state <> 'pending';

-- The columns are a promise, and so is that each row is about an order.
CREATE OR REPLACE VIEW audit_notifications AS
    SELECT id, order_id, kind, channel, state, attempts, created_at, delivered_at
    FROM outbox WHERE binding_id IS NULL;

CREATE VIEW audit_binding_notifications AS
    SELECT id, binding_id, kind, channel, state, attempts, created_at, delivered_at
    FROM outbox WHERE binding_id IS NOT NULL;
