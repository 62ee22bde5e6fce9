-- How many shards the queue has. Each change is a row more, whose generation is one higher; the highest holds, and every process follows it.
CREATE TABLE shard_generations (
    generation    bigint PRIMARY KEY CHECK (generation > 0),
    shards        smallint NOT NULL CHECK (shards IN (1, 2, 4, 8, 16, 32, 64)),
    shards_before smallint NOT NULL CHECK (shards_before IN (1, 2, 4, 8, 16, 32, 64)),
    made_at       timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    made_by       text NOT NULL CHECK (made_by <> ''),
    reason        text,
    derived_at    timestamptz(3),
    settled_at    timestamptz(3) CHECK (settled_at IS NULL OR derived_at IS NOT NULL)
);
COMMENT ON TABLE shard_generations IS 'how many shards of Redis the jobs lie in: the latest generation holds';
COMMENT ON COLUMN shard_generations.shards_before IS 'of the generation before: workers take from these, too, until the change is settled';
COMMENT ON COLUMN shard_generations.derived_at IS 'since when the timers of all rows lie in their shard of this generation';
COMMENT ON COLUMN shard_generations.settled_at IS 'since when no job is left in a shard beyond their number';
-- One change at a time: the next waits until this one is settled.
CREATE UNIQUE INDEX shard_generations_one_change ON shard_generations ((true)) WHERE settled_at IS NULL;
INSERT INTO shard_generations (generation, shards, shards_before, made_by, reason, derived_at, settled_at)
    VALUES (1, 1, 1, 'system', 'as it was before there were several', dispatchq_now(), dispatchq_now());
