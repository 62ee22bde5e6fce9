-- Dead letters, the reconciler's log, schedules, the proof of the history, queues and shards, plans, desk claims, the curves on the
-- page Now, and the supply log.

-- Copies of the dead jobs in Redis, which survive a loss of Redis' data, with the decision on each. A job that is requeued and dies
-- again has another row.
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
COMMENT ON TABLE dead_letters IS 'copies of the dead jobs in Redis, with the decision on each';
COMMENT ON COLUMN dead_letters.died_at IS 'by the clock of Redis, like due_at';
COMMENT ON COLUMN dead_letters.failed IS 'number of runs that failed';
COMMENT ON COLUMN dead_letters.lost IS 'number of deliveries whose worker was lost';
COMMENT ON COLUMN dead_letters.envelope IS 'the payload byte for byte; null for timers';
COMMENT ON COLUMN dead_letters.resolved_how IS
    'requeued or discarded by a person, expired by retention, or revived: the job was enqueued again because its row needed it';
-- Dead letters of a queue without a decision, in the order in which Redis lists them.
CREATE INDEX dead_letters_unresolved ON dead_letters (queue, died_at, job_id) WHERE resolved_at IS NULL;
CREATE INDEX dead_letters_unresolved_by_age ON dead_letters (died_at) WHERE resolved_at IS NULL;
CREATE INDEX dead_letters_resolved ON dead_letters (resolved_at) WHERE resolved_at IS NOT NULL;
-- For erasures, by the order in a job id such as `dispatch:ORD-1:1`.
CREATE INDEX dead_letters_by_subject ON dead_letters (split_part(job_id, ':', 2));

-- Progress of the copy of dead jobs from Redis, for each queue and shard.
CREATE TABLE dead_letter_mirror (
    queue    text PRIMARY KEY,
    epoch    text NOT NULL,
    cursor   text,
    begun_at timestamptz(3) NOT NULL
);
COMMENT ON COLUMN dead_letter_mirror.epoch IS 'epoch of Redis that was copied; in a new epoch, missing dead jobs are first restored to Redis';
COMMENT ON COLUMN dead_letter_mirror.cursor IS 'position after the last copied dead letter; null before the first';
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
COMMENT ON COLUMN reconcile_log.rebuild IS 'Redis had lost its data or was restarted, so the timers of all rows were compared';

-- Runs of periodic schedules: one row for each scheduled time, however many replicas there are.
CREATE TABLE schedule_runs (
    name        text NOT NULL,
    slot        timestamptz(3) NOT NULL,
    started_at  timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    finished_at timestamptz(3),
    result      jsonb,
    PRIMARY KEY (name, slot)
);
COMMENT ON COLUMN schedule_runs.slot IS 'the scheduled time of the run, not the time when it ran';
CREATE INDEX schedule_runs_by_age ON schedule_runs (slot);

-- The continuous proof of the history (docs/design/proof.md): its place, and the violations that it found.
CREATE TABLE proof_place (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    position  bigint NOT NULL DEFAULT 0,
    seq       bigint NOT NULL DEFAULT 0,
    event     bigint NOT NULL DEFAULT 0,
    proven_at timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    walk      jsonb NOT NULL DEFAULT '{}',
    slices    bigint NOT NULL DEFAULT 0,
    steps     bigint NOT NULL DEFAULT 0,
    cpu_us    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE proof_place IS 'one row: the last step of the feed that is proven';
COMMENT ON COLUMN proof_place.event IS 'highest number of a proven step';
COMMENT ON COLUMN proof_place.proven_at IS 'all steps that were committed before this time are proven';
COMMENT ON COLUMN proof_place.walk IS 'position of the walk over rows without a new step: ids and times';
COMMENT ON COLUMN proof_place.slices IS 'number of recorded slices; a slice is recorded only if it is still the number that the slice read';
COMMENT ON COLUMN proof_place.cpu_us IS 'processor time of the fold, in microseconds, without that of Postgres and Redis';
INSERT INTO proof_place DEFAULT VALUES;

CREATE TABLE proof_violations (
    id        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    invariant text NOT NULL CHECK (invariant ~ '^[a-z_]{1,64}$'),
    subject   text NOT NULL,
    detail    text NOT NULL CHECK (char_length(detail) <= 2000),
    order_id  text,
    event_seq bigint,
    event     text,
    step      bigint NOT NULL,
    found_at  timestamptz(3) NOT NULL,
    seen_at   timestamptz(3) NOT NULL,
    gone_at   timestamptz(3),
    CHECK ((event_seq IS NULL) = (event IS NULL))
);
COMMENT ON TABLE proof_violations IS 'violations of the history that the proof found; a violation never stops the proof';
COMMENT ON COLUMN proof_violations.event IS 'reason of the last event of the order when the violation was found; event_seq is its number';
COMMENT ON COLUMN proof_violations.step IS 'the history was proven until this step of the feed when the violation was found';
COMMENT ON COLUMN proof_violations.seen_at IS 'when the violation was last found';
COMMENT ON COLUMN proof_violations.gone_at IS 'when the violation was no longer found; null: it is open';
CREATE UNIQUE INDEX proof_violations_open ON proof_violations (invariant, subject) WHERE gone_at IS NULL;
CREATE INDEX proof_violations_open_by_id ON proof_violations (id) WHERE gone_at IS NULL;
CREATE INDEX proof_violations_gone ON proof_violations (gone_at) WHERE gone_at IS NOT NULL;
CREATE INDEX proof_violations_by_age ON proof_violations (seen_at);

CREATE TABLE proof_counts (
    invariant text PRIMARY KEY CHECK (invariant ~ '^[a-z_]{1,64}$'),
    found     bigint NOT NULL CHECK (found > 0)
);
COMMENT ON TABLE proof_counts IS 'violations of each invariant that the proof has recorded, with those that retention has removed';

-- Numbers of jobs in each queue, once a minute.
CREATE TABLE queue_snapshots (
    at        timestamptz(3) NOT NULL,
    queue     text NOT NULL,
    due       bigint NOT NULL,
    scheduled bigint NOT NULL,
    leased    bigint NOT NULL,
    dead      bigint NOT NULL,
    PRIMARY KEY (at, queue)
);

-- Queues that operators paused. They stay paused if Redis loses its data.
CREATE TABLE paused_queues (
    queue     text PRIMARY KEY,
    paused_by text NOT NULL,
    reason    text CHECK (octet_length(reason) BETWEEN 1 AND 2000),
    paused_at timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);

-- Workers that operators drain. The id of a process is never used again.
CREATE TABLE worker_drains (
    boot       text PRIMARY KEY CHECK (octet_length(boot) BETWEEN 1 AND 200),
    replica    text NOT NULL,
    drained_by text NOT NULL,
    reason     text CHECK (octet_length(reason) BETWEEN 1 AND 2000),
    drained_at timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    alive_at   timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON TABLE worker_drains IS 'workers that take no jobs until an operator resumes them';
COMMENT ON COLUMN worker_drains.boot IS 'id of the process, unique per process start';
COMMENT ON COLUMN worker_drains.alive_at IS 'when the process last read this row, within an hour';
-- For the sweep.
CREATE INDEX worker_drains_by_life ON worker_drains (alive_at);

-- The number of shards of the queue. Each change adds a row with the next generation. Every process uses the highest generation.
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
COMMENT ON TABLE shard_generations IS 'number of shards that contain the jobs; the latest generation applies';
COMMENT ON COLUMN shard_generations.shards_before IS 'number of shards of the previous generation; until the change is settled, workers also take jobs from these';
COMMENT ON COLUMN shard_generations.derived_at IS 'when the timers of all rows were in their shards of this generation';
COMMENT ON COLUMN shard_generations.settled_at IS 'when no job was left in a shard above the new number';
-- One change at a time: the next change waits until this one is settled.
CREATE UNIQUE INDEX shard_generations_one_change ON shard_generations ((true)) WHERE settled_at IS NULL;
INSERT INTO shard_generations (generation, shards, shards_before, made_by, reason, derived_at, settled_at)
    VALUES (1, 1, 1, 'system', 'initial number', dispatchq_now(), dispatchq_now());

-- Plans: bulk actions that are stored with the exact ids before they run. The only job of a running plan is derived from its row.
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
COMMENT ON TABLE plans IS 'bulk actions: their authors, their runs, and their results';
COMMENT ON COLUMN plans.action IS 'the action; its form depends on the kind';
COMMENT ON COLUMN plans.filter IS 'the filter that selected the ids; its form depends on the kind';
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
COMMENT ON COLUMN plan_items.refusal IS 'reason for the refusal, as a word for programs';
COMMENT ON COLUMN plan_items.done_at IS 'when the run processed it; null if the result was known when the plan was created';
CREATE INDEX plan_items_by_state ON plan_items (plan_id, state, subject_id);

-- Desk claims on orders that wait for a person. They are advisory and expire. staff_actions has their history.
CREATE TABLE desk_takes (
    order_id text PRIMARY KEY,
    taken_by text NOT NULL CHECK (taken_by <> ''),
    ends_at  timestamptz(3) NOT NULL
);
COMMENT ON TABLE desk_takes IS 'staff members who handle orders that are PENDING or under review';
COMMENT ON COLUMN desk_takes.taken_by IS 'role:name, as in histories';
-- For the sweep.
CREATE INDEX desk_takes_by_end ON desk_takes (ends_at);

-- Totals, once a minute, for the curves on the page Now.
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
COMMENT ON COLUMN glance_snapshots.to_decide IS 'orders that wait for a person, among the 10,001 oldest open orders';
COMMENT ON COLUMN glance_snapshots.refunds_owed IS 'owed or started refunds; at most 10,000 are counted';
COMMENT ON COLUMN glance_snapshots.lateness_p99_ms IS 'lateness of jobs that started since the last full hour, 99th percentile';
COMMENT ON COLUMN glance_snapshots.oldest_due_ms IS 'how long the oldest due job had waited; 0: no job was due';
COMMENT ON COLUMN glance_snapshots.servers_left_alone IS 'provider servers that were not called, after failures or because they asked for a pause';

-- The supply log: drivers and their offers, once a minute, without ids. Each driver is counted in exactly one row of each service
-- type, and no row of a geohash cell is about fewer than three drivers. docs/design/supply-log.md says why.
CREATE TABLE supply_minutes (
    minute     timestamptz(3) PRIMARY KEY,
    counted_at timestamptz(3) NOT NULL
);
COMMENT ON TABLE supply_minutes IS 'minutes of the supply log; a minute without a row was not counted';
COMMENT ON COLUMN supply_minutes.minute IS 'start of the minute';

CREATE TABLE supply_counts (
    minute          timestamptz(3) NOT NULL,
    service_type    text NOT NULL,
    area_id         text NOT NULL,
    cell            text NOT NULL CHECK (length(cell) IN (0, 5, 6)),
    free            integer NOT NULL,
    busy            integer NOT NULL,
    off_duty        integer NOT NULL,
    made_500m       integer NOT NULL DEFAULT 0,
    made_1km        integer NOT NULL DEFAULT 0,
    made_3km        integer NOT NULL DEFAULT 0,
    made_far        integer NOT NULL DEFAULT 0,
    accepted_500m   integer NOT NULL DEFAULT 0,
    accepted_1km    integer NOT NULL DEFAULT 0,
    accepted_3km    integer NOT NULL DEFAULT 0,
    accepted_far    integer NOT NULL DEFAULT 0,
    declined_500m   integer NOT NULL DEFAULT 0,
    declined_1km    integer NOT NULL DEFAULT 0,
    declined_3km    integer NOT NULL DEFAULT 0,
    declined_far    integer NOT NULL DEFAULT 0,
    unanswered_500m integer NOT NULL DEFAULT 0,
    unanswered_1km  integer NOT NULL DEFAULT 0,
    unanswered_3km  integer NOT NULL DEFAULT 0,
    unanswered_far  integer NOT NULL DEFAULT 0,
    PRIMARY KEY (minute, service_type, area_id, cell),
    CHECK (cell = '' OR free + busy + off_duty >= 3)
);
COMMENT ON COLUMN supply_counts.area_id IS 'area at the centre of the geohash-5 cell; empty: outside all areas';
COMMENT ON COLUMN supply_counts.cell IS 'geohash-6 cell; five letters: the other drivers of that geohash-5 cell; empty: the other drivers of the area';
COMMENT ON COLUMN supply_counts.free IS 'drivers on duty without an active order, when the minute was counted';
COMMENT ON COLUMN supply_counts.busy IS 'drivers with an active order';
COMMENT ON COLUMN supply_counts.made_500m IS 'offers made in the minute to these drivers, less than 500 m from the pickup; then less than 1 km, less than 3 km, and farther';
COMMENT ON COLUMN supply_counts.unanswered_500m IS 'offers that expired in the minute';
