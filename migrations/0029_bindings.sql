-- Bindings: an account on a provider's server, on which one transaction follows the other. The row decides; jobs are derived
-- from it. No index and no predicate of an index names a column that changes from call to call, so that claims and answers
-- are HOT updates.

CREATE TABLE provider_servers (
    id               text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_.-]{1,64}$'),
    provider         text NOT NULL CHECK (provider ~ '^[a-z0-9_]{1,32}$'),
    base_url         text NOT NULL CHECK (base_url ~ '^https?://' AND octet_length(base_url) <= 500),
    max_concurrent   integer NOT NULL DEFAULT 2 CHECK (max_concurrent BETWEEN 1 AND 1000),
    enabled          boolean NOT NULL DEFAULT true,
    repeats_are_safe boolean NOT NULL DEFAULT true,
    version          bigint NOT NULL DEFAULT 0,
    changed_by       text NOT NULL,
    created_at       timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    updated_at       timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON TABLE provider_servers IS 'servers of providers; their keys are in the configuration';
COMMENT ON COLUMN provider_servers.max_concurrent IS 'calls that may be open at the server at the same time';
COMMENT ON COLUMN provider_servers.repeats_are_safe IS 'false: after a lost answer the server is asked before a start is repeated';

CREATE TABLE bindings (
    id                  text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    server_id           text NOT NULL REFERENCES provider_servers (id),
    account_id          text NOT NULL CHECK (account_id ~ '^[A-Za-z0-9_.-]{1,64}$'),
    state               text NOT NULL DEFAULT 'STOPPED' CHECK (state IN ('STOPPED', 'RUNNING', 'PAUSED', 'STOPPING')),
    reason              text CHECK (reason IN (
        'manual_stop', 'insufficient_balance_before_start', 'otp_timeout', 'server_disabled', 'too_many_failures',
        'processing_timeout')),
    config              jsonb NOT NULL,
    cycle               bigint NOT NULL DEFAULT 0 CHECK (cycle >= 0),
    phase               text NOT NULL DEFAULT 'IDLE' CHECK (phase IN ('IDLE', 'CALLING', 'PROCESSING', 'WAITING_OTP')),
    trx_id              text,
    start_confirmed     boolean NOT NULL DEFAULT false,
    next_at             timestamptz(3),
    call_no             bigint NOT NULL DEFAULT 0 CHECK (call_no >= 0),
    call_action         text CHECK (call_action IN ('start', 'status', 'otp', 'settle')),
    call_until          timestamptz(3),
    asks                integer NOT NULL DEFAULT 0 CHECK (asks >= 0),
    failures            integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    processing_deadline timestamptz(3),
    otp_deadline        timestamptz(3),
    otp_tries           integer NOT NULL DEFAULT 0 CHECK (otp_tries >= 0),
    otp_value           bytea CHECK (octet_length(otp_value) <= 1000),
    otp_submitted_at    timestamptz(3),
    unresolved          integer NOT NULL DEFAULT 0 CHECK (unresolved >= 0),
    version             bigint NOT NULL DEFAULT 0,
    created_at          timestamptz(3) NOT NULL,
    updated_at          timestamptz(3) NOT NULL,
    deleted_at          timestamptz(3),
    needs_timer         boolean GENERATED ALWAYS AS
        (deleted_at IS NULL AND (phase <> 'IDLE' OR state NOT IN ('STOPPED', 'PAUSED'))) STORED,
    CHECK ((phase = 'CALLING') = (call_until IS NOT NULL)),
    CHECK ((call_until IS NULL) = (call_action IS NULL)),
    CHECK ((phase = 'IDLE') = (trx_id IS NULL)),
    CHECK (state <> 'STOPPING' OR phase = 'CALLING'),
    CHECK (state NOT IN ('RUNNING', 'PAUSED') OR reason IS NULL),
    CHECK (state <> 'STOPPING' OR reason IS NOT NULL),
    CHECK (state <> 'RUNNING' OR phase <> 'IDLE' OR next_at IS NOT NULL),
    CHECK (phase <> 'PROCESSING' OR (next_at IS NOT NULL AND processing_deadline IS NOT NULL)),
    CHECK (phase <> 'WAITING_OTP' OR otp_deadline IS NOT NULL OR otp_value IS NOT NULL),
    CHECK ((otp_value IS NULL) = (otp_submitted_at IS NULL)),
    CHECK (otp_value IS NULL OR phase = 'WAITING_OTP' OR call_action IS NOT DISTINCT FROM 'otp'),
    CHECK (deleted_at IS NULL OR (state = 'STOPPED' AND phase = 'IDLE' AND unresolved = 0))
) WITH (fillfactor = 50);

COMMENT ON COLUMN bindings.cycle IS 'cycles begun so far; the open one unless IDLE';
COMMENT ON COLUMN bindings.trx_id IS 'the open transaction, or the one a settle call is about';
COMMENT ON COLUMN bindings.start_confirmed IS 'the provider has said that the open transaction began';
COMMENT ON COLUMN bindings.next_at IS 'when the next cycle begins, or the provider is called again';
COMMENT ON COLUMN bindings.call_no IS 'calls claimed so far';
COMMENT ON COLUMN bindings.call_until IS 'end of the open call: until then no other may be claimed';
COMMENT ON COLUMN bindings.otp_value IS 'encrypted; erased with the outcome of its call';
COMMENT ON COLUMN bindings.version IS 'raised by every change; a call''s fence is the version after its claim';
COMMENT ON COLUMN bindings.deleted_at IS 'the id is not given again before the last transaction is removed';
COMMENT ON COLUMN bindings.needs_timer IS 'a job must exist; unchanged from cycle to cycle, so that its index costs nothing';

CREATE INDEX bindings_to_reconcile ON bindings (id) WHERE needs_timer;
CREATE INDEX bindings_by_server ON bindings (server_id, id) WHERE deleted_at IS NULL;
CREATE INDEX bindings_by_account ON bindings (account_id, id) WHERE deleted_at IS NULL;
CREATE INDEX bindings_by_state ON bindings (state, id) WHERE deleted_at IS NULL;
CREATE INDEX bindings_deleted ON bindings (deleted_at) WHERE deleted_at IS NOT NULL;

-- The header of each cycle. No foreign key: retention removes headers and bindings by themselves.
CREATE TABLE transactions (
    trx_id       text NOT NULL,
    binding_id   text NOT NULL,
    cycle        bigint NOT NULL CHECK (cycle >= 1),
    server_id    text NOT NULL,
    account_id   text NOT NULL,
    status       text NOT NULL CHECK (status IN (
        'STARTED', 'PROCESSING', 'WAITING_OTP', 'SUKSES', 'GAGAL', 'UNRESOLVED')),
    reason       text CHECK (octet_length(reason) BETWEEN 1 AND 64),
    provider_ref text CHECK (octet_length(provider_ref) <= 800),
    asks         integer NOT NULL DEFAULT 0 CHECK (asks >= 0),
    settle_at    timestamptz(3),
    started_at   timestamptz(3) NOT NULL,
    ended_at     timestamptz(3),
    PRIMARY KEY (binding_id, cycle),
    CHECK (trx_id = binding_id || '.' || cycle::text),
    CHECK ((ended_at IS NOT NULL) = (status IN ('SUKSES', 'GAGAL'))),
    CHECK ((settle_at IS NOT NULL) = (status = 'UNRESOLVED'))
) PARTITION BY HASH (binding_id);
COMMENT ON COLUMN transactions.trx_id IS 'says binding and cycle, so that it is found by the primary key';
COMMENT ON COLUMN transactions.settle_at IS 'when the provider is asked again; set while UNRESOLVED';
-- By their start, which stays, and not by their end: so the end is a HOT update.
CREATE INDEX transactions_by_age ON transactions (started_at);
CREATE INDEX transactions_unresolved ON transactions (settle_at) WHERE settle_at IS NOT NULL;

-- The calls of each cycle, added to and never changed: one row by the claim, one by the end.
CREATE TABLE transaction_snapshots (
    binding_id  text NOT NULL,
    cycle       bigint NOT NULL,
    call_no     bigint NOT NULL CHECK (call_no >= 1),
    part        text NOT NULL CHECK (part IN ('claim', 'end')),
    at          timestamptz(3) NOT NULL,
    action      text CHECK (action IN ('start', 'status', 'otp', 'settle')),
    fence       bigint,
    call_until  timestamptz(3),
    owner       text CHECK (octet_length(owner) <= 200),
    result      text CHECK (octet_length(result) BETWEEN 1 AND 32),
    http_status smallint,
    sent_at     timestamptz(3),
    latency_us  bigint CHECK (latency_us >= 0),
    request     text CHECK (octet_length(request) <= 65536),
    response    text CHECK (octet_length(response) <= 65536),
    PRIMARY KEY (binding_id, cycle, call_no, part),
    CHECK ((part = 'claim') = (action IS NOT NULL)),
    CHECK ((part = 'claim') = (fence IS NOT NULL)),
    CHECK ((part = 'claim') = (call_until IS NOT NULL)),
    CHECK ((part = 'end') = (result IS NOT NULL))
) PARTITION BY HASH (binding_id);
COMMENT ON TABLE transaction_snapshots IS 'what was asked of a provider and what it said; secrets and OTPs are not in it';
COMMENT ON COLUMN transaction_snapshots.result IS 'the answer in one word; lost: no answer was ever written';
COMMENT ON COLUMN transaction_snapshots.sent_at IS 'by the worker''s clock, set to Postgres'' at the claim; null when nothing was sent';

DO $$
BEGIN
    FOR n IN 0..15 LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF transactions FOR VALUES WITH (MODULUS 16, REMAINDER %s)
                        WITH (fillfactor = 80)', 'transactions_' || n, n);
        EXECUTE format('CREATE TABLE %I PARTITION OF transaction_snapshots FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
            'transaction_snapshots_' || n, n);
    END LOOP;
END $$;

CREATE TABLE binding_events (
    seq        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    binding_id text NOT NULL,
    at         timestamptz(3) NOT NULL,
    kind       text NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 32),
    reason     text,
    actor      text NOT NULL,
    key_id     uuid,
    cycle      bigint,
    detail     text CHECK (octet_length(detail) <= 2000)
);
COMMENT ON TABLE binding_events IS 'who started, paused, stopped or changed a binding, and why; added to and never changed';
CREATE INDEX binding_events_by_binding ON binding_events (binding_id, seq);
CREATE INDEX binding_events_by_age ON binding_events (at);

CREATE TABLE binding_watermarks (
    binding_id      text PRIMARY KEY,
    removed_through bigint NOT NULL CHECK (removed_through >= 1),
    updated_at      timestamptz(3) NOT NULL
);
COMMENT ON COLUMN binding_watermarks.removed_through IS 'highest cycle that retention has removed: gaps are judged above it';
