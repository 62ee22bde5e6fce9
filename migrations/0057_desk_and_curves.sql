-- Who is on an order that waits for a person. A sign for the others and no lock; it ends by itself. What was is in staff_actions.
CREATE TABLE desk_takes (
    order_id text PRIMARY KEY,
    taken_by text NOT NULL CHECK (taken_by <> ''),
    ends_at  timestamptz(3) NOT NULL
);
COMMENT ON TABLE desk_takes IS 'which of the staff is on an order that is PENDING or under review';
COMMENT ON COLUMN desk_takes.taken_by IS 'as histories name the person: role:name';
-- For the sweep.
CREATE INDEX desk_takes_by_end ON desk_takes (ends_at);

-- How the whole stood, minute by minute, for the curves of the page Now.
CREATE TABLE glance_snapshots (
    at              timestamptz(3) PRIMARY KEY,
    open_orders     bigint NOT NULL,
    refunds_owed    bigint NOT NULL,
    lateness_p99_ms bigint NOT NULL
);
COMMENT ON COLUMN glance_snapshots.refunds_owed IS 'owed or begun; no more than 10,000 are counted';
COMMENT ON COLUMN glance_snapshots.lateness_p99_ms IS 'of jobs that started since the last full hour began';
