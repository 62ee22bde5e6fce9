WITH
-- $1 maximum number of open calls in total, $2 start of the oldest transactions. With fewer calls the invariant can miss a
-- violation, but it reports none that is not there.
audit_transactions AS MATERIALIZED (
    SELECT * FROM audit_transactions WHERE started_at >= $2 ORDER BY started_at DESC LIMIT 5000),
audit_provider_calls AS MATERIALIZED (
    SELECT c.* FROM audit_provider_calls c JOIN audit_transactions t USING (binding_id, cycle) WHERE c.part = 'end')
