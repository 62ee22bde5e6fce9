-- What a page about one driver reads: since when the driver is where the row says, and how offers to the driver ended.

-- Null: not known. A program of the version before moves drivers without it, and the place then counts as older than it is.
ALTER TABLE drivers ADD COLUMN located_at timestamptz(3);
ALTER TABLE drivers ALTER COLUMN located_at SET DEFAULT dispatchq_now();
COMMENT ON COLUMN drivers.located_at IS 'when lat and lng were written; null of drivers who have not moved since the version before';

-- The ends that offers_unwanted leaves out. An offer enters one of the two, once, when it ends.
CREATE INDEX offers_settled ON offers (driver_id, responded_at) WHERE state IN ('accepted', 'superseded', 'withdrawn');
