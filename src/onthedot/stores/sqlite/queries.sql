-- By stage: begin, add, places, lanes, alarms, chores, settle, claim, sessions, schedules, purge. Counters, signals and subscriptions
-- are in counter_queries.sql, events in event_queries.sql, reads in read_queries.sql.

-- name: record
task.uuid, task.source, task.body, task.policy, task.lane, task.unique_key, coalesce(history.due, task.due), task.seq,
task.added, coalesce(history.state, task.state), task.links, history.reason, history.retries, history.crashes, history.earlier,
history.cancel, history.settled, history.session, history.started, history.ended, history.keep_until, history.result, history.error, history.result_until,
history.hops, history.revives, history.wait, CASE WHEN history.seq IS NULL THEN task.wait_until ELSE history.wait_until END

-- name: own_tables
SELECT name FROM sqlite_master WHERE name IN ('onthedot_app', 'onthedot_sequence');

-- name: version
SELECT version FROM onthedot_sequence;

-- name: sequences
SELECT seq, fence, moves, control, identity, event_seq FROM onthedot_sequence;

-- name: save_sequences
UPDATE onthedot_sequence SET seq = ?, fence = ?, moves = ?, control = ?, identity = ?, event_seq = ?;

-- name: app
SELECT id FROM onthedot_app WHERE name = ?;

-- name: apps
SELECT name FROM onthedot_app WHERE id IN (
    SELECT app FROM onthedot_source UNION SELECT app FROM onthedot_session UNION SELECT app FROM onthedot_schedule
) OR EXISTS (SELECT 1 FROM onthedot_event_outbox AS event WHERE event.app = onthedot_app.id)
OR EXISTS (SELECT 1 FROM onthedot_flow_resume_handles AS handle WHERE handle.app = onthedot_app.id) ORDER BY name;

-- name: new_app
INSERT OR IGNORE INTO onthedot_app (name) VALUES (?);

-- name: source
SELECT id FROM onthedot_source WHERE app = ? AND name = ?;

-- name: source_name
SELECT name FROM onthedot_source WHERE id = ?;

-- name: new_source
INSERT INTO onthedot_source (app, name) VALUES (?, ?) RETURNING id;

-- name: insert
INSERT INTO onthedot_task (
    seq, app, uuid, source, body, policy, lane, unique_key, due, added, state, wait_until, links, flow
)
SELECT * FROM (SELECT ?, ? AS app, ? AS uuid, ?, ?, ?, ?, ?, ?, ? AS added, ?, ?, ?, ?) AS new WHERE NOT EXISTS (
    SELECT 1 FROM onthedot_recent AS r WHERE r.app = new.app AND r.uuid = new.uuid AND r.until > new.added
) ON CONFLICT (app, uuid) DO NOTHING;

-- name: default_policy
UPDATE onthedot_task SET policy = json_object('undecodable', CAST(policy AS TEXT), 'links', CAST(links AS TEXT)), links = NULL
WHERE seq = ?;

-- name: leave_ready_by_seq
DELETE FROM onthedot_ready WHERE seq = ?;

-- name: leave_parked_by_seq
DELETE FROM onthedot_parked WHERE seq = ?;

-- name: leave_waiting_by_seq
DELETE FROM onthedot_waiting WHERE seq = ?;

-- name: clear_alarm_by_seq
DELETE FROM onthedot_alarm WHERE seq = ?;

-- name: is_recent
SELECT 1 FROM onthedot_recent WHERE app = ? AND uuid = ? AND until > ?;

-- name: remember
INSERT OR REPLACE INTO onthedot_recent (app, uuid, until) VALUES (?, ?, ?);

-- name: drop_recent
DELETE FROM onthedot_recent WHERE until <= ?;

-- name: undo_insert
DELETE FROM onthedot_task WHERE seq >= ?;

-- name: replace
UPDATE onthedot_task SET body = ?, policy = ?, lane = ? WHERE seq = ?;

-- name: unique_key
SELECT uuid, until FROM onthedot_unique_key WHERE source = ? AND name = ?;

-- name: set_key
INSERT OR REPLACE INTO onthedot_unique_key VALUES (?, ?, ?, ?);

-- name: free_key
DELETE FROM onthedot_unique_key WHERE source = ? AND name = ? AND uuid = ?;

-- name: save_history
INSERT OR REPLACE INTO onthedot_history (
    due, state, reason, retries, crashes, earlier, cancel, settled, session, started, ended, keep_until, result, error,
    hops, revives, result_until, wait, wait_until, seq
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: save_place
UPDATE onthedot_task SET due = ?, state = ? WHERE seq IN (SELECT value FROM json_each(?));

-- name: drop_histories
DELETE FROM onthedot_history WHERE seq IN (SELECT value FROM json_each(?));

-- name: save_plain_ends
INSERT OR REPLACE INTO onthedot_history (
    seq, due, state, reason, retries, crashes, earlier, cancel, settled, session, started, ended, keep_until, result
)
SELECT task.seq, task.due, 'succeeded', 'due', 0, 0, 0, 0, ?, ?, ?, ?, ?, x''
FROM json_each(?) AS wanted CROSS JOIN onthedot_task AS task ON task.seq = wanted.value;

-- name: enter_ready
INSERT INTO onthedot_ready VALUES (?, ?, ?, ?);

-- name: leave_ready
DELETE FROM onthedot_ready WHERE source = ? AND suspect = ? AND rank = ? AND seq = ?;

-- name: enter_parked
INSERT INTO onthedot_parked VALUES (?, ?, ?, ?);

-- name: leave_parked
DELETE FROM onthedot_parked WHERE app = ? AND lane = ? AND rank = ? AND seq = ?;

-- name: set_alarm
INSERT INTO onthedot_alarm VALUES (?, ?, ?);

-- name: clear_alarm
DELETE FROM onthedot_alarm WHERE app = ? AND at = ? AND seq = ?;

-- name: by_uuid
SELECT {record} FROM onthedot_task AS task LEFT JOIN onthedot_history AS history USING (seq)
WHERE task.app = ? AND task.uuid = ?;

-- name: first_parked
SELECT {record} FROM onthedot_parked AS parked CROSS JOIN onthedot_task AS task USING (seq)
LEFT JOIN onthedot_history AS history USING (seq)
WHERE parked.app = ? AND parked.lane = ? ORDER BY parked.rank, parked.seq LIMIT 1;

-- name: recheck_lanes
WITH RECURSIVE parked (lane) AS (  -- from lane to lane, whatever the number of their tasks
    SELECT min(lane) FROM onthedot_parked WHERE app = :app AND lane >= :low AND lane < :high
    UNION ALL
    SELECT (SELECT min(next.lane) FROM onthedot_parked AS next
            WHERE next.app = :app AND next.lane > parked.lane AND next.lane < :high)
    FROM parked WHERE parked.lane IS NOT NULL
)
INSERT INTO onthedot_lane (app, name, running, admitted, reserved, refill_at)
SELECT :app, lane, 0, 0, 0, :now FROM parked WHERE lane IS NOT NULL
ON CONFLICT (app, name) DO UPDATE SET refill_at = excluded.refill_at;

-- name: lane
SELECT running, admitted, reserved, tokens, at, refill_at FROM onthedot_lane WHERE app = ? AND name = ?;

-- name: save_lane
INSERT OR REPLACE INTO onthedot_lane VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: first_refill
SELECT name, refill_at, at FROM onthedot_lane WHERE app = ? AND refill_at IS NOT NULL ORDER BY refill_at LIMIT 1;

-- name: refilled
SELECT name FROM onthedot_lane WHERE app = ? AND refill_at <= ? ORDER BY refill_at LIMIT ?;

-- name: some_lanes
SELECT name, running = 0 AND admitted = 0
    AND NOT EXISTS (SELECT 1 FROM onthedot_parked AS parked WHERE parked.app = :app AND parked.lane = lane.name)
FROM onthedot_lane AS lane WHERE app = :app AND name > :after ORDER BY name LIMIT :most;

-- name: drop_lane
DELETE FROM onthedot_lane WHERE app = ? AND name = ?;

-- name: limits
SELECT name, cap, rate, burst, paused, reason, owner, paused_since, lane_rule, mode FROM onthedot_limit WHERE app = ?;

-- name: put_limit
INSERT OR REPLACE INTO onthedot_limit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: due_alarms
SELECT {record}, alarm.at FROM onthedot_alarm AS alarm CROSS JOIN onthedot_task AS task USING (seq)
LEFT JOIN onthedot_history AS history USING (seq)
WHERE alarm.app = ? AND alarm.at <= ? ORDER BY alarm.at, alarm.seq LIMIT ?;

-- name: clear_due_alarms
DELETE FROM onthedot_alarm WHERE app = ? AND (at, seq) <= (?, ?);

-- name: enter_chore
INSERT INTO onthedot_chore (app, seq) VALUES (?, ?);

-- name: leave_chore
DELETE FROM onthedot_chore WHERE seq = ?;

-- name: chores
SELECT {record} FROM onthedot_chore AS chore CROSS JOIN onthedot_task AS task USING (seq)
LEFT JOIN onthedot_history AS history USING (seq) WHERE chore.app = ? ORDER BY chore.number LIMIT ?;

-- name: leased_task
SELECT task.uuid, task.source, x'', task.policy, task.lane, task.unique_key, coalesce(history.due, task.due), task.seq,
    task.added, coalesce(history.state, task.state), task.links, history.reason, history.retries, history.crashes, history.earlier,
    history.cancel, history.settled, history.session, history.started, history.ended, history.keep_until, NULL, history.error, NULL,
    history.hops, history.revives, history.wait, history.wait_until, lease.fence, lease.chore
FROM onthedot_task AS task
LEFT JOIN onthedot_history AS history ON history.seq = task.seq
LEFT JOIN onthedot_lease AS lease ON lease.seq = task.seq
WHERE task.app = ? AND task.uuid = ?;

-- name: end_leases
DELETE FROM onthedot_lease WHERE fence = ? AND NOT touched AND seq IN (SELECT value FROM json_each(?)) RETURNING seq;

-- name: touch
UPDATE onthedot_lease SET touched = 1 WHERE seq = ?;

-- name: lease_holder
SELECT claim.session FROM onthedot_lease AS lease CROSS JOIN onthedot_claim AS claim ON claim.fence = lease.fence
WHERE lease.seq = ?;

-- name: claim
SELECT session, at FROM onthedot_claim WHERE fence = ?;

-- name: release
DELETE FROM onthedot_lease WHERE seq IN (SELECT value FROM json_each(?));

-- name: reduce_claim
UPDATE onthedot_claim SET left = left - ? WHERE fence = ?;

-- name: drop_claim
DELETE FROM onthedot_claim WHERE fence = ? AND left <= 0;

-- name: delete_task
DELETE FROM onthedot_task WHERE seq = ?;

-- name: delete_history
DELETE FROM onthedot_history WHERE seq = ?;

-- name: delete_notes
DELETE FROM onthedot_note WHERE seq = ?;

-- name: leased_seq
SELECT lease.seq FROM onthedot_task AS task CROSS JOIN onthedot_lease AS lease ON lease.seq = task.seq
CROSS JOIN onthedot_claim AS claim ON claim.fence = lease.fence
WHERE task.app = ? AND task.uuid = ? AND claim.fence = ? AND claim.session = ?;

-- name: has_note
SELECT 1 FROM onthedot_note WHERE seq = ? AND kind = ? AND name = ?;

-- name: drop_note
DELETE FROM onthedot_note WHERE seq = ? AND kind = ? AND name = ?;

-- name: write_note
INSERT INTO onthedot_note (seq, kind, name, data, fence, session) VALUES (?, ?, ?, ?, ?, ?);

-- name: retain
INSERT INTO onthedot_retention (app, what, until, ended, seqs, source, state) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: ready_page
-- Up to `reason`: most ready tasks have no history, and its columns would cost 4 % of a drain.
SELECT task.uuid, task.source, task.body, task.policy, task.lane, task.unique_key, task.due, task.seq, task.added,
    task.state, task.links, history.reason
FROM onthedot_ready AS ready CROSS JOIN onthedot_task AS task USING (seq)
LEFT JOIN onthedot_history AS history USING (seq)
WHERE ready.source = ? AND ready.suspect = ? AND (ready.rank, ready.seq) > (?, ?)
ORDER BY ready.rank, ready.seq LIMIT ?;

-- name: by_seq
SELECT {record} FROM onthedot_task AS task LEFT JOIN onthedot_history AS history USING (seq) WHERE task.seq = ?;

-- name: leave_ready_until
DELETE FROM onthedot_ready WHERE source = ? AND suspect = ? AND (rank, seq) <= (?, ?);

-- name: any_ready
SELECT 1 FROM onthedot_ready WHERE source = ? AND suspect <= ? LIMIT 1;

-- name: suspect_sources
SELECT name FROM onthedot_source AS source WHERE app = ?
AND EXISTS (SELECT 1 FROM onthedot_ready AS ready WHERE ready.source = source.id AND ready.suspect);

-- name: lease_many
INSERT INTO onthedot_lease SELECT value, ?, ?, ? + key, 0 FROM json_each(?);

-- name: new_claim
INSERT INTO onthedot_claim VALUES (?, ?, ?, ?, ?);

-- name: leased_under
SELECT {record}, lease.chore FROM onthedot_lease AS lease CROSS JOIN onthedot_task AS task USING (seq)
LEFT JOIN onthedot_history AS history USING (seq) WHERE lease.fence = ? ORDER BY lease.ordinal;

-- name: next_times
SELECT (SELECT min(at) FROM onthedot_alarm WHERE app = :app),
    (SELECT min(refill_at) FROM onthedot_lane WHERE app = :app AND refill_at > 0),
    (SELECT min(until) FROM onthedot_session WHERE app = :app),
    (SELECT min(next_at) FROM onthedot_schedule WHERE app = :app AND next_at > :now AND NOT paused);

-- name: due_schedules
SELECT name, rule, definition_digest, next_at, rev, paused, last_at, runs, incoming FROM onthedot_schedule
WHERE app = ? AND next_at <= ? AND NOT paused;

-- name: session
SELECT process, role, info, until, suspects, number, fence FROM onthedot_session WHERE app = ? AND name = ?;

-- name: save_session
INSERT OR REPLACE INTO onthedot_session (app, name, process, role, info, until, suspects, number, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: fewer_suspects
UPDATE onthedot_session SET suspects = suspects - 1 WHERE app = ? AND name = ?;

-- name: overdue
SELECT name FROM onthedot_session WHERE app = ? AND until <= ?;

-- name: sessions_of_process
SELECT name FROM onthedot_session WHERE app = ? AND process = ?;

-- name: sessions
SELECT name, process, role FROM onthedot_session WHERE app = ?;

-- name: claims_of
SELECT fence, at FROM onthedot_claim WHERE app = ? AND session = ? ORDER BY fence;

-- name: drop_claims_of
DELETE FROM onthedot_claim WHERE app = ? AND session = ?;

-- name: drop_session
DELETE FROM onthedot_session WHERE app = ? AND name = ?;

-- name: mark_dead
INSERT OR IGNORE INTO onthedot_dead_session (app, name) VALUES (?, ?);

-- name: trim_dead
DELETE FROM onthedot_dead_session WHERE number <= (SELECT max(number) FROM onthedot_dead_session) - ?;

-- name: is_dead
SELECT 1 FROM onthedot_dead_session WHERE app = ? AND name = ?;

-- name: schedule
SELECT name, rule, definition_digest, next_at, rev, paused, last_at, runs, incoming FROM onthedot_schedule
WHERE app = ? AND name = ?;

-- name: put_schedule
INSERT OR REPLACE INTO onthedot_schedule (app, name, rule, definition_digest, next_at, rev, paused, last_at, runs, incoming)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: drop_schedule
DELETE FROM onthedot_schedule WHERE app = ? AND name = ?;

-- name: expired_retention
SELECT number, until, ended, seqs, source, state FROM onthedot_retention WHERE app = ? AND what = ? AND until <= ?
ORDER BY until, number LIMIT 1;

-- name: oldest_retention
SELECT number, until, ended, seqs, source, state FROM onthedot_retention WHERE app = ? AND what = ? ORDER BY ended, number LIMIT 1;

-- name: drop_retention
DELETE FROM onthedot_retention WHERE number = ?;

-- name: reduce_retention
UPDATE onthedot_retention SET seqs = ? WHERE number = ?;

-- name: retained_tasks
SELECT task.seq, task.source, history.state, task.flow IS NOT NULL AND EXISTS (
    SELECT 1 FROM onthedot_task AS last LEFT JOIN onthedot_history AS its ON its.seq = last.seq
    WHERE last.app = task.app AND last.uuid = task.flow
    AND coalesce(its.state, last.state) NOT IN ('succeeded', 'failed', 'cancelled')
) FROM json_each(?) AS wanted
CROSS JOIN onthedot_history AS history ON history.seq = wanted.value CROSS JOIN onthedot_task AS task ON task.seq = history.seq
WHERE history.keep_until = ? AND history.ended = ?;

-- name: keep_members
UPDATE onthedot_history SET keep_until = ? WHERE seq IN (SELECT value FROM json_each(?));

-- name: forget_results
UPDATE onthedot_history SET result = NULL WHERE seq IN (SELECT value FROM json_each(?)) AND result_until <= ?;

-- name: retained_count
SELECT coalesce(sum(number), 0) FROM onthedot_tally
WHERE source IN (SELECT id FROM onthedot_source WHERE app = ?) AND state IN ('succeeded', 'failed', 'cancelled');

-- name: drop_keys
DELETE FROM onthedot_unique_key WHERE until <= ?;

-- name: add_tally
INSERT INTO onthedot_tally VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET number = number + excluded.number;

-- name: tally_of
SELECT number FROM onthedot_tally WHERE source = ? AND state = ?;

-- name: log_changes
INSERT INTO onthedot_change VALUES (?, ?, ?, ?);

-- name: trim_changes
DELETE FROM onthedot_change WHERE number <= ?;
