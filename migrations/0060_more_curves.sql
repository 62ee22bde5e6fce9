-- More of how the whole stood, for the curves of the page Now. Programs of the version before leave it null: their minutes are not drawn.
ALTER TABLE glance_snapshots
    ADD COLUMN to_decide bigint,
    ADD COLUMN oldest_due_ms bigint,
    ADD COLUMN workers bigint,
    ADD COLUMN servers_left_alone bigint;
COMMENT ON COLUMN glance_snapshots.to_decide IS 'orders that wait for a person; of the 10,001 oldest';
COMMENT ON COLUMN glance_snapshots.oldest_due_ms IS 'how long the job that was due longest had waited; 0: none was due';
COMMENT ON COLUMN glance_snapshots.servers_left_alone IS 'providers'' servers that were not called after failures';
