WITH
-- Each name below hides the view of the same name, so the invariants read only the rows of the scope.
-- $1 maximum number of open calls in total, $2 bindings
audit_bindings AS MATERIALIZED (SELECT * FROM audit_bindings WHERE binding_id = ANY ($2)),
audit_transactions AS MATERIALIZED (SELECT * FROM audit_transactions WHERE binding_id = ANY ($2)),
audit_provider_calls AS MATERIALIZED (SELECT * FROM audit_provider_calls WHERE binding_id = ANY ($2)),
audit_binding_events AS MATERIALIZED (SELECT * FROM audit_binding_events WHERE binding_id = ANY ($2))
