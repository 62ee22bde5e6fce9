-- Bindings: accounts at provider servers. Each binding runs transactions one after another, and its jobs are derived from its
-- row. No index or index predicate has a column that changes from call to call, so claims and answers are HOT updates.

CREATE TABLE provider_servers (
    id               text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_.-]{1,64}$'),
    provider         text NOT NULL CHECK (provider ~ '^[a-z0-9_]{1,32}$'),
    base_url         text NOT NULL CHECK (base_url ~ '^https?://' AND octet_length(base_url) <= 500),
    max_concurrent   integer NOT NULL DEFAULT 2 CHECK (max_concurrent BETWEEN 1 AND 1000),
    enabled          boolean NOT NULL DEFAULT true,
    repeats_are_safe boolean NOT NULL DEFAULT true,
    failures         integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    paused_until     timestamptz(3),
    version          bigint NOT NULL DEFAULT 0,
    changed_by       text NOT NULL,
    created_at       timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    updated_at       timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON TABLE provider_servers IS 'servers of providers; their keys are in the configuration';
COMMENT ON COLUMN provider_servers.max_concurrent IS 'maximum number of open calls at the server';
COMMENT ON COLUMN provider_servers.repeats_are_safe IS 'false: a start is not repeated; after a lost answer the server is asked for the status';
COMMENT ON COLUMN provider_servers.failures IS 'consecutive calls that failed because of the server';
COMMENT ON COLUMN provider_servers.paused_until IS 'no call is made before this time, because too many failed or the server asked for a pause';

-- At most one row. Without it the configured limit applies.
CREATE TABLE binding_limits (
    only_one             boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    max_concurrent_calls integer NOT NULL CHECK (max_concurrent_calls BETWEEN 1 AND 100000),
    changed_by           text NOT NULL,
    updated_at           timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON TABLE binding_limits IS 'maximum number of open calls to all providers';

CREATE TABLE bindings (
    id                  text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    server_id           text NOT NULL REFERENCES provider_servers (id),
    account_id          text NOT NULL CHECK (account_id ~ '^[A-Za-z0-9_.-]{1,64}$'),
    state               text NOT NULL DEFAULT 'STOPPED' CHECK (state IN ('STOPPED', 'RUNNING', 'PAUSED', 'STOPPING')),
    reason              text CHECK (reason IN (
        'manual_stop', 'insufficient_balance_before_start', 'otp_timeout', 'server_disabled', 'server_not_allowed',
        'too_many_failures', 'processing_timeout')),
    config              jsonb NOT NULL,
    cycle               bigint NOT NULL DEFAULT 0 CHECK (cycle >= 0),
    phase               text NOT NULL DEFAULT 'IDLE' CHECK (phase IN ('IDLE', 'CALLING', 'PROCESSING', 'WAITING_OTP')),
    trx_id              text,
    start_confirmed     boolean NOT NULL DEFAULT false,
    interval_start      timestamptz(3),
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

COMMENT ON COLUMN bindings.cycle IS 'number of started cycles; the latest one is open unless the phase is IDLE';
COMMENT ON COLUMN bindings.trx_id IS 'the open transaction, or the transaction of a settle call';
COMMENT ON COLUMN bindings.start_confirmed IS 'no further start is sent: the provider confirmed the start, or answered a call with a refusal or an unreadable text';
COMMENT ON COLUMN bindings.interval_start IS
    'due time of the latest cycle, or its start if that was at least one interval later';
COMMENT ON COLUMN bindings.next_at IS 'time of the next cycle, or of the next call to the provider';
COMMENT ON COLUMN bindings.call_no IS 'number of claimed calls';
COMMENT ON COLUMN bindings.call_until IS 'end of the open call; no other call is claimed before';
COMMENT ON COLUMN bindings.asks IS 'number of calls about the open transaction that did not end it, including lost calls';
COMMENT ON COLUMN bindings.otp_tries IS 'number of used OTPs';
COMMENT ON COLUMN bindings.otp_value IS 'submitted OTP, encrypted; erased with the result of its call';
COMMENT ON COLUMN bindings.version IS 'incremented by every change; a call''s fence is the version after its claim';
COMMENT ON COLUMN bindings.deleted_at IS 'time of the deletion; the id is not reused before the last transaction of the binding is removed';
COMMENT ON COLUMN bindings.needs_timer IS 'whether the binding must have a job; it does not change from cycle to cycle, so cycles do not write its index';

CREATE INDEX bindings_to_reconcile ON bindings (id) WHERE needs_timer;
CREATE INDEX bindings_by_server ON bindings (server_id, id) WHERE deleted_at IS NULL;
CREATE INDEX bindings_by_account ON bindings (account_id, id) WHERE deleted_at IS NULL;
CREATE INDEX bindings_by_state ON bindings (state, id) WHERE deleted_at IS NULL;
CREATE INDEX bindings_deleted ON bindings (deleted_at) WHERE deleted_at IS NOT NULL;

-- Headers of cycles. The table has no foreign key because retention removes headers and bindings separately.
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
COMMENT ON COLUMN transactions.trx_id IS 'contains the binding and the cycle, so that the primary key finds it';
COMMENT ON COLUMN transactions.settle_at IS 'when the provider is asked again; set while UNRESOLVED';
-- By start and not by end, so that the end of a transaction is a HOT update.
CREATE INDEX transactions_by_age ON transactions (started_at);
CREATE INDEX transactions_unresolved ON transactions (settle_at) WHERE settle_at IS NOT NULL;

-- Calls of cycles. The claim of a call adds one row, its end adds another. Rows never change.
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
COMMENT ON TABLE transaction_snapshots IS 'requests to providers and their answers, without keys and OTPs';
COMMENT ON COLUMN transaction_snapshots.result IS 'the answer in one word; lost: no answer was recorded';
COMMENT ON COLUMN transaction_snapshots.sent_at IS 'by the worker''s clock, adjusted to Postgres'' clock at the claim; null: nothing was sent';

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
    seq          bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    binding_id   text NOT NULL,
    at           timestamptz(3) NOT NULL,
    kind         text NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 32),
    reason       text,
    actor        text NOT NULL,
    key_id       uuid,
    cycle        bigint,
    detail       text CHECK (octet_length(detail) <= 2000),
    given_reason text CHECK (octet_length(given_reason) <= 2000),
    old_value    jsonb,
    new_value    jsonb
);
COMMENT ON TABLE binding_events IS 'starts, pauses, stops and changes of bindings, with actor and reason; rows never change';
COMMENT ON COLUMN binding_events.given_reason IS 'reason that a person gave, if detail has another text';
COMMENT ON COLUMN binding_events.old_value IS 'value before a change by a request; null for changes by workers';
CREATE INDEX binding_events_by_binding ON binding_events (binding_id, seq);
CREATE INDEX binding_events_by_age ON binding_events (at);
CREATE INDEX binding_events_by_staff ON binding_events (at)
    WHERE split_part(actor, ':', 1) IN ('dispatcher', 'support', 'operator', 'admin', 'cli');

-- Cycles and calls of each binding that retention has removed. Removed calls are counted, because the numbers of an old
-- transaction's calls are not contiguous: its settle calls come between the calls of newer transactions.
CREATE TABLE binding_watermarks (
    binding_id      text PRIMARY KEY,
    removed_through bigint NOT NULL CHECK (removed_through >= 1),
    calls_removed   bigint NOT NULL DEFAULT 0 CHECK (calls_removed >= 0),
    updated_at      timestamptz(3) NOT NULL
);
COMMENT ON COLUMN binding_watermarks.removed_through IS 'highest cycle that retention has removed; gaps are checked only above it';
COMMENT ON COLUMN binding_watermarks.calls_removed IS 'number of calls that retention has removed; with the remaining calls it equals the number of claimed calls';
