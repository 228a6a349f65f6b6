-- Statements by name: fragments, the calls of the verbs, then reads, which lock nothing and have their own connection.

-- name: app_id
-- Fragment: the id of the app that is named by the first parameter. A database that was made anew has other ids.
(SELECT a.id FROM onthedot.app AS a WHERE a.name = $1)

-- name: visible_state
-- Fragment: a task's state, with the place or claim that it is in.
CASE WHEN t.ended IS NOT NULL THEN t.state WHEN h.session IS NOT NULL THEN 'running'
    ELSE coalesce(onthedot.state_v1(p.kind), t.state) END

-- name: record_columns
-- Fragment: what `to_record` reads.
t.uuid, t.source, t.body, t.policy, t.lane, t.unique_key, t.due, t.seq, t.added, {visible_state} AS state,
onthedot.history_v1(t) AS history, h.session AS holder, h.at AS leased_at,
CASE WHEN t.result_until IS NULL OR t.result_until > onthedot.now_v1($2) THEN t.result END AS result, t.links

-- name: places_and_claims
-- Fragment: the place of a task, or the claim that leases it.
LEFT JOIN onthedot.place AS p ON p.seq = t.seq
LEFT JOIN LATERAL (
    SELECT c.session, c.at FROM onthedot.claim AS c WHERE p.seq IS NULL AND t.ended IS NULL AND c.app = t.app
        AND c.source = t.source AND NOT c.chore AND c.fence > t.settled_fence AND t.seq = ANY (c.seqs) LIMIT 1
) AS h ON true

-- name: filters
-- Fragment: the filters of `find`; null: any.
($4::text IS NULL OR starts_with(t.uuid, $4))
AND ($5::text IS NULL OR right(t.uuid, length($5)) = $5)
AND ($6::text IS NULL OR t.source = $6)
AND ($7::text IS NULL OR $7 = {visible_state})
AND ($8::text IS NULL OR onthedot.has_tag_v1(t.policy, $8))
AND ($9::text IS NULL OR t.unique_key = $9)
AND ($10::text IS NULL OR t.lane = $10)
AND ($11::text IS NULL OR t.flow = CASE $11 WHEN '*' THEN t.uuid ELSE $11 END)
AND ($12::text IS NULL OR EXISTS (
    SELECT FROM onthedot.waiter AS w WHERE w.seq = t.seq AND w.name = $12 OFFSET 0))
AND ($13::bigint IS NULL OR t.added >= $13)
AND ($14::bigint IS NULL OR t.added < $14)

-- name: add
SELECT * FROM onthedot.add_v1($1, $2);

-- name: add_in
SELECT * FROM onthedot.add_in_v1($1);

-- name: turn
SELECT * FROM onthedot.turn_v1($1, $2, $3, $4);

-- name: cancel
SELECT * FROM onthedot.cancel_v1($1);

-- name: lift
SELECT * FROM onthedot.lift_v1($1);

-- name: adopt
SELECT * FROM onthedot.adopt_v1($1);

-- name: revive
SELECT * FROM onthedot.revive_v1($1);

-- name: note
SELECT * FROM onthedot.note_v1($1);

-- name: signal
SELECT * FROM onthedot.signal_v1($1);

-- name: write_series
SELECT * FROM onthedot.write_series_v1($1);

-- name: subscribe
SELECT onthedot.subscribe_v1($1);

-- name: heartbeat
SELECT * FROM onthedot.heartbeat_v1($1);

-- name: close_session
SELECT * FROM onthedot.close_session_v1($1);

-- name: put_schedules
SELECT * FROM onthedot.put_schedules_v1($1);

-- name: put_limits
SELECT * FROM onthedot.put_limits_v1($1, $2);

-- name: fire
SELECT * FROM onthedot.fire_v1($1);

-- name: delete_schedules
SELECT onthedot.delete_schedules_v1($1);

-- name: purge
SELECT * FROM onthedot.purge_v1($1);

-- name: settle_in
SELECT * FROM onthedot.settle_in_v1($1);

-- name: notify
-- Send hints. A hint may be lost, so this does not wait for the disk.
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
SELECT pg_notify($1, hint) FROM quick CROSS JOIN unnest($2::text[]) AS hint;

-- name: app
-- The id of an app, and the time.
SELECT id, onthedot.now_v1(NULL) AS moment FROM onthedot.app WHERE name = $1;

-- name: new_app
-- The id of an app, which gets one if it has none, and the time.
SELECT set_config('search_path', 'onthedot', true), onthedot.app_v1($1) AS id,
    (extract(epoch FROM clock_timestamp()) * 1000)::double precision AS moment;

-- name: apps
-- The apps that have tasks, sessions, schedules or events. A relay of sent events has left its buckets.
SELECT name FROM onthedot.app AS a WHERE id IN (
    SELECT app FROM onthedot.tally UNION SELECT app FROM onthedot.session UNION SELECT app FROM onthedot.schedule
    UNION SELECT app FROM onthedot.event_bucket
) OR EXISTS (SELECT FROM onthedot.event_outbox AS e WHERE e.app = a.id AND e.status = 'pending' AND NOT e.blocked) ORDER BY name;

-- name: app_tables
-- The tables with rows of apps; those of `note` are found by their task.
SELECT c.relname AS name FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'app'
WHERE c.relnamespace = 'onthedot'::regnamespace AND c.relkind = 'r' ORDER BY name;

-- name: undeletable_tables
-- The tables from which the user may not delete.
SELECT relname AS name FROM pg_class WHERE relnamespace = 'onthedot'::regnamespace AND relkind = 'r'
    AND relname <> 'version' AND NOT has_table_privilege(oid, 'DELETE') ORDER BY name;

-- name: remove_notes
DELETE FROM onthedot.note WHERE seq IN (SELECT seq FROM onthedot.task WHERE app = $1);

-- name: get
-- Records by uuid.
SELECT {record_columns} FROM onthedot.task AS t {places_and_claims}
WHERE t.app = {app_id} AND t.uuid = ANY ($3::text[]);

-- name: results
-- The kept results of tasks that have succeeded, by uuid.
SELECT t.uuid, t.result FROM onthedot.task AS t
WHERE t.app = {app_id} AND t.uuid = ANY ($3::text[]) AND t.state = 'succeeded'
    AND (t.result_until IS NULL OR t.result_until > onthedot.now_v1($2));

-- name: position
-- A pending task, the number of tasks before it, and the counts that its limits are judged by; all of one moment.
SELECT {record_columns}, onthedot.now_v1($2) AS now,
    (SELECT count(*) FROM (SELECT FROM onthedot.place AS q WHERE q.app = t.app AND q.kind = 'r' AND q.source = t.source
        AND NOT q.suspect AND (q.rank, q.seq) < (p.rank, p.seq) LIMIT $4) AS ready)
    + (SELECT count(*) FROM (SELECT FROM onthedot.place AS q WHERE q.app = t.app AND q.kind = 'r' AND q.source = t.source
        AND q.suspect AND (q.rank, q.seq) < (p.rank, p.seq) LIMIT $4) AS suspects)
    + (SELECT count(*) FROM (SELECT FROM onthedot.place AS q WHERE q.app = t.app AND q.kind = 'p' AND q.lane = t.lane
        AND p.kind = 'p' AND (q.rank, q.seq) < (p.rank, p.seq) LIMIT $4) AS parked) AS ahead,
    onthedot.running_v1(t.app, t.source, NULL) AS source_running, source_bucket.tokens AS source_tokens,
    source_bucket.at AS source_tokens_at, onthedot.running_v1(t.app, NULL, t.lane) AS lane_running,
    lane_bucket.tokens AS lane_tokens, lane_bucket.at AS lane_tokens_at,
    (SELECT count(*) FROM onthedot.place AS q WHERE q.app = t.app AND q.lane = t.lane AND q.kind = 'r') AS lane_admitted,
    (SELECT coalesce(sum(cost), 0) FROM onthedot.place AS q WHERE q.app = t.app AND q.lane = t.lane AND q.kind = 'r')
        AS lane_reserved
FROM onthedot.task AS t {places_and_claims}
LEFT JOIN onthedot.token_bucket AS source_bucket ON source_bucket.app = t.app AND source_bucket.name = t.source
LEFT JOIN onthedot.token_bucket AS lane_bucket ON lane_bucket.app = t.app AND lane_bucket.name = t.lane
WHERE t.app = {app_id} AND t.uuid = $3 AND p.kind NOT IN ('c', 'l', 'w');

-- name: notes
-- The journal of a task after a number, of one kind or of any.
SELECT n.number, n.fence, n.session, n.kind, n.name, n.data
FROM onthedot.task AS t JOIN onthedot.note AS n ON n.seq = t.seq
WHERE t.app = {app_id} AND t.uuid = $2 AND n.number > $3 AND ($5::text IS NULL OR n.kind = $5)
ORDER BY n.number LIMIT $4;

-- name: counters
-- Counters in the order of the names, with the deltas that are not added up yet.
SELECT c.value, c.failed FROM unnest($2::text[]) WITH ORDINALITY AS n (name, nth)
CROSS JOIN LATERAL onthedot.counter_v1({app_id}, n.name, onthedot.stripe_v1(n.name)) AS c ORDER BY n.nth;

-- name: signals
-- The value of a counter and the signals that are kept under its name, of one moment; without a signal, one row.
SELECT c.value, s.number, s.id, s.payload
FROM onthedot.counter_v1({app_id}, $3, onthedot.stripe_v1($3)) AS c
LEFT JOIN LATERAL (
    SELECT number, id, payload FROM onthedot.signal
    WHERE app = {app_id} AND name = $3 AND number > $4 AND until > onthedot.now_v1($2) ORDER BY number LIMIT $5
) AS s ON true ORDER BY s.number;

-- name: signal_names
-- The names of the kept signals that expire last, the latest first; a name as often as it has such signals.
SELECT name FROM onthedot.signal WHERE app = {app_id} AND until > onthedot.now_v1($2) ORDER BY until DESC LIMIT $3;

-- name: read_series
-- Entries of a series between two times, by time and writer.
SELECT series, at, writer, data, revision FROM onthedot.series_entry
WHERE app = {app_id} AND series = $2 AND at BETWEEN $3 AND $4 ORDER BY at, writer LIMIT $5;

-- name: read_series_backwards
-- The same, the newest first.
SELECT series, at, writer, data, revision FROM onthedot.series_entry
WHERE app = {app_id} AND series = $2 AND at BETWEEN $3 AND $4 ORDER BY at DESC, writer DESC LIMIT $5;

-- name: server
-- The server's time and version.
SELECT now, split_part(current_setting('server_version'), ' ', 1) AS version FROM onthedot.now_v1($1) AS now;

-- name: tally
-- The number of tasks per source and state.
SELECT source, state, sum(number)::bigint AS number FROM onthedot.tally WHERE app = {app_id}
GROUP BY source, state HAVING sum(number) <> 0;

-- name: schedules
-- All schedules.
SELECT name, rule, definition_digest, next_at, rev, paused, last_at, runs, incoming FROM onthedot.schedule
WHERE app = {app_id};

-- name: limits
-- All limits, of code and of the operator.
SELECT name, cap, rate, burst, paused, reason, owner, paused_since, lane_rule, mode FROM onthedot.limit_rule
WHERE app = {app_id};

-- name: sessions
-- Live sessions that have sent a heartbeat.
SELECT name, info FROM onthedot.session WHERE app = {app_id} AND role = 'worker' AND until > onthedot.now_v1($2);

-- name: snapshot
-- The end of the change feed: a snapshot that sees all that is visible now.
SELECT pg_current_snapshot()::text AS snapshot;

-- name: changes
-- The change feed: at most $5 calls that are visible now and were not at the last read. Then none below $2 was open, and
-- none from $3 on had begun; $4: those that were open. Of the newest $6 tasks also the uuids. A page without calls is
-- one row without a call. Calls up to `changes_after` were deleted.
WITH page AS (
    SELECT call, ctid, at, source, state, number, seqs, deleted, $6::bigint - coalesce(sum(number) OVER (
        ORDER BY call DESC, ctid DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS wanted
    FROM onthedot.change WHERE app = {app_id} AND source IS NOT NULL AND call = ANY (ARRAY(
        SELECT DISTINCT call FROM onthedot.change WHERE app = {app_id} AND source IS NOT NULL
            AND call >= $2 AND (call >= $3 OR call = ANY ($4::bigint[])) ORDER BY call LIMIT $5))
)
SELECT pg_current_snapshot()::text AS snapshot, coalesce((
        SELECT a.changes_after FROM onthedot.app AS a WHERE a.name = $1), 0) AS changes_after,
    page.call, page.at, page.source, page.state, page.number,
    CASE WHEN page.wanted <= 0 THEN NULL WHEN page.deleted IS NOT NULL THEN ARRAY(
        SELECT json_array_elements_text(page.deleted) OFFSET greatest(0, page.number - page.wanted)
    ) ELSE ARRAY(
        SELECT t.uuid FROM unnest(page.seqs[greatest(1, page.number - page.wanted + 1):]) WITH ORDINALITY AS s (seq, nth)
        CROSS JOIN LATERAL (SELECT uuid FROM onthedot.task WHERE seq = s.seq OFFSET 0) AS t ORDER BY s.nth
    ) END AS uuids
FROM (VALUES (1)) AS one_row LEFT JOIN page ON true ORDER BY page.call, page.ctid;
