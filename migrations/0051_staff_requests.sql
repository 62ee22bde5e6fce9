-- From where staff ask for changes, and what they did in the order of time, whatever it was about.

-- Written before a request is carried out: the change itself, with its reason, is in the table of what it changes.
CREATE TABLE staff_requests (
    id      bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at      timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    key_id  uuid NOT NULL,
    address inet NOT NULL,
    request text NOT NULL CHECK (octet_length(request) BETWEEN 1 AND 256)
);
COMMENT ON TABLE staff_requests IS 'from which address a key of staff asked for a change';
COMMENT ON COLUMN staff_requests.request IS 'method and route; the parts of a path that name something are left out';
CREATE INDEX staff_requests_by_key ON staff_requests (key_id, at);
CREATE INDEX staff_requests_by_age ON staff_requests (at);

CREATE VIEW audit_staff_requests AS SELECT id, at, key_id, host(address) AS address, request FROM staff_requests;

ALTER TABLE console_sessions ADD COLUMN address inet;
COMMENT ON COLUMN console_sessions.address IS 'from where its person signed in; null of sessions of the version before';

-- What people did is a small part of each history. Rows of workers are in none of these indexes.
CREATE INDEX order_events_by_staff ON order_events (at)
    WHERE split_part(actor, ':', 1) IN ('dispatcher', 'support', 'operator', 'admin', 'cli');
CREATE INDEX order_events_kept_by_staff ON order_events_kept (at)
    WHERE split_part(actor, ':', 1) IN ('dispatcher', 'support', 'operator', 'admin', 'cli');
CREATE INDEX binding_events_by_staff ON binding_events (at)
    WHERE split_part(actor, ':', 1) IN ('dispatcher', 'support', 'operator', 'admin', 'cli');
CREATE INDEX alerts_acknowledged ON alerts (acked_at) WHERE acked_at IS NOT NULL;
CREATE INDEX plans_begun ON plans (started_at) WHERE started_at IS NOT NULL;
CREATE INDEX plans_cancelled ON plans (ended_at) WHERE cancelled_by IS NOT NULL;
