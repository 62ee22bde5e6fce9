-- A creation whose answer was lost is known again, also where a later change has put its own id into `write_id`.
ALTER TABLE orders ADD COLUMN creation_id uuid;
-- What the creating session says, whatever function it calls. No change writes it.
ALTER TABLE orders ALTER COLUMN creation_id SET DEFAULT nullif(current_setting('dispatchq.write_id', true), '')::uuid;
COMMENT ON COLUMN orders.creation_id IS 'the first write: a program that lost the answer to a creation finds its own order by it; null: created in SQL';
