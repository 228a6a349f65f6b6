-- Events: added by version 4. Rows of onthedot_retention show when they may be dropped, so none needs an index by time.

CREATE TABLE onthedot_event_outbox (  -- payload, raw and headers come last: the other columns are read without them
    seq INTEGER PRIMARY KEY, app INTEGER NOT NULL, id TEXT NOT NULL, topic TEXT NOT NULL, key TEXT NOT NULL, bucket INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending', attempts INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '',
    sent_at INTEGER, position INTEGER,  -- in the log of the bucket, where the store is the bus
    type TEXT NOT NULL, version INTEGER NOT NULL, aggregate_type TEXT NOT NULL, aggregate_id TEXT NOT NULL,
    correlation_id TEXT, causation_id TEXT, retries INTEGER NOT NULL, occurred_at INTEGER NOT NULL,
    blocked INTEGER NOT NULL DEFAULT 0,  -- pending, and set aside: its key has a failed event in its topic
    headers BLOB, payload BLOB, raw BLOB
);
CREATE UNIQUE INDEX onthedot_event_id ON onthedot_event_outbox (app, id);
CREATE INDEX onthedot_event_unsent ON onthedot_event_outbox (app, topic, bucket) WHERE status = 'pending' AND NOT blocked;  -- then by seq
CREATE INDEX onthedot_event_blocked ON onthedot_event_outbox (app, topic, key) WHERE blocked;
CREATE INDEX onthedot_event_failed ON onthedot_event_outbox (app, topic, key) WHERE status = 'failed';
CREATE INDEX onthedot_event_position ON onthedot_event_outbox (app, bucket, position, topic) WHERE position IS NOT NULL;

CREATE TABLE onthedot_event_bucket (  -- position: up to which the group has committed; of the relays (''), the end of the log
    app INTEGER, consumer_group TEXT, bucket INTEGER, session TEXT, position INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (app, consumer_group, bucket)
) WITHOUT ROWID;
CREATE TABLE onthedot_event_member (
    app INTEGER, consumer_group TEXT, session TEXT, PRIMARY KEY (app, consumer_group, session)
) WITHOUT ROWID;
CREATE INDEX onthedot_event_member_session ON onthedot_event_member (app, session);

CREATE TABLE onthedot_flow_resume_handles (  -- number: in order of creation
    number INTEGER PRIMARY KEY, app INTEGER NOT NULL, id TEXT NOT NULL, correlation_id TEXT NOT NULL, expected TEXT NOT NULL,
    target TEXT NOT NULL, status TEXT NOT NULL, created INTEGER NOT NULL, expires_at INTEGER NOT NULL, ended INTEGER,
    UNIQUE (app, id)
);
CREATE INDEX onthedot_handle_correlation ON onthedot_flow_resume_handles (app, correlation_id);
CREATE INDEX onthedot_handle_expires ON onthedot_flow_resume_handles (app, expires_at) WHERE status = 'pending';
CREATE INDEX onthedot_handle_ended ON onthedot_flow_resume_handles (app, ended) WHERE ended IS NOT NULL;
CREATE TABLE onthedot_flow_resume_events (  -- arrivals; number: in order of arrival
    number INTEGER PRIMARY KEY, app INTEGER NOT NULL, correlation_id TEXT NOT NULL, event_id TEXT NOT NULL, type TEXT NOT NULL,
    event BLOB NOT NULL, at INTEGER NOT NULL, UNIQUE (app, correlation_id, event_id)
);
