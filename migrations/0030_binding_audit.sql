-- What `check history` and auditors read of bindings, and what retention keeps of the calls it removed. The columns are a
-- promise: add views rather than change them. Neither requests nor answers of providers are in them.

-- A call that settles an old transaction has a number among those of newer ones. So the calls that were removed are counted.
ALTER TABLE binding_watermarks ADD COLUMN calls_removed bigint NOT NULL DEFAULT 0 CHECK (calls_removed >= 0);
COMMENT ON COLUMN binding_watermarks.calls_removed IS 'calls that retention has removed: with those that are left, all that were claimed';

COMMENT ON COLUMN bindings.start_confirmed IS 'no start is sent any more: the open transaction began, or the provider takes no start of it';
COMMENT ON COLUMN bindings.asks IS 'calls about the open transaction that did not end it, lost ones too';
COMMENT ON COLUMN bindings.otp_tries IS 'OTPs that are used up';

CREATE VIEW audit_bindings AS
    SELECT b.id AS binding_id, b.server_id, b.account_id, b.state, b.reason, b.phase, b.cycle, b.call_no, b.call_action,
           b.unresolved, b.otp_value IS NOT NULL AS otp_stored,
           coalesce((b.config->>'otp_attempts')::integer, 3) AS otp_attempts, b.created_at, b.deleted_at,
           coalesce(w.removed_through, 0) AS removed_through, coalesce(w.calls_removed, 0) AS calls_removed
    FROM bindings b LEFT JOIN binding_watermarks w ON w.binding_id = b.id;

CREATE VIEW audit_transactions AS
    SELECT trx_id, binding_id, cycle, server_id, account_id, status, reason, provider_ref, started_at, ended_at
    FROM transactions;

-- A call is a row by its claim, and another by its end.
CREATE VIEW audit_provider_calls AS
    SELECT binding_id, cycle, call_no, part, at, action, fence, call_until, result, http_status, sent_at, latency_us
    FROM transaction_snapshots;

CREATE VIEW audit_binding_events AS
    SELECT seq, binding_id, at, kind, reason, actor, key_id, cycle
    FROM binding_events;
