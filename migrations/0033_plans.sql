-- Plans: what is to be done to many at once, stored with the exact ids before it is done. The row decides; the one job of a plan
-- that runs is derived from it.

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
COMMENT ON TABLE plans IS 'mass actions: who made them, who ran them, and what became of them';
COMMENT ON COLUMN plans.action IS 'what is to be done, in the form of its kind';
COMMENT ON COLUMN plans.filter IS 'of what the ids were taken, in the form of its kind';
COMMENT ON COLUMN plans.unchanged IS 'items that were so already';
COMMENT ON COLUMN plans.next_at IS 'when the next items may be performed; changes with each batch, so it is in no index';
CREATE INDEX plans_running ON plans (id) WHERE state = 'RUNNING';
CREATE INDEX plans_by_age ON plans (created_at);

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
COMMENT ON TABLE plan_items IS 'the exact ids of a plan, and what became of each';
COMMENT ON COLUMN plan_items.refusal IS 'why it could not be done, as a word that programs match on';
COMMENT ON COLUMN plan_items.done_at IS 'when the run came to it; null where the plan knew it before';
CREATE INDEX plan_items_by_state ON plan_items (plan_id, state, subject_id);

CREATE VIEW audit_plans AS
    SELECT id AS plan_id, kind, action, filter, state, total, changed, unchanged, refused, created_by, created_key, created_at,
           run_by, run_key, started_at, cancelled_by, cancelled_key, ended_at
    FROM plans;
