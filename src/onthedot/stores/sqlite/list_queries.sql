-- The lists of `find`: moment, seq and time of candidates, in the order of the list.

-- name: list_added
SELECT 0, seq, added FROM onthedot_task WHERE +app = :app AND seq < :seq ORDER BY seq DESC LIMIT :size;

-- name: list_named
SELECT 0, seq, added FROM onthedot_task WHERE app = :app AND uuid >= :uuid AND uuid < :uuid || char(1114111) LIMIT :size;

-- name: list_running
SELECT 0, lease.seq, task.added FROM onthedot_lease AS lease CROSS JOIN onthedot_task AS task ON task.seq = lease.seq
WHERE lease.seq < :seq AND NOT lease.chore AND task.app = :app ORDER BY lease.seq DESC LIMIT :size;

-- name: list_flow
SELECT 0, seq, added FROM onthedot_task WHERE app = :app AND flow = :flow AND seq < :seq ORDER BY seq DESC LIMIT :size;

-- name: list_flows
SELECT 0, seq, added FROM onthedot_task WHERE app = :app AND flow = uuid AND seq < :seq ORDER BY seq DESC LIMIT :size;

-- name: list_waiters
SELECT 0, waiting.seq, task.added FROM onthedot_waiting AS waiting CROSS JOIN onthedot_task AS task ON task.seq = waiting.seq
WHERE waiting.app = :app AND waiting.name = :waits_for AND waiting.seq < :seq
GROUP BY waiting.seq ORDER BY waiting.seq DESC LIMIT :size;

-- name: list_unqueued
SELECT 0, history.seq, task.added FROM onthedot_history AS history CROSS JOIN onthedot_task AS task ON task.seq = history.seq
WHERE history.ended IS NULL AND history.reason NOT IN ('due', 'crash') AND history.seq > :seq AND task.app = :app
ORDER BY history.seq LIMIT :size;

-- name: list_ready
SELECT rank, seq, rank FROM onthedot_ready
WHERE source = :source_id AND suspect = :suspect AND (rank, seq) > (:moment, :seq) ORDER BY rank, seq LIMIT :size;

-- name: list_parked
SELECT rank, seq, rank FROM onthedot_parked WHERE app = :app AND (rank, seq) > (:moment, :seq) ORDER BY rank, seq LIMIT :size;

-- name: list_parked_in_lane
SELECT rank, seq, rank FROM onthedot_parked WHERE app = :app AND lane = :lane AND (rank, seq) > (:moment, :seq)
ORDER BY rank, seq LIMIT :size;

-- name: list_scheduled
SELECT at, seq, at FROM onthedot_alarm WHERE app = :app AND (at, seq) > (:moment, :seq) ORDER BY at, seq LIMIT :size;

-- name: list_waiting
SELECT 0, waiting.seq, task.added FROM onthedot_waiting AS waiting CROSS JOIN onthedot_task AS task ON task.seq = waiting.seq
WHERE waiting.app = :app AND waiting.seq > :seq GROUP BY waiting.seq ORDER BY waiting.seq LIMIT :size;

-- name: ended_in_state
SELECT ended, seqs FROM onthedot_retention WHERE app = :app AND state = :state AND ended <= :moment ORDER BY ended DESC;

-- name: ended_of_source
SELECT ended, seqs FROM onthedot_retention
WHERE app = :app AND state = :state AND source = :source_id AND ended <= :moment ORDER BY ended DESC;

-- name: sources
SELECT id, name FROM onthedot_source WHERE app = ?;

-- name: listed
SELECT {record}, claim.session, claim.at, source.name FROM json_each(:seqs) AS wanted
CROSS JOIN onthedot_task AS task ON task.seq = wanted.value
CROSS JOIN onthedot_source AS source ON source.id = task.source
LEFT JOIN onthedot_history AS history ON history.seq = task.seq
LEFT JOIN onthedot_lease AS lease ON lease.seq = task.seq AND NOT lease.chore
LEFT JOIN onthedot_claim AS claim ON claim.fence = lease.fence
WHERE true {filters};
