-- Events, since version 4: the outbox, the log of each bucket where the store is the bus, groups that relay or read, and
-- resume handles. The column names of event_outbox are those of Debezium's outbox router, with underscores.
--
-- A relay finds events by their status, never by a cursor: a transaction that was numbered early may commit late. The
-- position in the log is given under the lock of the bucket's row, so it is visible after all lower ones.

SET LOCAL search_path = onthedot;

CREATE SEQUENCE event_seq;  -- the order of publishing
CREATE TABLE event_outbox (
    seq bigint PRIMARY KEY, app integer NOT NULL, bucket smallint NOT NULL, id label NOT NULL, topic label NOT NULL,
    key label NOT NULL, type text NOT NULL, version integer NOT NULL, aggregate_type text NOT NULL,
    aggregate_id text NOT NULL, correlation_id label, causation_id label, retries integer NOT NULL,
    occurred_at timestamptz NOT NULL, payload json,
    raw bytea,  -- instead of the payload: the bytes of a dead letter or a replay
    headers json,  -- the user's, with ce_source, ce_priority and traceparent: a relay needs no user code
    status text NOT NULL DEFAULT 'pending',  -- pending, sent, failed, discarded
    attempts integer NOT NULL DEFAULT 0, error text NOT NULL DEFAULT '', sent_at bigint,
    position bigint,  -- in the log of its bucket, where the store is the bus
    size integer NOT NULL DEFAULT 0,  -- bytes of payload, raw and headers
    blocked boolean NOT NULL DEFAULT false  -- pending, and set aside: its key has a failed event in its topic
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX event_id ON event_outbox (id, app);  -- id first, so that no plan uses it to scan an app
CREATE INDEX event_unsent ON event_outbox (app, topic, bucket, seq) WHERE status = 'pending' AND NOT blocked;
CREATE INDEX event_blocked ON event_outbox (app, topic, key, seq) WHERE blocked;
CREATE INDEX event_failed ON event_outbox (app, topic, key) WHERE status = 'failed';
CREATE INDEX event_position ON event_outbox (app, bucket, position) WHERE position IS NOT NULL;

CREATE TABLE event_member (  -- a session that relays ('') or reads the log in a group; the row ends with the session
    app integer, consumer_group label, session label, PRIMARY KEY (app, consumer_group, session)
);
CREATE TABLE event_bucket (  -- session: owns it while it is a member. position: the end of the log (''), or committed
    app integer, consumer_group label, bucket smallint, session label, position bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (app, consumer_group, bucket)
) WITH (fillfactor = 50);

CREATE TABLE flow_resume_handles (
    number bigint GENERATED ALWAYS AS IDENTITY, app integer, id label, correlation_id label NOT NULL,
    expected json NOT NULL,  -- [[[type, …], number], …]
    target text NOT NULL,  -- signal, or prefect:<flow run>
    status text NOT NULL,  -- pending, complete, resumed, expired
    created bigint NOT NULL, expires_at bigint NOT NULL, ended bigint, PRIMARY KEY (app, id)
);
CREATE UNIQUE INDEX handle_live ON flow_resume_handles (app, correlation_id) WHERE status = 'pending';
CREATE INDEX handle_correlation ON flow_resume_handles (app, correlation_id, number);
CREATE INDEX handle_expiry ON flow_resume_handles (app, expires_at) WHERE status = 'pending';
CREATE INDEX handle_ended ON flow_resume_handles (app, ended) WHERE ended IS NOT NULL;
CREATE SEQUENCE arrival;
CREATE TABLE flow_resume_events (  -- kept: a handle was found for it, with which it is deleted
    number bigint NOT NULL, app integer, correlation_id label, event_id label, type label NOT NULL, event json NOT NULL,
    at bigint NOT NULL, kept boolean NOT NULL DEFAULT false, PRIMARY KEY (app, correlation_id, event_id)
);
CREATE INDEX arrival_at ON flow_resume_events (app, at) WHERE NOT kept;
