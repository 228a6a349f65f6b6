-- Places: where a task is that is not leased. A row in `place` has one of these kinds:
-- s(cheduled), p(arked), r(eady), w(aiting), c(hore), l(ifted).

-- name: state_v1
-- The state of a task by its place; null for chores and lifted tasks, whose state is in the task row.
CREATE FUNCTION state_v1(_kind "char") RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE _kind WHEN 's' THEN 'scheduled' WHEN 'p' THEN 'parked' WHEN 'r' THEN 'ready' WHEN 'w' THEN 'waiting' END
$$;

-- name: next_place_v1
-- Where a task belongs. A call that may not read lanes leaves a task with a lane to the next turn, as scheduled.
CREATE FUNCTION next_place_v1(
    _reason text, _cancel_requested boolean, _due bigint, _lane text, _now double precision, _reads_lanes boolean,
    _has_wait boolean DEFAULT false
) RETURNS "char" LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN _cancel_requested OR _reason IN ('cancel', 'expired', 'crashed', 'upstream') THEN 'c'
        WHEN _reason = 'lifted' THEN 'l'
        WHEN _has_wait THEN 'w'
        WHEN _due > _now OR (_lane IS NOT NULL AND NOT _reads_lanes) THEN 's'
        WHEN _lane IS NOT NULL THEN 'p'
        ELSE 'r' END::"char"
$$;

-- name: enter_v1
-- Save a task that has no place (it was leased, had ended, or is new) and put it into one; return its source if ready.
-- If it waits, the caller begins the wait.
CREATE FUNCTION enter_v1(_task task, _kind "char", _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _state text := coalesce(state_v1(_kind), _task.state);
BEGIN
    _task.state := CASE WHEN _kind IN ('c', 'l') THEN _state END;
    PERFORM save_v1(_task);
    INSERT INTO place VALUES (
        _task.seq, _task.app, _kind, _task.source, is_suspect_v1(_task),
        CASE WHEN _kind = 'c' THEN nextval('chore') ELSE _task.due - _task.boost END,
        CASE WHEN _kind <> 'w' THEN _task.lane END, _task.cost, expiry_v1(_task), alarm_v1(_task, _kind));
    PERFORM count_v1(_task.app, _task.source, _state, 1);
    PERFORM log_transitions_v1(_task.app, _now, _state, ARRAY[_task.seq], ARRAY[_task.source::text]);
    RETURN CASE _kind WHEN 'r' THEN ARRAY[_task.source] ELSE '{}'::text[] END;
END $$;

-- name: park_v1
-- Park a task that is due; its lane has no capacity, or admits it in the same call.
CREATE FUNCTION park_v1(_app integer, _seq bigint, _source text, _state text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE place SET kind = 'p', alarm = expires_at WHERE seq = _seq;
    PERFORM count_v1(_app, _source, _state, -1);
    PERFORM count_v1(_app, _source, 'parked', 1);
END $$;

-- name: queue_chore_v1
-- Requeue a task that was leased as a chore. A lifted one waits to be lifted again, unless a cancel was requested.
CREATE FUNCTION queue_chore_v1(_task task, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF _task.reason = 'lifted' AND _task.cancel_requested THEN
        _task.reason := 'cancel';
    END IF;
    PERFORM enter_v1(_task, next_place_v1(
        _task.reason, _task.cancel_requested, _task.due, _task.lane, _now, true), _now);
END $$;

-- name: requeue_v1
-- Requeue a task that ran, after a delay or with its due time; if it must end, it becomes a chore.
CREATE FUNCTION requeue_v1(_task task, _after bigint, _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _due bigint := CASE WHEN _after IS NULL THEN _task.due ELSE due_v1(_after, _now) END;
    _kind "char" := next_place_v1(_task.reason, _task.cancel_requested, _due, _task.lane, _now, true);
BEGIN
    IF _kind = 'c' THEN
        _task.state := 'ready';
        _task.reason := CASE WHEN _task.cancel_requested THEN 'cancel' ELSE _task.reason END;
    ELSE
        _task.due := _due;
    END IF;
    RETURN enter_v1(_task, _kind, _now);
END $$;

-- name: end_as_chore_v1
-- Turn a pending task, whose place is locked, into a chore or a lifted task. The caller releases its lane.
CREATE FUNCTION end_as_chore_v1(_seq bigint, _reason text, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _place place;
BEGIN
    SELECT * INTO _place FROM place WHERE seq = _seq;
    UPDATE place SET kind = CASE _reason WHEN 'lifted' THEN 'l' ELSE 'c' END, rank = nextval('chore'), alarm = NULL
    WHERE seq = _seq;
    UPDATE task SET reason = _reason, state = state_v1(_place.kind) WHERE seq = _seq;
    PERFORM log_transitions_v1(
        _place.app, _now, state_v1(_place.kind), ARRAY[_seq], ARRAY[_place.source::text]);
END $$;

-- name: take_unlaned_v1
-- Take those of these tasks out of their places that have no lane, for a caller that ends or moves them. Their places are
-- locked.
CREATE FUNCTION take_unlaned_v1(_app integer, _seqs bigint[], _reason text, _now double precision) RETURNS void
LANGUAGE sql AS $$
    WITH given AS MATERIALIZED (
        SELECT p.*, t.ctid AS task_ctid FROM unnest(_seqs) WITH ORDINALITY AS u (seq, nth)
        CROSS JOIN LATERAL (SELECT ctid AS place_ctid, kind, lane, source FROM place WHERE seq = u.seq OFFSET 0) AS p
        CROSS JOIN LATERAL (SELECT ctid FROM task WHERE seq = u.seq OFFSET 0) AS t WHERE p.lane IS NULL
    ), marked AS (
        UPDATE task AS t SET cancel_requested = t.cancel_requested OR _reason = 'cancel',
            reason = CASE WHEN g.kind IN ('c', 'l') AND _reason <> 'cancel' THEN t.reason ELSE _reason END,
            state = CASE WHEN g.kind IN ('c', 'l') THEN t.state ELSE state_v1(g.kind) END
        FROM given AS g WHERE t.ctid = g.task_ctid
        RETURNING t.seq, t.source, t.state, g.kind
    ), taken AS (
        DELETE FROM place AS p USING given AS g WHERE p.ctid = g.place_ctid
    )
    INSERT INTO change (app, call, at, state, seqs, source, number)
    SELECT _app, pg_current_xact_id()::text::bigint, floor(_now), state, array_agg(seq ORDER BY seq), source, count(*)
    FROM marked WHERE kind NOT IN ('c', 'l') GROUP BY source, state;
$$;
