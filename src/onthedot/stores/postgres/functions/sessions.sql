-- Sessions: the presence of workers, and what becomes of their tasks when they close or die.

-- name: leased_v1
-- The tasks that are leased to a session, in the order of claiming.
CREATE FUNCTION leased_v1(_app integer, _session text)
RETURNS TABLE (task task, fence bigint, at bigint, chore boolean) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT one.t, c.fence, c.at, c.chore
    FROM claim AS c CROSS JOIN unnest(c.seqs) AS leased (seq)
    CROSS JOIN LATERAL (SELECT it FROM task AS it WHERE it.seq = leased.seq OFFSET 0) AS one (t)
    WHERE c.app = _app AND c.session = _session AND (one.t).settled_fence < c.fence
    ORDER BY c.fence, c.chore, (one.t).due - (one.t).boost, leased.seq;
END $$;

-- name: release_session_v1
-- Delete a session, whose row is locked, and requeue its tasks. died: if a suspect is among its runs, only suspects are
-- counted as crashed, otherwise all its runs are. Chores are requeued uncounted.
CREATE FUNCTION release_session_v1(_app integer, _session text, _died boolean, _now double precision) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    _leased record;
    _task task;
    _released settlement;
    _woken text[] := '{}';
    _had_suspects boolean := EXISTS (
        SELECT FROM leased_v1(_app, _session) AS h WHERE NOT h.chore AND is_suspect_v1(h.task));
BEGIN
    -- Everything that has to be waited for, before the limits lock.
    PERFORM FROM task WHERE seq = ANY (ARRAY(SELECT (h.task).seq FROM leased_v1(_app, _session) AS h))
    ORDER BY seq FOR NO KEY UPDATE;
    FOR _leased IN SELECT * FROM leased_v1(_app, _session) LOOP
        _task := _leased.task;
        _released.sources := _released.sources || _task.source::text;
        _released.lanes := _released.lanes || _task.lane::text;
        _released.newcomers := _released.newcomers || _task.seq;
        _released.suspect := coalesce(_released.suspect, false) OR is_suspect_v1(_task);
        PERFORM count_v1(_app, _task.source, CASE WHEN _leased.chore THEN _task.state ELSE 'running' END, -1);
        IF _leased.chore THEN
            PERFORM queue_chore_v1(_task, _now);
            CONTINUE;
        END IF;
        IF _died THEN
            _task.crashes := _task.crashes + (NOT _had_suspects OR is_suspect_v1(_task))::integer;
            _task.reason := CASE WHEN _task.crashes >= _task.max_crashes AND NOT _task.cancel_requested
                THEN 'crashed' ELSE 'crash' END;
            _task.started := _leased.at;
        END IF;
        _woken := _woken || requeue_v1(_task, NULL, _now);
    END LOOP;
    DELETE FROM claim WHERE app = _app AND session = _session;
    DELETE FROM session WHERE app = _app AND name = _session;
    PERFORM end_subscriber_v1(_app, _session);
    PERFORM leave_groups_v1(_app, _session);
    _released.lanes := nullif(array_remove(ARRAY(SELECT DISTINCT unnest(_released.lanes)), NULL), '{}');
    RETURN _woken || release_capacity_v1(_app, _released, _now, false);
END $$;

-- name: reap_session_v1
-- Reap a dead session, whose row is locked. Its name is not opened again.
CREATE FUNCTION reap_session_v1(_app integer, _session text, _now double precision) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dead_session (app, name) VALUES (_app, _session) ON CONFLICT DO NOTHING;
    RETURN release_session_v1(_app, _session, true, _now);
END $$;

-- name: reap_overdue_v1
-- Reap sessions whose lease is over, except those of which a task is being settled at this moment.
CREATE FUNCTION reap_overdue_v1(_app integer, _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _name text;
    _seqs bigint[];
    _woken text[] := '{}';
BEGIN
    FOR _name IN
        SELECT name FROM session WHERE app = _app AND until <= _now ORDER BY name FOR UPDATE SKIP LOCKED
    LOOP
        _seqs := ARRAY(SELECT (h.task).seq FROM leased_v1(_app, _name) AS h);
        IF (SELECT count(*) FROM (
            SELECT FROM task WHERE seq = ANY (_seqs) ORDER BY seq FOR NO KEY UPDATE SKIP LOCKED
        ) AS free) = cardinality(_seqs) THEN
            _woken := _woken || reap_session_v1(_app, _name, _now);
        END IF;
    END LOOP;
    RETURN _woken;
END $$;

-- name: open_session_v1
-- Insert or update a session, unless it was reaped. False: it was, perhaps while this call waited for its row.
CREATE FUNCTION open_session_v1(_app integer, _session text, _info bytea, _until double precision, _renew_info boolean)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _written boolean;
BEGIN
    INSERT INTO session AS s
    SELECT _app, _session, 'worker', _info, _until
    WHERE NOT EXISTS (SELECT FROM dead_session WHERE app = _app AND name = _session)
    ON CONFLICT (app, name) DO UPDATE SET until = excluded.until,
        role = CASE WHEN _renew_info THEN excluded.role ELSE s.role END,
        info = CASE WHEN _renew_info THEN excluded.info ELSE s.info END;
    _written := FOUND;
    IF NOT EXISTS (SELECT FROM dead_session WHERE app = _app AND name = _session) THEN
        RETURN true;
    END IF;
    IF _written THEN  -- a row that was not written belongs to a client that cancels under this name, and has leases
        DELETE FROM session WHERE app = _app AND name = _session;
    END IF;
    RETURN false;
END $$;

-- name: open_client_v1
-- Open or renew the session of a caller that cancels, lifts or subscribes. Its lease does not shorten that of a worker.
CREATE FUNCTION open_client_v1(_app integer, _session text, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session VALUES (_app, _session, 'client', '', _now + 10000)
    ON CONFLICT (app, name) DO UPDATE SET until = excluded.until WHERE session.role = 'client';
END $$;

-- name: subscribe_v1
-- {"app", "now", "session", "uuids"}: subscribe a session to tasks that live, up to MAX_SUBSCRIPTIONS.
CREATE FUNCTION subscribe_v1(_request json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _session text := _request ->> 'session';
BEGIN
    PERFORM open_client_v1(_app, _session, now_v1((_request ->> 'now')::double precision));
    INSERT INTO subscription
    SELECT _app, live.uuid, _session FROM (
        SELECT u.uuid FROM (SELECT DISTINCT json_array_elements_text(_request -> 'uuids') AS uuid) AS u
        WHERE EXISTS (
            SELECT FROM task AS t WHERE t.uuid = u.uuid AND t.app = _app AND t.ended IS NULL OFFSET 0
        ) AND NOT EXISTS (
            SELECT FROM subscription AS s WHERE s.app = _app AND s.uuid = u.uuid AND s.session = _session OFFSET 0)
        LIMIT greatest(0, 10000 - (SELECT count(*) FROM subscription WHERE app = _app AND session = _session))
    ) AS live ORDER BY live.uuid ON CONFLICT DO NOTHING;
END $$;

-- name: heartbeat_v1
-- {"app", "now", "session", "lease", "info"} → alive, and the runs to be cancelled as [[uuid, fence], …].
CREATE FUNCTION heartbeat_v1(_request json, OUT alive boolean, OUT cancel_requests json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _until double precision := _now + (_request ->> 'lease')::double precision;
BEGIN
    alive := open_session_v1(_app, _session, decode(_request ->> 'info', 'base64'), _until, true);
    IF alive THEN
        SELECT json_agg(json_build_array((h.task).uuid, h.fence)) INTO cancel_requests
        FROM leased_v1(_app, _session) AS h WHERE NOT h.chore AND (h.task).cancel_requested;
    END IF;
END $$;

-- name: close_session_v1
-- {"app", "now", "session", "crashed"}: requeue its tasks, uncounted; or, if its process has crashed, reap it.
CREATE FUNCTION close_session_v1(_request json, OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _woken text[];
BEGIN
    IF (_request ->> 'crashed')::boolean THEN
        IF NOT open_session_v1(_app, _session, '', _now, false) THEN
            RETURN;
        END IF;
        PERFORM FROM session WHERE app = _app AND name = _session FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN  -- its turn is under way: the next turn of any worker reaps it, and no heartbeat renews it
            INSERT INTO dead_session (app, name) VALUES (_app, _session) ON CONFLICT DO NOTHING;
            RETURN;
        END IF;
        _woken := reap_session_v1(_app, _session, _now);
    ELSE
        PERFORM FROM session WHERE app = _app AND name = _session FOR UPDATE;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        _woken := release_session_v1(_app, _session, false, _now);
    END IF;
    notification := json_build_object('sources', _woken, 'recheck', true);
END $$;
