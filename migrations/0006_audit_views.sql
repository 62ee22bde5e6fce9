-- The history for analysts and auditors. The columns are a promise: add views rather than change them.

CREATE VIEW audit_orders AS
    SELECT id AS order_id, service_type, area_id, status, payment_status, driver_id, held_for_review,
           created_at, lifetime_deadline, closed_at
    FROM orders;

CREATE VIEW audit_events AS
    SELECT seq, order_id, from_status, to_status, reason, actor, attempt_no, at
    FROM order_events;

CREATE VIEW audit_offers AS
    SELECT id AS offer_id, order_id, attempt_no, driver_id, state, offered_at, expires_at, responded_at
    FROM offers;

CREATE VIEW audit_notifications AS
    SELECT id, order_id, kind, channel, state, attempts, created_at, delivered_at
    FROM outbox;
