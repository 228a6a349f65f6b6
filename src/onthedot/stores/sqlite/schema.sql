-- Version 4; events are in event_schema.sql, the indexes of lists in list_schema.sql. Times are milliseconds since the epoch. Few indexes: each costs every task.
-- The names have a prefix, since the file may be the user's own.

CREATE TABLE onthedot_sequence (  -- one row: the last numbers given out; control grows with every limit and session
    one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, identity TEXT NOT NULL,
    seq INTEGER NOT NULL, fence INTEGER NOT NULL, moves INTEGER NOT NULL, control INTEGER NOT NULL,
    event_seq INTEGER NOT NULL DEFAULT 0
);
INSERT INTO onthedot_sequence VALUES (1, 4, lower(hex(randomblob(8))), 0, 0, 0, 0, 0);

CREATE TABLE onthedot_app (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE onthedot_source (id INTEGER PRIMARY KEY, app INTEGER NOT NULL, name TEXT NOT NULL, UNIQUE (app, name));

CREATE TABLE onthedot_task (  -- the request; only due and state change, and never grow, so its pages are never split
    seq INTEGER PRIMARY KEY, app INTEGER NOT NULL, uuid TEXT NOT NULL, source INTEGER NOT NULL, policy TEXT NOT NULL,
    lane TEXT, unique_key TEXT, due INTEGER NOT NULL, added INTEGER NOT NULL, state TEXT NOT NULL, body BLOB NOT NULL,
    links TEXT, flow TEXT, wait_until INTEGER  -- of the first wait
);
CREATE TABLE onthedot_history (  -- what has happened since; its due and state replace those of the task
    seq INTEGER PRIMARY KEY, due INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, retries INTEGER NOT NULL,
    crashes INTEGER NOT NULL, earlier INTEGER NOT NULL, cancel INTEGER NOT NULL, settled INTEGER NOT NULL, session TEXT,
    started INTEGER, ended INTEGER, keep_until INTEGER, hops INTEGER NOT NULL DEFAULT 0,
    error BLOB, result_until INTEGER, wait TEXT, wait_until INTEGER, result BLOB, revives INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX onthedot_task_uuid ON onthedot_task (app, uuid);
CREATE INDEX onthedot_task_flow ON onthedot_task (app, flow, seq) WHERE flow IS NOT NULL;

-- The place of a pending task: one row in ready or parked, and one alarm if something happens to it by itself.
CREATE TABLE onthedot_ready (
    source INTEGER, suspect INTEGER, rank INTEGER, seq INTEGER, PRIMARY KEY (source, suspect, rank, seq)
) WITHOUT ROWID;
CREATE TABLE onthedot_parked (
    app INTEGER, lane TEXT, rank INTEGER, seq INTEGER, PRIMARY KEY (app, lane, rank, seq)
) WITHOUT ROWID;
CREATE TABLE onthedot_alarm (app INTEGER, at INTEGER, seq INTEGER, PRIMARY KEY (app, at, seq)) WITHOUT ROWID;
CREATE TABLE onthedot_chore (number INTEGER PRIMARY KEY, app INTEGER NOT NULL, seq INTEGER NOT NULL UNIQUE);

-- Counters, and the tasks that wait for them. A wait is over for every dirty counter, and for no other.
CREATE TABLE onthedot_counter (
    app INTEGER, name TEXT, value INTEGER NOT NULL, failed INTEGER NOT NULL, until INTEGER NOT NULL,
    PRIMARY KEY (app, name)
) WITHOUT ROWID;
CREATE INDEX onthedot_counter_until ON onthedot_counter (app, until);
CREATE TABLE onthedot_waiting (
    app INTEGER, name TEXT, value INTEGER, seq INTEGER, PRIMARY KEY (app, name, value, seq)
) WITHOUT ROWID;
CREATE TABLE onthedot_dirty_counter (app INTEGER, name TEXT, PRIMARY KEY (app, name)) WITHOUT ROWID;
CREATE TABLE onthedot_signal (
    app INTEGER, name TEXT, number INTEGER, id TEXT NOT NULL, payload BLOB NOT NULL, until INTEGER NOT NULL,
    PRIMARY KEY (app, name, number), UNIQUE (app, name, id)
) WITHOUT ROWID;
CREATE INDEX onthedot_signal_until ON onthedot_signal (app, until);
CREATE TABLE onthedot_subscription (app INTEGER, uuid TEXT, session TEXT, PRIMARY KEY (app, uuid, session)) WITHOUT ROWID;
CREATE INDEX onthedot_subscription_session ON onthedot_subscription (app, session);

-- Leases: a claim writes here, and never to the task.
CREATE TABLE onthedot_claim (
    fence INTEGER PRIMARY KEY, app INTEGER NOT NULL, session TEXT NOT NULL, at INTEGER NOT NULL, left INTEGER NOT NULL
);
CREATE TABLE onthedot_lease (
    seq INTEGER PRIMARY KEY, fence INTEGER NOT NULL, chore INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    touched INTEGER NOT NULL  -- its history was written while it was leased
);
CREATE TABLE onthedot_session (  -- number, fence: its last claim that took something
    app INTEGER, name TEXT, role TEXT NOT NULL, info BLOB NOT NULL, until REAL NOT NULL, suspects INTEGER NOT NULL,
    number INTEGER NOT NULL, fence INTEGER NOT NULL, process TEXT NOT NULL, PRIMARY KEY (app, name)
) WITHOUT ROWID;
CREATE TABLE onthedot_dead_session (number INTEGER PRIMARY KEY, app INTEGER NOT NULL, name TEXT NOT NULL, UNIQUE (app, name));

CREATE TABLE onthedot_unique_key (
    source INTEGER, name TEXT, uuid TEXT NOT NULL, until INTEGER, PRIMARY KEY (source, name)
) WITHOUT ROWID;
CREATE INDEX onthedot_unique_key_until ON onthedot_unique_key (until) WHERE until IS NOT NULL;
CREATE TABLE onthedot_recent (  -- uuids of tasks that ended with keep=0: a repeated add finds them
    app INTEGER, uuid TEXT, until INTEGER NOT NULL, PRIMARY KEY (app, uuid)
) WITHOUT ROWID;
CREATE TABLE onthedot_limit (  -- limits
    app INTEGER, name TEXT, cap INTEGER, rate REAL, burst REAL NOT NULL, paused INTEGER NOT NULL, reason TEXT NOT NULL,
    owner TEXT, paused_since INTEGER, lane_rule BLOB, mode TEXT NOT NULL, PRIMARY KEY (app, name, owner)
) WITHOUT ROWID;
CREATE TABLE onthedot_lane (  -- of a source only tokens and at are used: its bucket
    app INTEGER, name TEXT, running INTEGER NOT NULL, admitted INTEGER NOT NULL, reserved REAL NOT NULL,
    tokens REAL, at REAL, refill_at REAL, PRIMARY KEY (app, name)
) WITHOUT ROWID;
CREATE INDEX onthedot_lane_refill ON onthedot_lane (app, refill_at) WHERE refill_at IS NOT NULL;
CREATE TABLE onthedot_schedule (
    app INTEGER, name TEXT, rule BLOB NOT NULL, definition_digest TEXT NOT NULL, next_at INTEGER, rev INTEGER NOT NULL,
    paused INTEGER NOT NULL, last_at INTEGER, runs INTEGER NOT NULL, incoming INTEGER NOT NULL,
    PRIMARY KEY (app, name)
) WITHOUT ROWID;
CREATE INDEX onthedot_schedule_next ON onthedot_schedule (app, next_at) WHERE next_at IS NOT NULL AND NOT paused;

CREATE TABLE onthedot_note (
    number INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    data BLOB NOT NULL, fence INTEGER NOT NULL, session TEXT NOT NULL, UNIQUE (seq, kind, name)
);
CREATE TABLE onthedot_retention (  -- what a purge drops: one row per call, keeping time, source and state, not one per task
    number INTEGER PRIMARY KEY, app INTEGER NOT NULL, what TEXT NOT NULL, until INTEGER NOT NULL,
    ended INTEGER NOT NULL, seqs TEXT NOT NULL, source INTEGER, state TEXT  -- of ended tasks
);
CREATE INDEX onthedot_retention_until ON onthedot_retention (app, what, until, number);
CREATE INDEX onthedot_retention_ended ON onthedot_retention (app, what, ended, number);
CREATE TABLE onthedot_tally (
    source INTEGER, state TEXT, number INTEGER NOT NULL, PRIMARY KEY (source, state)
) WITHOUT ROWID;
CREATE TABLE onthedot_change (  -- number: transitions so far, so that the bound on transitions is a bound on numbers
    number INTEGER PRIMARY KEY, app INTEGER NOT NULL, at INTEGER NOT NULL, transitions TEXT NOT NULL
);
