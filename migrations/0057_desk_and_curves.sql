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
