-- The lists of `find`: moment, seq and time of candidates, in the order of the list, behind a key.

-- name: last_fence
SELECT * FROM onthedot.last_fence_v1('{}');

-- name: listed
-- The records of candidates that match the filters.
SELECT {record_columns} FROM onthedot.task AS t {places_and_claims}
WHERE t.app = {app_id} AND t.seq = ANY ($3::bigint[]) AND {filters};

-- name: list_added
SELECT 0 AS moment, seq, added AS time FROM onthedot.task WHERE app = {app_id} AND seq < $2 ORDER BY seq DESC LIMIT $3;

-- name: list_named
-- Tasks whose uuid is in a range.
SELECT 0 AS moment, seq, added AS time FROM onthedot.task WHERE uuid >= $2 AND uuid < $3 AND app = {app_id} LIMIT $4;

-- name: list_running
-- They are read from the claims, so the number of pending tasks does not matter.
SELECT 0 AS moment, seq, added AS time FROM onthedot.task WHERE app = {app_id} AND seq < $2 AND seq = ANY (ARRAY(
    SELECT unnest(seqs) FROM onthedot.claim WHERE app = {app_id} AND NOT chore
)) ORDER BY seq DESC LIMIT $3;

-- name: list_flow
SELECT 0 AS moment, seq, added AS time FROM onthedot.task WHERE app = {app_id} AND flow = $4 AND seq < $2
ORDER BY seq DESC LIMIT $3;

-- name: list_flows
SELECT 0 AS moment, seq, added AS time FROM onthedot.task WHERE app = {app_id} AND flow = uuid AND seq < $2
ORDER BY seq DESC LIMIT $3;

-- name: list_waiters
SELECT 0 AS moment, seq, added AS time FROM onthedot.task WHERE app = {app_id} AND seq < $2 AND seq = ANY (ARRAY(
    SELECT seq FROM onthedot.waiter WHERE app = {app_id} AND name = $4
)) ORDER BY seq DESC LIMIT $3;

-- name: list_unqueued
-- Chores and lifted tasks, leased or not.
SELECT 0 AS moment, seq, added AS time FROM onthedot.task WHERE app = {app_id} AND seq > $2 AND seq = ANY (ARRAY(
    SELECT seq FROM onthedot.place WHERE app = {app_id} AND kind = 'c'
    UNION ALL SELECT seq FROM onthedot.place WHERE app = {app_id} AND kind = 'l'
    UNION ALL SELECT unnest(seqs) FROM onthedot.claim WHERE app = {app_id} AND chore
)) ORDER BY seq LIMIT $3;

-- name: list_waiting
SELECT 0 AS moment, p.seq, t.added AS time FROM (
    SELECT seq FROM onthedot.place WHERE app = {app_id} AND kind = 'w' AND seq > $2 ORDER BY seq LIMIT $3
) AS p CROSS JOIN LATERAL (SELECT added FROM onthedot.task WHERE seq = p.seq OFFSET 0) AS t ORDER BY p.seq;

-- name: list_scheduled
-- All alarms: those of other tasks do not match the state.
SELECT alarm AS moment, seq, alarm AS time FROM onthedot.place
WHERE app = {app_id} AND alarm IS NOT NULL AND (alarm, seq) > ($2, $3) ORDER BY alarm, seq LIMIT $4;

-- name: list_parked
SELECT rank AS moment, seq, rank AS time FROM onthedot.place
WHERE app = {app_id} AND kind = 'p' AND (rank, seq) > ($2, $3) ORDER BY rank, seq LIMIT $4;

-- name: list_parked_in_lane
SELECT rank AS moment, seq, rank AS time FROM onthedot.place
WHERE app = {app_id} AND kind = 'p' AND lane = $5 AND (rank, seq) > ($2, $3) ORDER BY rank, seq LIMIT $4;

-- name: list_ready
-- The first of each source, or of one; the sources are read one by one from the index of ready tasks.
WITH RECURSIVE sources AS (
    SELECT CASE WHEN $5::text IS NULL THEN (
        SELECT source::text FROM onthedot.place WHERE app = {app_id} AND kind = 'r' ORDER BY source LIMIT 1
    ) ELSE $5 END COLLATE "C" AS source
    UNION ALL SELECT (
        SELECT p.source::text FROM onthedot.place AS p WHERE p.app = {app_id} AND p.kind = 'r' AND p.source > sources.source
        ORDER BY p.source LIMIT 1
    ) COLLATE "C" FROM sources WHERE sources.source IS NOT NULL AND $5 IS NULL
)
SELECT r.rank AS moment, r.seq, r.rank AS time FROM sources CROSS JOIN (VALUES (false), (true)) AS s (suspect)
CROSS JOIN LATERAL (
    SELECT rank, seq FROM onthedot.place
    WHERE app = {app_id} AND kind = 'r' AND source = sources.source AND suspect = s.suspect AND (rank, seq) > ($2, $3)
    ORDER BY rank, seq LIMIT $4
) AS r WHERE sources.source IS NOT NULL ORDER BY r.rank, r.seq LIMIT $4;

-- name: ended_at
-- The tasks that ended in one millisecond, in one state and of one source or of any.
SELECT ended, seqs FROM onthedot.retention
WHERE app = {app_id} AND state = $2 AND ended = $3 AND ($4::text IS NULL OR source = $4);

-- name: ended_in_state
-- The last ends before a time; of a millisecond all, since they are ordered by seq.
SELECT ended, seqs FROM (
    SELECT ended, seqs, sum(cardinality(seqs)) OVER (ORDER BY ended DESC)
        - sum(cardinality(seqs)) OVER (PARTITION BY ended) AS later
    FROM (
        SELECT ended, seqs FROM onthedot.retention WHERE app = {app_id} AND state = $2 AND ended < $3
        ORDER BY ended DESC FETCH FIRST $4 ROWS WITH TIES
    ) AS last
) AS counted WHERE later < $4;

-- name: ended_of_source
SELECT ended, seqs FROM (
    SELECT ended, seqs, sum(cardinality(seqs)) OVER (ORDER BY ended DESC)
        - sum(cardinality(seqs)) OVER (PARTITION BY ended) AS later
    FROM (
        SELECT ended, seqs FROM onthedot.retention WHERE app = {app_id} AND state = $2 AND source = $5 AND ended < $3
        ORDER BY ended DESC FETCH FIRST $4 ROWS WITH TIES
    ) AS last
) AS counted WHERE later < $4;
