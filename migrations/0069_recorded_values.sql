-- What staff changed, from what to what, and a reason to stop for bindings whose server the configuration does not allow.

ALTER TABLE staff_actions ADD COLUMN old_value jsonb, ADD COLUMN new_value jsonb;
COMMENT ON COLUMN staff_actions.old_value IS 'what was changed, before; null if it did not exist, or a version before 0069 made the change';
COMMENT ON COLUMN staff_actions.new_value IS 'the same after the change; null if it no longer exists';

CREATE OR REPLACE VIEW audit_staff_actions AS
    SELECT id, at, actor, key_id, action, subject, reason, old_value, new_value FROM staff_actions;

ALTER TABLE binding_events ADD COLUMN old_value jsonb, ADD COLUMN new_value jsonb, ADD COLUMN given_reason text
    CHECK (octet_length(given_reason) <= 2000);
COMMENT ON COLUMN binding_events.old_value IS 'what a request changed, before; null for changes of workers and of versions before 0069';
COMMENT ON COLUMN binding_events.given_reason IS 'reason that a person gave, if detail holds something else';

-- A program of the version before cannot read a binding that stopped for the new reason; it leaves the row alone.
ALTER TABLE bindings DROP CONSTRAINT bindings_reason_check;
ALTER TABLE bindings ADD CONSTRAINT bindings_reason_check CHECK (reason IN (
    'manual_stop', 'insufficient_balance_before_start', 'otp_timeout', 'server_disabled', 'server_not_allowed',
    'too_many_failures', 'processing_timeout'));
