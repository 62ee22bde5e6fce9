-- Alerts about bindings, beside those about orders: a transaction that its provider leaves open.
--
-- As in the outbox such a row names its binding and holds '__binding__' as its order. It is told once, so next_escalation_at is null and
-- programs of the version before derive no job from it. They neither raise nor close such alerts; a person may close one that they left.

ALTER TABLE alerts ADD COLUMN binding_id text;
-- Not looked up in the rows there are, for none of them is about a binding.
ALTER TABLE alerts ADD CONSTRAINT alerts_one_subject CHECK (binding_id IS NULL OR order_id = '__binding__') NOT VALID;
COMMENT ON COLUMN alerts.order_id IS 'the order it is about; ''__binding__'' where it is about a binding';
COMMENT ON COLUMN alerts.binding_id IS 'the binding it is about; null where it is about an order';

-- Of one binding, and those that retention may remove.
CREATE INDEX alerts_of_binding ON alerts (binding_id) WHERE binding_id IS NOT NULL;
CREATE INDEX alerts_of_bindings_removable ON alerts (raised_at) WHERE binding_id IS NOT NULL AND acked_at IS NOT NULL;

-- Those that are UNRESOLVED already.
INSERT INTO alerts (order_id, binding_id, kind, dedupe_key, payload, raised_at)
SELECT '__binding__', binding_id, 'TRANSACTION_UNRESOLVED', trx_id,
       jsonb_build_object('event', 'binding.transaction_unresolved', 'binding_id', binding_id, 'server_id', server_id,
                          'account_id', account_id, 'trx_id', trx_id, 'timestamp', dispatchq_now()),
       dispatchq_now()
FROM transactions WHERE settle_at IS NOT NULL
ON CONFLICT DO NOTHING;
