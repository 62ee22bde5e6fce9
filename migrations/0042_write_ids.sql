-- Changes of many orders share a commit. A program that lost the answer to one knows its own changes again by their ids.
ALTER TABLE orders ADD COLUMN write_id uuid;
-- Of a creation: what the creating session says, whatever function it calls.
ALTER TABLE orders ALTER COLUMN write_id SET DEFAULT nullif(current_setting('dispatchq.write_id', true), '')::uuid;
COMMENT ON COLUMN orders.write_id IS 'the latest write: a program that lost the answer to its commit finds its own change by it';
