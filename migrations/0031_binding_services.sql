-- What the services of bindings need beside the rows: a breaker for each server, and the limit of all calls.

ALTER TABLE provider_servers
    ADD COLUMN failures     integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    ADD COLUMN paused_until timestamptz(3);
COMMENT ON COLUMN provider_servers.failures IS 'calls in a row that failed by the server''s fault';
COMMENT ON COLUMN provider_servers.paused_until IS 'until then no call is made: too many failed, or the server asked for a pause';

-- One row, or none: then the configuration's limit holds.
CREATE TABLE binding_limits (
    only_one             boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    max_concurrent_calls integer NOT NULL CHECK (max_concurrent_calls BETWEEN 1 AND 100000),
    changed_by           text NOT NULL,
    updated_at           timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON TABLE binding_limits IS 'calls of providers that may be open at the same time, in all';
