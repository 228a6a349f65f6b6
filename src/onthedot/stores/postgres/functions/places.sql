-- What the verbs share.
-- A statement is planned once, since planning takes as long as running it, and a plan that was made for an empty table
-- is retention for a full one: so every table is entered by an index condition that holds whatever is joined first (= ANY of
-- an array, or a lateral query that OFFSET 0 keeps apart).

-- name: now_v1
CREATE FUNCTION now_v1(_given double precision) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN  -- said: by a test that turns the clock; in production it is null
    RETURN coalesce(_given, extract(epoch FROM clock_timestamp()) * 1000);
END $$;

-- name: app_v1
CREATE FUNCTION app_v1(_name text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    _id integer := (SELECT id FROM app WHERE name = _name);
BEGIN
    IF _id IS NULL THEN
        INSERT INTO app (name) VALUES (_name) ON CONFLICT DO NOTHING;
        _id := (SELECT id FROM app WHERE name = _name);
    END IF;
    RETURN _id;
END $$;

-- name: lock_limits_v1
-- One at a time through what limits say, in a statement of its own: then one counts what others have committed. It is
-- taken after everything that has to be waited for; behind it, rows that others have locked are skipped.
CREATE FUNCTION lock_limits_v1(_app integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1869897844, _app);
END $$;

-- name: count_v1
-- Appends only: no row is there for others to wait for. `purge` adds them up.
CREATE FUNCTION count_v1(_app integer, _source text, _state text, _by bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tally VALUES (_app, _source, _state, _by);
END $$;

-- name: log_transitions_v1
CREATE FUNCTION log_transitions_v1(_app integer, _now double precision, _state text, _seqs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO change VALUES (_app, pg_current_xact_id()::text::bigint, floor(_now), _state, _seqs);
END $$;

-- name: state_v1
CREATE FUNCTION state_v1(_kind "char") RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE _kind WHEN 's' THEN 'scheduled' WHEN 'p' THEN 'parked' WHEN 'r' THEN 'ready' END
$$;

-- name: due_v1
CREATE FUNCTION due_v1(_after double precision, _now double precision) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _after > 0 THEN ceil(_now + _after) ELSE floor(_now) END::bigint
$$;

-- name: expiry_v1
-- Only what never started expires.
CREATE FUNCTION expiry_v1(_task task) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _task.started IS NULL THEN _task.due + _task.expires END
$$;

-- name: history_v1
-- Null: nothing has happened to it yet. The result is apart, since it may be long.
CREATE FUNCTION history_v1(_task task) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN _task.reason = 'due' AND _task.settled_fence = 0 AND NOT _task.cancel_requested AND _task.crashes = 0 AND _task.earlier = 0
            AND _task.started IS NULL AND _task.session IS NULL AND _task.error IS NULL THEN NULL
        ELSE json_build_array(
            _task.reason, _task.retries, _task.crashes, _task.earlier, _task.cancel_requested, _task.settled_fence, _task.session,
            _task.started, _task.ended, _task.keep_until, NULL, encode(_task.error, 'hex'),
            _task.hops)::text END
$$;

-- name: save_v1
CREATE FUNCTION save_v1(_task task) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task SET due = _task.due, state = _task.state, reason = _task.reason, retries = _task.retries,
        crashes = _task.crashes, earlier = _task.earlier, cancel_requested = _task.cancel_requested, settled_fence = _task.settled_fence,
        session = _task.session, started = _task.started, ended = _task.ended, keep_until = _task.keep_until,
        error = _task.error, result = _task.result, result_until = _task.result_until
    WHERE seq = _task.seq;
END $$;

-- name: enter_v1
-- From nowhere (it was held, had ended, or is new) to where it waits; answers with its source, if that got something
-- to do.
CREATE FUNCTION enter_v1(_task task, _kind "char", _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _state text := coalesce(state_v1(_kind), _task.state);
BEGIN
    _task.state := CASE WHEN _kind IN ('c', 'l') THEN _state END;
    PERFORM save_v1(_task);
    INSERT INTO place VALUES (
        _task.seq, _task.app, _kind, _task.source, _task.crashes + 1 >= _task.max_crashes,
        CASE WHEN _kind = 'c' THEN nextval('chore') ELSE _task.due - _task.boost END, _task.lane, _task.cost,
        expiry_v1(_task), CASE WHEN _kind = 's' THEN _task.due WHEN _kind IN ('p', 'r') THEN expiry_v1(_task) END);
    PERFORM count_v1(_task.app, _task.source, _state, 1);
    PERFORM log_transitions_v1(_task.app, _now, _state, ARRAY[_task.seq]);
    RETURN CASE _kind WHEN 'r' THEN ARRAY[_task.source] ELSE '{}'::text[] END;
END $$;

-- name: queue_chore_v1
-- From nowhere, since it was held as a chore. A lifted one waits for whoever lifts it again, unless it is to be
-- cancelled.
CREATE FUNCTION queue_chore_v1(_task task, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF _task.reason = 'lifted' AND _task.cancel_requested THEN
        _task.reason := 'cancel';
    END IF;
    PERFORM enter_v1(_task, CASE _task.reason WHEN 'lifted' THEN 'l' ELSE 'c' END::"char", _now);
END $$;

-- name: requeue_v1
-- Held no more: back to where it came from, or later; or to the chores, if it must end.
CREATE FUNCTION requeue_v1(_task task, _after bigint, _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    IF _task.cancel_requested OR _task.reason IN ('cancel', 'expired', 'crashed', 'stray') THEN
        _task.state := 'ready';
        _task.reason := CASE WHEN _task.cancel_requested THEN 'cancel' ELSE _task.reason END;
        RETURN enter_v1(_task, 'c', _now);
    END IF;
    IF _after IS NOT NULL THEN
        _task.due := due_v1(_after, _now);
    END IF;
    RETURN enter_v1(_task, CASE
        WHEN _task.due > _now THEN 's' WHEN _task.lane IS NULL THEN 'r' ELSE 'p' END::"char", _now);
END $$;

-- name: end_as_chore_v1
-- From the place that it waits in, which is locked; its lane is the caller's to look after.
CREATE FUNCTION end_as_chore_v1(_seq bigint, _reason text, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _place place;
BEGIN
    SELECT * INTO _place FROM place WHERE seq = _seq;
    UPDATE place SET kind = CASE _reason WHEN 'lifted' THEN 'l' ELSE 'c' END, rank = nextval('chore'), alarm = NULL
    WHERE seq = _seq;
    UPDATE task SET reason = _reason, state = state_v1(_place.kind) WHERE seq = _seq;
    PERFORM log_transitions_v1(_place.app, _now, state_v1(_place.kind), ARRAY[_seq]);
END $$;
