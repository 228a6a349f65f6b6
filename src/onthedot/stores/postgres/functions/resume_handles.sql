-- Resume handles: arrivals are stored first; then, in a call of their own, handles are completed. The later of two calls
-- sees both sides, so no lock is needed and no handle is missed.

-- name: is_over_v1
-- Whether the time of a handle is over, whether or not its status says so.
CREATE FUNCTION is_over_v1(_handle flow_resume_handles, _now double precision) RETURNS boolean LANGUAGE sql AS $$
    SELECT _handle.status = 'pending' AND _handle.expires_at <= _now
$$;

-- name: is_met_v1
-- Whether all events that a handle expects have arrived.
CREATE FUNCTION is_met_v1(_handle flow_resume_handles) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM json_array_elements(_handle.expected) AS e (entry) WHERE (e.entry ->> 1)::bigint > (
            SELECT count(*) FROM flow_resume_events AS a
            WHERE a.app = _handle.app AND a.correlation_id = _handle.correlation_id
                AND a.type = ANY (ARRAY(SELECT json_array_elements_text(e.entry -> 0)))));
END $$;

-- name: as_seen_v1
-- A handle as a reader sees it. Reads call it with the rights of their role, so it calls no other function of ours.
CREATE FUNCTION as_seen_v1(_handle flow_resume_handles, _now double precision) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
    IF _handle.status = 'pending' AND _handle.expires_at <= _now THEN
        _handle.status := 'expired';
        _handle.ended := _handle.expires_at;
    END IF;
    RETURN json_build_object('id', _handle.id, 'correlation_id', _handle.correlation_id, 'expected', _handle.expected,
        'target', _handle.target, 'timeout', _handle.expires_at - _handle.created, 'status', _handle.status,
        'created', _handle.created, 'expires_at', _handle.expires_at, 'ended', _handle.ended);
END $$;

-- name: record_arrivals_v1
-- {"app", "now", "arrivals": […]}: keep events, each once per correlation id: the first stays. Keys are inserted in order,
-- so that no two callers wait for each other.
CREATE FUNCTION record_arrivals_v1(_request json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _at bigint := floor(now_v1((_request ->> 'now')::double precision));
BEGIN
    WITH given AS MATERIALIZED (
        SELECT nextval('arrival') AS number, g.* FROM json_to_recordset(_request -> 'arrivals') AS g (
            correlation_id text, event_id text, type text, event text)
    )
    INSERT INTO flow_resume_events (number, app, correlation_id, event_id, type, event, at)
    SELECT number, _app, correlation_id, event_id, type, event::json, _at FROM given
    ORDER BY correlation_id, event_id, number ON CONFLICT DO NOTHING;
END $$;

-- name: complete_handles_v1
-- {"app", "now", "correlation_ids", "resumed": ids of handles whose waiter was woken} → the handles that are complete and
-- not resumed, as `as_seen_v1`.
CREATE FUNCTION complete_handles_v1(_request json, OUT handles json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _correlation_ids text[] := ARRAY(SELECT json_array_elements_text(_request -> 'correlation_ids'));
    _resumed text[] := ARRAY(SELECT json_array_elements_text(_request -> 'resumed'));
BEGIN
    PERFORM FROM flow_resume_handles WHERE app = _app AND id = ANY (
        _resumed || ARRAY(SELECT h.id::text FROM flow_resume_handles AS h
            WHERE h.app = _app AND h.correlation_id = ANY (_correlation_ids) AND h.status = 'pending'))
    ORDER BY id FOR NO KEY UPDATE;
    UPDATE flow_resume_handles SET status = 'resumed', ended = floor(_now)
    WHERE app = _app AND id = ANY (_resumed) AND status = 'complete';
    UPDATE flow_resume_handles AS h SET status = CASE WHEN is_over_v1(h, _now) THEN 'expired' ELSE 'complete' END,
        ended = CASE WHEN is_over_v1(h, _now) THEN h.expires_at ELSE floor(_now) END
    WHERE h.app = _app AND h.correlation_id = ANY (_correlation_ids) AND h.status = 'pending'
        AND (is_over_v1(h, _now) OR is_met_v1(h));
    handles := (
        SELECT json_agg(as_seen_v1(h, _now) ORDER BY array_position(_correlation_ids, h.correlation_id::text), h.number)
        FROM flow_resume_handles AS h
        WHERE h.app = _app AND h.correlation_id = ANY (_correlation_ids) AND h.status = 'complete');
END $$;

-- name: live_handle_v1
-- The handle of this id, or another one of its correlation id that waits. Those past their time are expired.
CREATE FUNCTION live_handle_v1(_app integer, _id text, _correlation_id text, _now double precision)
RETURNS flow_resume_handles LANGUAGE plpgsql AS $$
DECLARE
    _handle flow_resume_handles;
BEGIN
    SELECT * INTO _handle FROM flow_resume_handles WHERE app = _app AND id = _id;
    IF NOT FOUND THEN
        UPDATE flow_resume_handles AS h SET status = 'expired', ended = h.expires_at
        WHERE h.app = _app AND h.correlation_id = _correlation_id AND h.status = 'pending' AND h.expires_at <= _now;
        SELECT * INTO _handle FROM flow_resume_handles AS h
        WHERE h.app = _app AND h.correlation_id = _correlation_id AND h.status = 'pending';
    END IF;
    RETURN _handle;
END $$;

-- name: create_handle_v1
-- {"app", "now", "id", "correlation_id", "expected", "target", "timeout", "tasks", "in_parts", "joined"} → the handle,
-- as `as_seen_v1`: a new one, with which the tasks are added, or one that exists. joined: it is in the caller's
-- transaction, and notifies at the commit. Both are texts, because the caller's driver may decode JSON.
CREATE FUNCTION create_handle_v1(_request json, OUT handle text, OUT notification text) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _joined boolean := (_request ->> 'joined')::boolean;
    _tasks json := nullif(_request ->> 'tasks', '[]')::json;
    _handle flow_resume_handles;
BEGIN
    FOR _ IN 1 .. 20 LOOP
        _handle := live_handle_v1(_app, _request ->> 'id', _request ->> 'correlation_id', _now);
        EXIT WHEN _handle.id IS NOT NULL;
        INSERT INTO flow_resume_handles AS h (app, id, correlation_id, expected, target, status, created, expires_at)
        VALUES (_app, _request ->> 'id', _request ->> 'correlation_id', _request -> 'expected', _request ->> 'target',
            'pending', floor(_now), floor(_now)::bigint + (_request ->> 'timeout')::bigint)
        ON CONFLICT DO NOTHING RETURNING h.* INTO _handle;
        IF FOUND THEN
            IF _tasks IS NOT NULL THEN
                notification := json_build_object('sources', (SELECT a.sources FROM add_tasks_v1(_app, _tasks,
                    json_array_length(_tasks), (_request ->> 'in_parts')::boolean, _now, _joined) AS a));
            END IF;
            IF _joined AND notification IS NOT NULL THEN
                PERFORM notify_v1(_request ->> 'app', notification::json);
            END IF;
            EXIT;
        END IF;  -- another call has created it meanwhile
    END LOOP;
    IF _handle.id IS NULL THEN
        RAISE EXCEPTION 'another transaction creates the same handle' USING ERRCODE = 'lock_not_available';
    END IF;
    handle := as_seen_v1(_handle, _now);
END $$;
