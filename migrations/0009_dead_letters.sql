-- Dead letters: a copy of those in Redis, so that a flush loses none, and what was decided on each. One row per death: a
-- job may die, be requeued, and die again.
CREATE TABLE dead_letters (
    job_id       text NOT NULL,
    died_at      timestamptz(3) NOT NULL,
    queue        text NOT NULL,
    error        text NOT NULL,
    failed       integer NOT NULL,
    lost         integer NOT NULL,
    due_at       timestamptz(3) NOT NULL,
    envelope     text,
    mirrored_at  timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    resolved_at  timestamptz(3),
    resolved_by  text,
    resolved_how text CHECK (resolved_how IN ('requeued', 'discarded', 'expired', 'revived')),
    resolved_why text,
    PRIMARY KEY (job_id, died_at),
    CHECK ((resolved_at IS NULL) = (resolved_how IS NULL)),
    CHECK ((resolved_at IS NULL) = (resolved_by IS NULL))
);
COMMENT ON TABLE dead_letters IS 'a copy of the dead jobs in Redis, and what was decided on each';
COMMENT ON COLUMN dead_letters.died_at IS 'by the clock of Redis, as due_at';
COMMENT ON COLUMN dead_letters.failed IS 'runs that failed';
COMMENT ON COLUMN dead_letters.lost IS 'deliveries whose worker was lost';
COMMENT ON COLUMN dead_letters.envelope IS 'the payload byte for byte; null for timers';
COMMENT ON COLUMN dead_letters.resolved_how IS
    'requeued or discarded by a person, expired by retention, or revived: its row asked for the job again';

-- What is still to be decided, queue by queue, in the order in which Redis lists it.
CREATE INDEX dead_letters_unresolved ON dead_letters (queue, died_at, job_id) WHERE resolved_at IS NULL;
CREATE INDEX dead_letters_resolved ON dead_letters (resolved_at) WHERE resolved_at IS NOT NULL;

-- How far the copy is.
CREATE TABLE dead_letter_mirror (
    queue    text PRIMARY KEY,
    epoch    text NOT NULL,
    cursor   text,
    begun_at timestamptz(3) NOT NULL
);
COMMENT ON COLUMN dead_letter_mirror.epoch IS 'which rebuild of Redis was copied; after another one dead letters are restored first';
COMMENT ON COLUMN dead_letter_mirror.cursor IS 'behind the last dead letter copied; null before the first';
COMMENT ON COLUMN dead_letter_mirror.begun_at IS 'when the present pass over the queue began';
