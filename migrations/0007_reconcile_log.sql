-- What the reconciler had to mend. One row for each run that rebuilt or repaired something.
CREATE TABLE reconcile_log (
    at          timestamptz(3) PRIMARY KEY,
    rebuild     boolean NOT NULL,
    looked_at   bigint NOT NULL,
    inserted    bigint NOT NULL,
    moved       bigint NOT NULL,
    held        bigint NOT NULL,
    compensated bigint NOT NULL
);
COMMENT ON COLUMN reconcile_log.rebuild IS 'every timer was put back, because Redis had lost them or was restarted';
