-- The verbs' calls, then what only looks: without a lock, on a connection of its own.

-- name: seen
CASE WHEN t.ended IS NOT NULL THEN t.state WHEN h.session IS NOT NULL THEN 'running'
    ELSE coalesce(onthedot.state_v1(p.kind), t.state) END

-- name: record
t.uuid, t.source, t.body, t.policy, t.lane, t.unique_key, t.due, t.seq, t.added, {seen} AS state, onthedot.history_v1(t) AS history,
CASE WHEN t.result_until IS NULL OR t.result_until > onthedot.now_v1($2) THEN t.result END AS result, h.session, h.at

-- name: where
LEFT JOIN onthedot.place AS p ON p.seq = t.seq
LEFT JOIN LATERAL (
    SELECT c.session, c.at FROM onthedot.claim AS c WHERE p.seq IS NULL AND t.ended IS NULL AND c.app = t.app
        AND c.source = t.source AND NOT c.chore AND c.fence > t.settled_fence AND t.seq = ANY (c.seqs) LIMIT 1
) AS h ON true

-- name: filters
($5::text IS NULL OR starts_with(t.uuid, $5))
AND ($6::text IS NULL OR t.source = $6)
AND ($7::text IS NULL OR $7 = {seen})
AND ($8::text IS NULL OR t.policy::jsonb -> 'tags' ? $8)
AND ($9::text IS NULL OR t.unique_key = $9)
AND ($10::text IS NULL OR t.lane = $10)
AND ($11::bigint IS NULL OR t.added >= $11)
AND ($12::bigint IS NULL OR t.added < $12)

-- name: add
SELECT * FROM onthedot.add_v1($1);

-- name: turn
SELECT * FROM onthedot.turn_v1($1, $2);

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

-- name: heartbeat
SELECT * FROM onthedot.heartbeat_v1($1);

-- name: close_session
SELECT * FROM onthedot.close_session_v1($1);

-- name: put_schedules
SELECT * FROM onthedot.put_schedules_v1($1);

-- name: put_limits
SELECT * FROM onthedot.put_limits_v1($1);

-- name: fire
SELECT * FROM onthedot.fire_v1($1);

-- name: delete_schedules
SELECT onthedot.delete_schedules_v1($1);

-- name: purge
SELECT * FROM onthedot.purge_v1($1);

-- name: settle_in
SELECT * FROM onthedot.settle_in_v1($1);

-- name: notify
-- A hint may be lost, so nobody waits for the disk.
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
SELECT pg_notify($1, hint) FROM quick CROSS JOIN unnest($2::text[]) AS hint;

-- name: app
SELECT id FROM onthedot.app WHERE name = $1;

-- name: new_app
SELECT set_config('search_path', 'onthedot', true), onthedot.app_v1($1);

-- name: apps
SELECT name FROM onthedot.app WHERE id IN (
    SELECT app FROM onthedot.tally UNION SELECT app FROM onthedot.session UNION SELECT app FROM onthedot.schedule
) ORDER BY name;

-- name: get
SELECT {record} FROM onthedot.task AS t {where} WHERE t.app = $1 AND t.uuid = ANY ($3::text[]);

-- name: newest_before
SELECT seq FROM onthedot.task WHERE app = $1 AND seq < $2 ORDER BY seq DESC LIMIT 1;

-- name: find
SELECT {record} FROM onthedot.task AS t {where}
WHERE t.app = $1 AND t.seq < $3 AND t.seq >= $4 AND {filters} ORDER BY t.seq DESC LIMIT $13;

-- name: find_running
-- Few, and known from the claims, however many wait.
SELECT {record} FROM onthedot.task AS t {where}
WHERE t.app = $1 AND t.seq < $3 AND t.seq >= $4 AND t.seq = ANY (ARRAY(
    SELECT unnest(seqs) FROM onthedot.claim WHERE app = $1 AND NOT chore
)) AND {filters} ORDER BY t.seq DESC LIMIT $13;

-- name: position
-- What the limits' rules need to know of one that waits, all of one moment, and who is before it.
SELECT {record}, onthedot.now_v1($2) AS now,
    (SELECT count(*) FROM (SELECT FROM onthedot.place AS q WHERE q.app = $1 AND q.kind = 'r' AND q.source = t.source
        AND NOT q.suspect AND (q.rank, q.seq) < (p.rank, p.seq) LIMIT $4) AS ready)
    + (SELECT count(*) FROM (SELECT FROM onthedot.place AS q WHERE q.app = $1 AND q.kind = 'r' AND q.source = t.source
        AND q.suspect AND (q.rank, q.seq) < (p.rank, p.seq) LIMIT $4) AS suspects)
    + (SELECT count(*) FROM (SELECT FROM onthedot.place AS q WHERE q.app = $1 AND q.kind = 'p' AND q.lane = t.lane
        AND p.kind = 'p' AND (q.rank, q.seq) < (p.rank, p.seq) LIMIT $4) AS parked) AS ahead,
    onthedot.running_v1($1, t.source, NULL) AS running, onthedot.running_v1($1, NULL, t.lane) AS in_lane,
    (SELECT count(*) FROM onthedot.place AS q WHERE q.app = $1 AND q.lane = t.lane AND q.kind = 'r') AS admitted,
    (SELECT coalesce(sum(cost), 0) FROM onthedot.place AS q WHERE q.app = $1 AND q.lane = t.lane AND q.kind = 'r')
        AS reserved, mine.tokens, mine.at AS tokens_at, lane.tokens AS lane_tokens, lane.at AS lane_at
FROM onthedot.task AS t {where}
LEFT JOIN onthedot.token_bucket AS mine ON mine.app = $1 AND mine.name = t.source
LEFT JOIN onthedot.token_bucket AS lane ON lane.app = $1 AND lane.name = t.lane
WHERE t.app = $1 AND t.uuid = $3 AND p.kind NOT IN ('c', 'l');

-- name: notes
SELECT n.number, n.fence, n.session, n.kind, n.name, n.data
FROM onthedot.task AS t JOIN onthedot.note AS n ON n.seq = t.seq
WHERE t.app = $1 AND t.uuid = $2 AND n.number > $3 ORDER BY n.number LIMIT $4;

-- name: server
SELECT now, split_part(current_setting('server_version'), ' ', 1) AS version FROM onthedot.now_v1($1) AS now;

-- name: tally
SELECT source, state, sum(number)::bigint AS number FROM onthedot.tally WHERE app = $1
GROUP BY source, state HAVING sum(number) <> 0;

-- name: schedules
SELECT name, rule, definition_digest, next_at, rev, paused, last_at, runs, incoming FROM onthedot.schedule WHERE app = $1;

-- name: limits
SELECT name, cap, rate, burst, paused, reason, owner, paused_since, lane_rule FROM onthedot.limit_rule WHERE app = $1;

-- name: sessions
SELECT name, info FROM onthedot.session WHERE app = $1 AND info IS NOT NULL AND until > onthedot.now_v1($2);

-- name: last_change
SELECT coalesce(max(call), 0) FROM onthedot.change WHERE app = $1
AND (call < pg_snapshot_xmin(pg_current_snapshot())::text::bigint OR at < onthedot.now_v1($2) - 1000);

-- name: changes
-- A call whose transaction began earlier may still be under way: those after it wait for it, but not for long.
SELECT call, at, json_agg(json_build_array(state, seqs, deleted)) AS moves FROM onthedot.change
WHERE app = $1 AND call > $3
AND (call < pg_snapshot_xmin(pg_current_snapshot())::text::bigint OR at < onthedot.now_v1($2) - 1000)
GROUP BY call, at ORDER BY call LIMIT $4;

-- name: names
SELECT seq, uuid, source FROM onthedot.task WHERE seq = ANY ($1::bigint[]);
