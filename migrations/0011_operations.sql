-- Dead letters, the reconciler's log, schedules, queues and shards, plans, desk claims, and the curves of the page Now.

-- A copy of the dead letters in Redis, so that a flush loses none, with the decision on each. One row per death: a job may die, be
-- requeued, and die again.
CREATE TABLE dead_letters (
    job_id       text NOT NULL,
    died_at      timestamptz(3) NOT NULL,
    queue        text NOT NULL,
    error        text NOT NULL,
    failed       integer NOT NULL,
    lost         integer NOT NULL,
    due_at       timestamptz(3) NOT NULL,
    envelope     text,
    resolved_at  timestamptz(3),
    resolved_by  text,
    resolved_how text CHECK (resolved_how IN ('requeued', 'discarded', 'expired', 'revived')),
    resolved_why text,
    PRIMARY KEY (job_id, died_at),
    CHECK ((resolved_at IS NULL) = (resolved_how IS NULL)),
    CHECK ((resolved_at IS NULL) = (resolved_by IS NULL))
);
COMMENT ON TABLE dead_letters IS 'a copy of the dead jobs in Redis, with the decision on each';
COMMENT ON COLUMN dead_letters.died_at IS 'by the clock of Redis, like due_at';
COMMENT ON COLUMN dead_letters.failed IS 'runs that failed';
COMMENT ON COLUMN dead_letters.lost IS 'deliveries whose worker was lost';
COMMENT ON COLUMN dead_letters.envelope IS 'the payload byte for byte; null for timers';
COMMENT ON COLUMN dead_letters.resolved_how IS
    'requeued or discarded by a person, expired by retention, or revived: its row asked for the job again';
-- Undecided dead letters of a queue, in the order in which Redis lists them.
CREATE INDEX dead_letters_unresolved ON dead_letters (queue, died_at, job_id) WHERE resolved_at IS NULL;
CREATE INDEX dead_letters_unresolved_by_age ON dead_letters (died_at) WHERE resolved_at IS NULL;
CREATE INDEX dead_letters_resolved ON dead_letters (resolved_at) WHERE resolved_at IS NOT NULL;
-- For erasures: the order of `dispatch:ORD-1:1`.
CREATE INDEX dead_letters_by_subject ON dead_letters (split_part(job_id, ':', 2));

-- Progress of the copy.
CREATE TABLE dead_letter_mirror (
    queue    text PRIMARY KEY,
    epoch    text NOT NULL,
    cursor   text,
    begun_at timestamptz(3) NOT NULL
);
COMMENT ON COLUMN dead_letter_mirror.epoch IS 'which rebuild of Redis was copied; after another one dead letters are restored first';
COMMENT ON COLUMN dead_letter_mirror.cursor IS 'position after the last dead letter copied; null before the first';
COMMENT ON COLUMN dead_letter_mirror.begun_at IS 'when the current pass over the queue started';

-- One row for each run of the reconciler that rebuilt or repaired something.
CREATE TABLE reconcile_log (
    at          timestamptz(3) PRIMARY KEY,
    rebuild     boolean NOT NULL,
    looked_at   bigint NOT NULL,
    inserted    bigint NOT NULL,
    moved       bigint NOT NULL,
    held        bigint NOT NULL,
    compensated bigint NOT NULL
);
COMMENT ON COLUMN reconcile_log.rebuild IS 'every timer was enqueued again, because Redis had lost them or was restarted';

-- Periodic work: each run of a schedule is one row, however many replicas run.
CREATE TABLE schedule_runs (
    name        text NOT NULL,
    slot        timestamptz(3) NOT NULL,
    started_at  timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    finished_at timestamptz(3),
    result      jsonb,
    PRIMARY KEY (name, slot)
);
COMMENT ON COLUMN schedule_runs.slot IS 'the time for which the run was scheduled, not the time it ran';
CREATE INDEX schedule_runs_by_age ON schedule_runs (slot);

-- Jobs of each queue, minute by minute.
CREATE TABLE queue_snapshots (
    at        timestamptz(3) NOT NULL,
    queue     text NOT NULL,
    due       bigint NOT NULL,
    scheduled bigint NOT NULL,
    leased    bigint NOT NULL,
    dead      bigint NOT NULL,
    PRIMARY KEY (at, queue)
);

-- Queues that operators paused. They stay paused after Redis lost its data.
CREATE TABLE paused_queues (
    queue     text PRIMARY KEY,
    paused_by text NOT NULL,
    reason    text CHECK (octet_length(reason) BETWEEN 1 AND 2000),
    paused_at timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);

-- The number of shards of the queue. Each change adds a row with the next generation. The highest one applies, and every process
-- follows it.
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
COMMENT ON TABLE shard_generations IS 'number of Redis shards that hold the jobs; the latest generation applies';
COMMENT ON COLUMN shard_generations.shards_before IS 'shards of the previous generation; workers take jobs from them as well until the change is settled';
COMMENT ON COLUMN shard_generations.derived_at IS 'since when the timers of all rows are in their shard of this generation';
COMMENT ON COLUMN shard_generations.settled_at IS 'since when no job is left in a shard above the new number';
-- One change at a time: the next waits until this one is settled.
CREATE UNIQUE INDEX shard_generations_one_change ON shard_generations ((true)) WHERE settled_at IS NULL;
INSERT INTO shard_generations (generation, shards, shards_before, made_by, reason, derived_at, settled_at)
    VALUES (1, 1, 1, 'system', 'initial number', dispatchq_now(), dispatchq_now());

-- Plans: actions on many things at once, stored with the exact ids before they run. The row decides; the single job of a running plan
-- is derived from it.
CREATE TABLE plans (
    id            uuid PRIMARY KEY,
    kind          text NOT NULL CHECK (kind ~ '^[a-z_]{1,32}$'),
    action        jsonb NOT NULL,
    filter        jsonb NOT NULL,
    reason        text CHECK (octet_length(reason) BETWEEN 1 AND 2000),
    state         text NOT NULL CHECK (state IN ('PLANNED', 'RUNNING', 'DONE', 'CANCELLED')),
    total         integer NOT NULL CHECK (total >= 0),
    changed       integer NOT NULL DEFAULT 0 CHECK (changed >= 0),
    unchanged     integer NOT NULL DEFAULT 0 CHECK (unchanged >= 0),
    refused       integer NOT NULL DEFAULT 0 CHECK (refused >= 0),
    created_by    text NOT NULL,
    created_key   uuid,
    created_at    timestamptz(3) NOT NULL,
    run_by        text,
    run_key       uuid,
    started_at    timestamptz(3),
    cancelled_by  text,
    cancelled_key uuid,
    ended_at      timestamptz(3),
    next_at       timestamptz(3),
    CHECK (changed + unchanged + refused <= total),
    CHECK ((run_by IS NULL) = (started_at IS NULL)),
    CHECK (state <> 'PLANNED' OR run_by IS NULL),
    CHECK (state NOT IN ('RUNNING', 'DONE') OR run_by IS NOT NULL),
    CHECK ((state = 'CANCELLED') = (cancelled_by IS NOT NULL)),
    CHECK ((state IN ('DONE', 'CANCELLED')) = (ended_at IS NOT NULL)),
    CHECK ((state = 'RUNNING') = (next_at IS NOT NULL))
) WITH (fillfactor = 80);
COMMENT ON TABLE plans IS 'mass actions: their makers, their runs, and their results';
COMMENT ON COLUMN plans.action IS 'the action, in the form of its kind';
COMMENT ON COLUMN plans.filter IS 'the filter that selected the ids, in the form of its kind';
COMMENT ON COLUMN plans.unchanged IS 'items that needed no change';
COMMENT ON COLUMN plans.next_at IS 'when the next items may be processed; it changes with each batch, so no index contains it';
CREATE INDEX plans_running ON plans (id) WHERE state = 'RUNNING';
CREATE INDEX plans_by_age ON plans (created_at);
CREATE INDEX plans_begun ON plans (started_at) WHERE started_at IS NOT NULL;
CREATE INDEX plans_cancelled ON plans (ended_at) WHERE cancelled_by IS NOT NULL;

CREATE TABLE plan_items (
    plan_id    uuid NOT NULL REFERENCES plans (id),
    subject_id text NOT NULL CHECK (octet_length(subject_id) BETWEEN 1 AND 200),
    state      text NOT NULL CHECK (state IN ('PENDING', 'CHANGED', 'UNCHANGED', 'REFUSED')),
    refusal    text CHECK (octet_length(refusal) BETWEEN 1 AND 64),
    note       text CHECK (octet_length(note) <= 2000),
    done_at    timestamptz(3),
    PRIMARY KEY (plan_id, subject_id),
    CHECK ((state = 'REFUSED') = (refusal IS NOT NULL)),
    CHECK (state <> 'PENDING' OR done_at IS NULL)
);
COMMENT ON TABLE plan_items IS 'the exact ids of a plan, with the result of each';
COMMENT ON COLUMN plan_items.refusal IS 'why it was refused, as a word that programs match on';
COMMENT ON COLUMN plan_items.done_at IS 'when the run processed it; null where the plan knew the result before';
CREATE INDEX plan_items_by_state ON plan_items (plan_id, state, subject_id);

-- Claims of staff on orders that wait for a person. They are advisory, no locks, and end by themselves. staff_actions has the history.
CREATE TABLE desk_takes (
    order_id text PRIMARY KEY,
    taken_by text NOT NULL CHECK (taken_by <> ''),
    ends_at  timestamptz(3) NOT NULL
);
COMMENT ON TABLE desk_takes IS 'the person who handles an order that is PENDING or under review';
COMMENT ON COLUMN desk_takes.taken_by IS 'role:name, as in histories';
-- For the sweep.
CREATE INDEX desk_takes_by_end ON desk_takes (ends_at);

-- Totals, minute by minute, for the curves of the page Now.
CREATE TABLE glance_snapshots (
    at                 timestamptz(3) PRIMARY KEY,
    open_orders        bigint NOT NULL,
    to_decide          bigint NOT NULL,
    refunds_owed       bigint NOT NULL,
    lateness_p99_ms    bigint NOT NULL,
    oldest_due_ms      bigint NOT NULL,
    workers            bigint NOT NULL,
    servers_left_alone bigint NOT NULL
);
COMMENT ON COLUMN glance_snapshots.to_decide IS 'orders that wait for a person, among the 10,001 oldest';
COMMENT ON COLUMN glance_snapshots.refunds_owed IS 'owed or started; at most 10,000 are counted';
COMMENT ON COLUMN glance_snapshots.lateness_p99_ms IS 'of jobs that started since the last full hour';
COMMENT ON COLUMN glance_snapshots.oldest_due_ms IS 'how long the job that was due longest had waited; 0: none was due';
COMMENT ON COLUMN glance_snapshots.servers_left_alone IS 'providers'' servers that were not called after failures';
