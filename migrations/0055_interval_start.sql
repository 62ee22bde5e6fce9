-- From when the interval to a binding's next cycle counts, where it counts from the begin. Programs of the version before do not
-- write it; nor do they read a binding that is set so.

ALTER TABLE bindings ADD COLUMN interval_start timestamptz(3);
COMMENT ON COLUMN bindings.interval_start IS
    'when the cycle that began last was due, or when it began, if that was an interval later or more';
