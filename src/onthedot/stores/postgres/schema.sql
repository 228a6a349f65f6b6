-- Version 4. Times are milliseconds since the epoch, by this server's clock. Names are short, because all of it is in
-- one schema; they are compared by their bytes, whatever the locale of the database.
--
-- A live task is either in one place (a row in `place`) or leased (its seq is in `claim.seqs`). Locking the row in
-- `place` is the right to change the task. A claim row is written and deleted, never changed: it leases a task as long
-- as the task has not been settled under its fence or a later one.
--
-- The end of a task only appends to `counter_delta`, so a transaction that stays open locks no counter. A turn adds the
-- deltas up under the stripe of their names, an advisory lock: see functions/counters.sql.

CREATE SCHEMA onthedot;
SET LOCAL search_path = onthedot;

CREATE DOMAIN label AS text COLLATE "C";

CREATE TABLE version (number integer NOT NULL);
INSERT INTO version VALUES (4);
CREATE TABLE app (  -- data_set: random, so that a worker notices another database behind the same URL. changes_after: the
    -- last call that was deleted from the change feed
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name label NOT NULL UNIQUE,
    data_set uuid NOT NULL DEFAULT gen_random_uuid(), changes_after bigint NOT NULL DEFAULT 0
);

CREATE SEQUENCE seq;  -- the order of adding
CREATE SEQUENCE fence;  -- claims, store-wide
CREATE SEQUENCE chore;  -- the order in which tasks became chores

CREATE TABLE task (  -- request, policy and history; the fill factor leaves space for one HOT update, the settle
    seq bigint PRIMARY KEY, app integer NOT NULL, uuid label NOT NULL, source label NOT NULL, lane label,
    unique_key label, due bigint NOT NULL, added bigint NOT NULL, boost bigint NOT NULL, cost double precision NOT NULL,
    expires bigint, max_crashes integer NOT NULL, unique_for bigint, reply_to text, policy text NOT NULL,
    body bytea NOT NULL,
    state text,  -- of ended tasks, chores and lifted tasks; otherwise it follows from the place or the claim
    reason text NOT NULL DEFAULT 'due', retries integer NOT NULL DEFAULT 0, crashes integer NOT NULL DEFAULT 0,
    earlier integer NOT NULL DEFAULT 0, cancel_requested boolean NOT NULL DEFAULT false,
    settled_fence bigint NOT NULL DEFAULT 0, session label, started bigint, ended bigint, keep_until bigint,
    hops integer NOT NULL DEFAULT 0, error bytea, result bytea, result_until bigint,
    links json, flow label, increments text[],  -- flow and increments are parts of the links
    wait json, wait_until bigint,  -- wait: of a waiting task that has started
    revives integer NOT NULL DEFAULT 0
) WITH (fillfactor = 40);
CREATE UNIQUE INDEX task_uuid ON task (uuid, app);  -- uuid first, so that no plan uses it to scan an app
CREATE INDEX task_flow ON task (app, flow, seq) WHERE flow IS NOT NULL;
CREATE INDEX task_last_of_flow ON task (app, seq) WHERE flow = uuid;

CREATE TABLE place (  -- kind: s(cheduled), p(arked), r(eady), w(aiting: it has no lane here), c(hore), l(ifted)
    seq bigint PRIMARY KEY, app integer NOT NULL, kind "char" NOT NULL, source label NOT NULL, suspect boolean NOT NULL,
    rank bigint NOT NULL, lane label, cost double precision NOT NULL, expires_at bigint, alarm bigint
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX place_ready ON place (app, source, suspect, rank, seq) WHERE kind = 'r';
CREATE INDEX place_suspect ON place (app, source) WHERE kind = 'r' AND suspect;
CREATE INDEX place_admitted ON place (app, lane) WHERE kind = 'r' AND lane IS NOT NULL;
CREATE INDEX place_parked ON place (app, lane, rank, seq) WHERE kind = 'p';
CREATE INDEX place_laned ON place (app) WHERE lane IS NOT NULL;
CREATE INDEX place_chore ON place (app, rank) WHERE kind = 'c';
CREATE INDEX place_alarm ON place (app, alarm, seq) WHERE alarm IS NOT NULL;

CREATE TABLE claim (  -- the tasks of one source and lane that one claim took; number: of the claim request
    fence bigint NOT NULL, app integer NOT NULL, session label NOT NULL, number bigint NOT NULL, source label NOT NULL,
    lane label, chore boolean NOT NULL, at bigint NOT NULL, seqs bigint[] NOT NULL
);
CREATE INDEX claim_fence ON claim (fence);
CREATE INDEX claim_session ON claim (app, session);
CREATE INDEX claim_source ON claim (app, source);
CREATE INDEX claim_lane ON claim (app, lane) WHERE lane IS NOT NULL;

CREATE TABLE session (  -- the row is locked by calls for the session
    app integer, name label,
    role text NOT NULL,  -- worker, or client: it cancels, lifts or subscribes
    info bytea NOT NULL, until double precision NOT NULL,
    claim_number bigint NOT NULL DEFAULT 0,  -- of the last claim request
    PRIMARY KEY (app, name)
) WITH (fillfactor = 50);
CREATE TABLE dead_session (
    number bigint GENERATED ALWAYS AS IDENTITY, app integer, name label, PRIMARY KEY (app, name)
);

CREATE TABLE recent_uuid (  -- of tasks that ended with keep=0: a repeated add finds them
    uuid label, app integer, until bigint NOT NULL, PRIMARY KEY (uuid, app)
);
CREATE INDEX recent_uuid_until ON recent_uuid (until);
CREATE TABLE unique_key (
    app integer, source label, name label, uuid label NOT NULL, until bigint, PRIMARY KEY (app, source, name)
);
CREATE INDEX unique_key_until ON unique_key (until) WHERE until IS NOT NULL;
CREATE TABLE limit_rule (
    app integer, name label, owner label, cap integer, rate double precision, burst double precision NOT NULL,
    paused boolean NOT NULL, reason text NOT NULL, paused_since bigint, lane_rule bytea, mode text NOT NULL,
    PRIMARY KEY (app, name, owner)
);
CREATE TABLE token_bucket (  -- of a lane or a source; tokens is null: full. refill_at: when the lane is checked again
    app integer, name label, tokens double precision, at double precision, refill_at double precision,
    PRIMARY KEY (app, name)
) WITH (fillfactor = 50);
CREATE INDEX token_bucket_refill ON token_bucket (app, refill_at) WHERE refill_at IS NOT NULL;
CREATE TABLE lane_check (app integer NOT NULL, lane label NOT NULL);  -- the next turn admits their tasks
CREATE TABLE schedule (
    app integer, name label, rule bytea NOT NULL, definition_digest text NOT NULL, next_at bigint, rev integer NOT NULL,
    paused boolean NOT NULL, last_at bigint, runs integer NOT NULL, incoming boolean NOT NULL, PRIMARY KEY (app, name)
);
CREATE INDEX schedule_next ON schedule (app, next_at) WHERE next_at IS NOT NULL AND NOT paused;

CREATE TABLE counter (
    app integer, name label, value bigint NOT NULL, failed bigint NOT NULL, until bigint NOT NULL,
    PRIMARY KEY (app, name)
) WITH (fillfactor = 50);
CREATE INDEX counter_until ON counter (app, until);
CREATE TABLE counter_delta (  -- what ends and revivals add to a counter; 0: a wait for it has begun
    app integer NOT NULL, stripe integer NOT NULL, name label NOT NULL, ended bigint NOT NULL, failed bigint NOT NULL,
    at bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX counter_delta_name ON counter_delta (app, stripe, name);
CREATE TABLE waiter (  -- one row per counter that a waiting task waits for
    app integer, name label, value bigint, seq bigint, PRIMARY KEY (app, name, value, seq)
);
CREATE INDEX waiter_seq ON waiter (seq);
CREATE TABLE signal (
    app integer, name label, number bigint, id label NOT NULL, payload bytea NOT NULL, until bigint NOT NULL,
    PRIMARY KEY (app, name, number), UNIQUE (app, name, id)
);
CREATE INDEX signal_until ON signal (app, until);
CREATE TABLE subscription (app integer, uuid label, session label, PRIMARY KEY (app, uuid, session));
CREATE INDEX subscription_session ON subscription (app, session);

CREATE TABLE note (
    number bigint GENERATED ALWAYS AS IDENTITY, seq bigint, kind text, name label, data bytea NOT NULL,
    fence bigint NOT NULL, session label NOT NULL, PRIMARY KEY (seq, kind, name)
);
CREATE TABLE retention (  -- what `purge` deletes: one row per call, keeping time, source and state, not per task
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, app integer NOT NULL, what text NOT NULL,
    until bigint NOT NULL, ended bigint NOT NULL, seqs bigint[] NOT NULL, source label, state label  -- of ended tasks
);
CREATE INDEX retention_until ON retention (app, what, until, number);
CREATE INDEX retention_ended ON retention (app, what, ended, number);
CREATE TABLE tally (app integer NOT NULL, source label NOT NULL, state label NOT NULL, number bigint NOT NULL);
CREATE TABLE change (  -- the change feed; call: its transaction. number: of tasks. deleted: uuids of those that were not
    -- kept, instead of seqs. Rows without a source were written by version 3
    app integer NOT NULL, call bigint NOT NULL, at bigint NOT NULL, state label NOT NULL, seqs bigint[], deleted json,
    source label, number integer
);
CREATE INDEX change_call ON change (app, call);

-- The result of settling outcomes. sources, lanes: of all. newcomers: requeued tasks that are parked, by rank. woken:
-- sources that got ready tasks. missed: a task was changed by another call meanwhile. raised: counters that were
-- incremented. waiting: tasks that wait now. dropped: tasks that were not kept.
CREATE TYPE settlement AS (
    positions bigint[], sources text[], lanes text[], newcomers bigint[], woken text[], suspect boolean, chore boolean,
    missed boolean, ended json, raised text[], waiting bigint[], dropped bigint[]
);
