-- Statements of events by name: the calls of the verbs, then reads.

-- name: publish
SELECT * FROM onthedot.publish_v1($1);

-- name: relay
SELECT * FROM onthedot.relay_v1($1);

-- name: read_log
SELECT * FROM onthedot.read_log_v1($1);

-- name: commit_positions
SELECT onthedot.commit_positions_v1($1);

-- name: record_arrivals
SELECT onthedot.record_arrivals_v1($1);

-- name: complete_handles
SELECT * FROM onthedot.complete_handles_v1($1);

-- name: create_handle
SELECT * FROM onthedot.create_handle_v1($1);

-- name: amend_events
SELECT * FROM onthedot.amend_events_v1($1);

-- name: purge_events
SELECT * FROM onthedot.purge_events_v1($1);

-- name: event_columns
-- Fragment: what `to_outbox_event` reads.
e.seq, e.id, e.topic, e.key, e.bucket, e.type, e.version, e.aggregate_type, e.aggregate_id, e.correlation_id,
e.causation_id, e.retries, (extract(epoch FROM e.occurred_at) * 1000)::bigint AS occurred_at, e.payload, e.raw,
e.headers, e.attempts, e.error, e.sent_at, e.position, e.status

-- name: event_filters
-- Fragment: the filters of `find_events`; null: any.
e.app = {app_id} AND e.seq > $2 AND ($4::text IS NULL OR e.id = $4) AND ($5::text IS NULL OR e.status = $5)
AND ($6::text IS NULL OR e.topic = $6 OR ($6 LIKE '*%' AND right(e.topic, length($6) - 1) = substr($6, 2))) AND ($7::text IS NULL OR e.key = $7)
AND ($8::text IS NULL OR e.correlation_id = $8)

-- name: find_events
-- Events by seq.
SELECT {event_columns} FROM onthedot.event_outbox AS e WHERE {event_filters} ORDER BY e.seq LIMIT $3;

-- name: find_event
-- The event of an id, by its index.
SELECT {event_columns} FROM onthedot.event_outbox AS e WHERE e.id = $4 AND {event_filters} LIMIT $3;

-- name: find_pending_events
-- Pending events by seq, by their indexes.
SELECT {event_columns} FROM (
    SELECT * FROM onthedot.event_outbox WHERE status = 'pending' AND NOT blocked
    UNION ALL SELECT * FROM onthedot.event_outbox WHERE blocked
) AS e WHERE {event_filters} ORDER BY e.seq LIMIT $3;

-- name: find_failed_events
-- Failed events by seq, by their index.
SELECT {event_columns} FROM onthedot.event_outbox AS e
WHERE e.status = 'failed' AND {event_filters} ORDER BY e.seq LIMIT $3;

-- name: topic_states
-- Per topic: pending events and when the oldest occurred, failed ones, their keys, and the error of the newest.
SELECT topic, count(*) FILTER (WHERE status = 'pending') AS pending,
    (extract(epoch FROM min(occurred_at) FILTER (WHERE status = 'pending')) * 1000)::bigint AS oldest,
    count(*) FILTER (WHERE status = 'failed') AS failed,
    count(DISTINCT key) FILTER (WHERE status = 'failed') AS blocked_keys,
    coalesce((array_agg(error ORDER BY seq DESC) FILTER (WHERE status = 'failed'))[1], '') AS error
FROM (
    SELECT topic, key, seq, status, occurred_at, error FROM onthedot.event_outbox
    WHERE app = {app_id} AND status = 'pending' AND NOT blocked
    UNION ALL
    SELECT topic, key, seq, status, occurred_at, error FROM onthedot.event_outbox WHERE app = {app_id} AND blocked
    UNION ALL
    SELECT topic, key, seq, status, occurred_at, error FROM onthedot.event_outbox
    WHERE app = {app_id} AND status = 'failed'
) AS unsent GROUP BY topic ORDER BY topic;

-- name: bucket_states
-- Per group and bucket: the session that owns it, if it lives, and the number of events that are not committed.
SELECT b.consumer_group, b.bucket, m.session, CASE WHEN b.consumer_group <> '' THEN (
    SELECT count(*) FROM onthedot.event_outbox AS e WHERE e.app = b.app AND e.bucket = b.bucket
    AND e.position > b.position) END AS lag
FROM onthedot.event_bucket AS b LEFT JOIN onthedot.event_member AS m
    ON m.app = b.app AND m.consumer_group = b.consumer_group AND m.session = b.session
WHERE b.app = {app_id};

-- name: unread
-- The events of topics in the log that a group has not committed, per topic and bucket. Committed ones are not read.
SELECT e.topic, n.bucket, count(*) AS number FROM generate_series(0, 15) AS n (bucket)
LEFT JOIN onthedot.event_bucket AS b ON b.app = {app_id} AND b.consumer_group = $2 AND b.bucket = n.bucket
CROSS JOIN LATERAL (
    SELECT o.topic FROM onthedot.event_outbox AS o WHERE o.app = {app_id} AND o.bucket = n.bucket::smallint
    AND o.position > coalesce(b.position, 0) AND o.topic = ANY ($3::text[]) OFFSET 0
) AS e GROUP BY e.topic, n.bucket ORDER BY e.topic, n.bucket;

-- name: handle_states
-- The number of resume handles per status.
SELECT CASE WHEN status = 'pending' AND expires_at <= onthedot.now_v1($2) THEN 'expired' ELSE status END AS status,
    count(*) AS number
FROM onthedot.flow_resume_handles WHERE app = {app_id} GROUP BY 1;

-- name: handles
-- All resume handles of correlation ids, oldest first.
SELECT h.id, onthedot.as_seen_v1(h, onthedot.now_v1($2)) AS handle
FROM unnest($3::text[]) WITH ORDINALITY AS c (id, nth)
JOIN onthedot.flow_resume_handles AS h ON h.app = {app_id} AND h.correlation_id = c.id ORDER BY c.nth, h.number;

-- name: arrivals
-- The events that were stored for a correlation id, in order of arrival.
SELECT correlation_id, event_id, type, event, at FROM onthedot.flow_resume_events
WHERE app = {app_id} AND correlation_id = $2 ORDER BY number;
