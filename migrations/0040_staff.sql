-- What staff do over HTTP: keys that only read, lists of orders and of refunds, and a record of what changes no order.

-- A program of the version before cannot read the new role: give out keys of viewers once all processes are of this version.
ALTER TABLE api_keys DROP CONSTRAINT api_keys_role_check;
ALTER TABLE api_keys ADD CONSTRAINT api_keys_role_check
    CHECK (role IN ('producer', 'driver', 'viewer', 'dispatcher', 'support', 'operator', 'admin'));

CREATE TABLE staff_actions (
    id      bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at      timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    actor   text NOT NULL,
    key_id  uuid,
    action  text NOT NULL CHECK (action ~ '^[A-Z_]{1,32}$'),
    subject text NOT NULL CHECK (octet_length(subject) BETWEEN 1 AND 256),
    reason  text CHECK (octet_length(reason) BETWEEN 1 AND 2000)
);
COMMENT ON TABLE staff_actions IS 'what staff did to queues, drivers, keys and users; changes of orders are in order_events';
COMMENT ON COLUMN staff_actions.subject IS 'the id or the name of what was changed';
CREATE INDEX staff_actions_by_age ON staff_actions (at);

CREATE VIEW audit_staff_actions AS SELECT id, at, actor, key_id, action, subject, reason FROM staff_actions;

-- Lists of orders, the newest first. Columns of these indexes do not change while an order is dispatched, or change when other
-- indexes are written anyway (the driver, the state).
CREATE INDEX orders_open_by_age ON orders (created_at, id) WHERE closed_at IS NULL;
CREATE INDEX orders_open_by_area ON orders (area_id, created_at, id) WHERE closed_at IS NULL AND area_id IS NOT NULL;
CREATE INDEX orders_to_decide ON orders (created_at, id) WHERE status = 'PENDING';
CREATE INDEX orders_by_customer ON orders (customer_id, created_at, id) WHERE customer_id IS NOT NULL;
CREATE INDEX orders_by_driver ON orders (driver_id, created_at, id) WHERE driver_id IS NOT NULL;
-- Refunds that are owed or begun, the oldest first.
CREATE INDEX orders_refunds_open ON orders (closed_at, id)
    WHERE status IN ('CANCELLED_BY_SYSTEM_AFTER_PAYMENT', 'REFUND_PENDING')
       OR (status IN ('CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER') AND payment_status IN ('PAID', 'SETTLEMENT'));
