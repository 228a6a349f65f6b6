-- Reads, on a connection of their own.

-- name: get
SELECT {record}, claim.session, claim.at, source.name FROM json_each(?) AS wanted
CROSS JOIN onthedot_task AS task ON task.app = ? AND task.uuid = wanted.value
CROSS JOIN onthedot_source AS source ON source.id = task.source
LEFT JOIN onthedot_history AS history ON history.seq = task.seq
LEFT JOIN onthedot_lease AS lease ON lease.seq = task.seq AND NOT lease.chore
LEFT JOIN onthedot_claim AS claim ON claim.fence = lease.fence;

-- name: results
SELECT task.uuid, history.result FROM json_each(?) AS wanted
CROSS JOIN onthedot_task AS task ON task.app = ? AND task.uuid = wanted.value
CROSS JOIN onthedot_history AS history ON history.seq = task.seq AND history.state = 'succeeded'
    AND (history.result_until IS NULL OR history.result_until > ?);

-- name: filters
AND (:uuid IS NULL OR substr(task.uuid, 1, length(:uuid)) = :uuid)
AND (:uuid_end IS NULL OR substr(task.uuid, -length(:uuid_end)) = :uuid_end)
AND (:source IS NULL OR source.name = :source)
AND (:state IS NULL OR iif(lease.seq IS NULL, coalesce(history.state, task.state), 'running') = :state)
AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(task.policy, '$.tags') AS tag WHERE tag.value = :tag))
AND (:unique IS NULL OR task.unique_key = :unique)
AND (:lane IS NULL OR task.lane = :lane)
AND (:flow IS NULL OR task.flow = iif(:flow = '*', task.uuid, :flow))
AND (:waits_for IS NULL OR EXISTS (
    SELECT 1 FROM onthedot_waiting AS waiting
    WHERE waiting.app = task.app AND waiting.name = :waits_for AND waiting.seq = task.seq))
AND (:since IS NULL OR task.added >= :since)
AND (:until IS NULL OR task.added < :until)

-- name: notes
SELECT note.number, note.fence, note.session, note.kind, note.name, note.data
FROM onthedot_task AS task CROSS JOIN onthedot_note AS note ON note.seq = task.seq
WHERE task.app = :app AND task.uuid = :uuid AND note.number > :after AND (:kind IS NULL OR note.kind = :kind)
ORDER BY note.number LIMIT :limit;

-- name: tally
SELECT source.name, tally.state, tally.number FROM onthedot_tally AS tally
JOIN onthedot_source AS source ON source.id = tally.source
WHERE source.app = ? AND tally.number != 0;

-- name: workers
SELECT name, process, info FROM onthedot_session WHERE app = ? AND role = 'worker' AND until > ?;

-- name: ready_before
SELECT count(*) FROM (
    SELECT 1 FROM onthedot_ready WHERE source = ? AND suspect = ? AND (rank, seq) < (?, ?) LIMIT ?
);

-- name: parked_before
SELECT count(*) FROM (SELECT 1 FROM onthedot_parked WHERE app = ? AND lane = ? AND (rank, seq) < (?, ?) LIMIT ?);

-- name: all_schedules
SELECT name, rule, definition_digest, next_at, rev, paused, last_at, runs, incoming FROM onthedot_schedule WHERE app = ?;

-- name: has_committed
SELECT moves >= ? AND event_seq >= ? FROM onthedot_sequence;

-- name: changes
SELECT number, at, transitions FROM onthedot_change WHERE app = ? AND number > ? ORDER BY number LIMIT ?;

-- name: first_change
SELECT number, at, transitions FROM onthedot_change ORDER BY number LIMIT 1;

-- name: uuids_of
SELECT task.seq, task.uuid FROM json_each(?) AS wanted CROSS JOIN onthedot_task AS task ON task.seq = wanted.value;
