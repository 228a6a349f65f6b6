-- Events: outbox, groups and their log, resume handles and arrivals, retention, reads.

-- name: event_columns
event.seq, event.id, event.topic, event.key, event.bucket, event.type, event.version, event.aggregate_type,
event.aggregate_id, event.correlation_id, event.causation_id, event.retries, event.occurred_at, event.payload, event.raw,
event.headers, event.status, event.attempts, event.error, event.sent_at, event.position

-- name: insert_event
INSERT INTO onthedot_event_outbox (
    seq, app, id, topic, key, bucket, type, version, aggregate_type, aggregate_id, correlation_id, causation_id, retries,
    occurred_at, payload, raw, headers
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (app, id) DO NOTHING;

-- name: event_ids_after
SELECT id FROM onthedot_event_outbox WHERE seq > ?;

-- name: unsent_pairs
WITH RECURSIVE pair (topic, bucket) AS (  -- from pair to pair, whatever the number of their events
    SELECT topic, bucket FROM (
        SELECT topic, bucket FROM onthedot_event_outbox WHERE app = :app AND status = 'pending' AND NOT blocked
        ORDER BY topic, bucket LIMIT 1
    )
    UNION ALL
    SELECT event.topic, event.bucket FROM pair CROSS JOIN onthedot_event_outbox AS event ON event.seq = coalesce((
        SELECT next.seq FROM onthedot_event_outbox AS next
        WHERE next.app = :app AND next.status = 'pending' AND NOT next.blocked AND next.topic = pair.topic AND next.bucket > pair.bucket
        ORDER BY next.bucket LIMIT 1
    ), (
        SELECT next.seq FROM onthedot_event_outbox AS next
        WHERE next.app = :app AND next.status = 'pending' AND NOT next.blocked AND next.topic > pair.topic
        ORDER BY next.topic, next.bucket LIMIT 1
    ))
)
SELECT topic, bucket FROM pair;

-- name: unsent
-- And whether the key has a failed event.
SELECT seq, EXISTS (
    SELECT 1 FROM onthedot_event_outbox AS failed
    WHERE failed.app = event.app AND failed.topic = event.topic AND failed.key = event.key AND failed.status = 'failed'
) FROM onthedot_event_outbox AS event
WHERE app = ? AND topic = ? AND bucket = ? AND status = 'pending' AND NOT blocked AND seq > ? ORDER BY seq LIMIT ?;

-- name: set_aside
UPDATE onthedot_event_outbox SET blocked = 1 WHERE seq IN (SELECT value FROM json_each(?));

-- name: keys_of_failed
SELECT DISTINCT app, topic, key FROM onthedot_event_outbox
WHERE seq IN (SELECT value FROM json_each(?)) AND status = 'failed';

-- name: free_key_of_events
UPDATE onthedot_event_outbox SET blocked = 0 WHERE app = ? AND topic = ? AND key = ? AND blocked;

-- name: events_by_seq
SELECT {event_columns} FROM onthedot_event_outbox AS event WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq;

-- name: unsent_buckets
SELECT seq, bucket FROM onthedot_event_outbox
WHERE seq IN (SELECT value FROM json_each(?)) AND +app = ? AND status IN ('pending', 'failed');

-- name: mark_sent
UPDATE onthedot_event_outbox SET status = 'sent', blocked = 0, sent_at = ?, position = ? WHERE seq = ?;

-- name: mark_failed
UPDATE onthedot_event_outbox SET status = 'failed', blocked = 0, error = ?, attempts = attempts + 1
WHERE seq = ? AND app = ? AND status = 'pending';

-- name: failed_seq
SELECT seq FROM onthedot_event_outbox WHERE app = ? AND id = ? AND status = 'failed';

-- name: retry_event
UPDATE onthedot_event_outbox SET status = 'pending', error = '' WHERE seq = ?;

-- name: discard_event
UPDATE onthedot_event_outbox SET status = 'discarded', sent_at = ?, error = coalesce(?, error) WHERE seq = ?;

-- name: members_of_group
SELECT session FROM onthedot_event_member WHERE app = ? AND consumer_group = ?;

-- name: members
SELECT DISTINCT session FROM onthedot_event_member WHERE app = ?;

-- name: join_group
INSERT INTO onthedot_event_member VALUES (?, ?, ?);

-- name: leave_groups
DELETE FROM onthedot_event_member WHERE app = ? AND session = ?;

-- name: free_buckets
UPDATE onthedot_event_bucket SET session = NULL WHERE app = ? AND session = ?;

-- name: owners
SELECT bucket, session FROM onthedot_event_bucket WHERE app = ? AND consumer_group = ? AND session IS NOT NULL;

-- name: set_owner
INSERT INTO onthedot_event_bucket (app, consumer_group, bucket, session) VALUES (?, ?, ?, ?)
ON CONFLICT (app, consumer_group, bucket) DO UPDATE SET session = excluded.session;

-- name: positions
SELECT bucket, position FROM onthedot_event_bucket WHERE app = ? AND consumer_group = ? AND position > 0;

-- name: set_position
INSERT INTO onthedot_event_bucket (app, consumer_group, bucket, position) VALUES (?, ?, ?, ?)
ON CONFLICT (app, consumer_group, bucket) DO UPDATE SET position = excluded.position;

-- name: next_position
SELECT min(position) FROM onthedot_event_outbox WHERE app = ? AND bucket = ? AND position > ?;

-- name: read_log
SELECT {event_columns} FROM onthedot_event_outbox AS event
WHERE app = :app AND bucket = :bucket AND position > :after AND position < :until
AND topic IN (SELECT value FROM json_each(:topics)) ORDER BY position LIMIT :limit;

-- name: insert_arrival
INSERT INTO onthedot_flow_resume_events (app, correlation_id, event_id, type, event, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (app, correlation_id, event_id) DO NOTHING RETURNING number;

-- name: count_arrivals
SELECT type, count(*) FROM onthedot_flow_resume_events WHERE app = ? AND correlation_id = ? GROUP BY type;

-- name: handle_columns
id, correlation_id, expected, target, status, created, expires_at, ended

-- name: handles_of
SELECT {handle_columns} FROM onthedot_flow_resume_handles WHERE app = ? AND correlation_id = ? ORDER BY number;

-- name: handle
SELECT {handle_columns} FROM onthedot_flow_resume_handles WHERE app = ? AND id = ?;

-- name: save_handle
INSERT INTO onthedot_flow_resume_handles (app, id, correlation_id, expected, target, status, created, expires_at, ended)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: set_handle_status
UPDATE onthedot_flow_resume_handles SET status = ?, ended = ? WHERE app = ? AND id = ?;

-- name: sent_events
SELECT seq FROM onthedot_event_outbox WHERE seq IN (SELECT value FROM json_each(?)) AND +app = ? AND sent_at = ? ORDER BY seq;

-- name: delete_events
DELETE FROM onthedot_event_outbox WHERE seq IN (SELECT value FROM json_each(?));

-- name: expire_handles
UPDATE onthedot_flow_resume_handles SET status = 'expired', ended = expires_at WHERE number IN (
    SELECT number FROM onthedot_flow_resume_handles WHERE app = ? AND status = 'pending' AND expires_at <= ?
    ORDER BY expires_at LIMIT ?
);

-- name: drop_handles
DELETE FROM onthedot_flow_resume_handles WHERE number IN (
    SELECT number FROM onthedot_flow_resume_handles WHERE app = ? AND ended <= ? ORDER BY ended LIMIT ?
) RETURNING correlation_id;

-- name: drop_arrivals_of
DELETE FROM onthedot_flow_resume_events WHERE app = :app AND correlation_id = :correlation AND NOT EXISTS (
    SELECT 1 FROM onthedot_flow_resume_handles WHERE app = :app AND correlation_id = :correlation
);

-- name: arrivals_without_handle
SELECT number FROM onthedot_flow_resume_events AS arrival
WHERE number IN (SELECT value FROM json_each(?)) AND +app = ? AND at = ? AND NOT EXISTS (
    SELECT 1 FROM onthedot_flow_resume_handles AS handle
    WHERE handle.app = arrival.app AND handle.correlation_id = arrival.correlation_id
) ORDER BY number;

-- name: delete_arrivals
DELETE FROM onthedot_flow_resume_events WHERE number IN (SELECT value FROM json_each(?));

-- name: arrivals
SELECT correlation_id, event_id, type, event, at FROM onthedot_flow_resume_events
WHERE app = ? AND correlation_id = ? ORDER BY number;

-- name: event_filters
AND (
    :topic IS NULL OR event.topic = :topic OR :topic = '*'
    OR (substr(:topic, 1, 1) = '*' AND substr(event.topic, 1 - length(:topic)) = substr(:topic, 2))
) AND (:key IS NULL OR event.key = :key)
AND (:correlation IS NULL OR event.correlation_id = :correlation) AND (:status IS NULL OR event.status = :status)

-- name: find_events
SELECT {event_columns} FROM onthedot_event_outbox AS event WHERE +event.app = :app AND event.seq > :after
{event_filters} ORDER BY event.seq LIMIT :limit;

-- name: find_event
SELECT {event_columns} FROM onthedot_event_outbox AS event WHERE event.app = :app AND event.id = :id AND event.seq > :after
{event_filters} LIMIT :limit;

-- name: find_pending_events
SELECT {event_columns} FROM onthedot_event_outbox AS event
WHERE event.app = :app AND event.status = 'pending' AND NOT event.blocked AND event.seq > :after {event_filters}
UNION ALL
SELECT {event_columns} FROM onthedot_event_outbox AS event
WHERE event.app = :app AND event.blocked AND event.seq > :after {event_filters} ORDER BY 1 LIMIT :limit;

-- name: find_failed_events
SELECT {event_columns} FROM onthedot_event_outbox AS event
WHERE event.app = :app AND event.status = 'failed' AND event.seq > :after {event_filters} ORDER BY event.seq LIMIT :limit;

-- name: pending_topics
SELECT topic, count(*), min(occurred_at) FROM (
    SELECT topic, occurred_at FROM onthedot_event_outbox WHERE app = :app AND status = 'pending' AND NOT blocked
    UNION ALL SELECT topic, occurred_at FROM onthedot_event_outbox WHERE app = :app AND blocked
) GROUP BY topic;

-- name: failed_topics
-- The error is that of the row with the highest seq.
SELECT topic, count(*), count(DISTINCT key), error, max(seq) FROM onthedot_event_outbox
WHERE app = ? AND status = 'failed' GROUP BY topic;

-- name: all_owners
SELECT consumer_group, bucket, session FROM onthedot_event_bucket WHERE app = ? AND session IS NOT NULL;

-- name: lags
SELECT consumer_group, sum((
    SELECT count(*) FROM onthedot_event_outbox AS event
    WHERE event.app = owned.app AND event.bucket = owned.bucket AND event.position > owned.position
)) FROM onthedot_event_bucket AS owned WHERE app = ? AND consumer_group != ? GROUP BY consumer_group;

-- name: unread
-- From the committed position of each bucket on, in the index of the log.
SELECT event.topic, ended.bucket, count(*) FROM onthedot_event_bucket AS ended
LEFT JOIN onthedot_event_bucket AS owned
    ON owned.app = :app AND owned.consumer_group = :group AND owned.bucket = ended.bucket
CROSS JOIN onthedot_event_outbox AS event
    ON event.app = :app AND event.bucket = ended.bucket AND event.position > coalesce(owned.position, 0)
WHERE ended.app = :app AND ended.consumer_group = :relays AND event.topic IN (SELECT value FROM json_each(:topics))
GROUP BY event.topic, ended.bucket ORDER BY event.topic, ended.bucket;

-- name: handle_counts
SELECT iif(status = 'pending' AND expires_at <= ?, 'expired', status) AS seen, count(*)
FROM onthedot_flow_resume_handles WHERE app = ? GROUP BY seen;
