-- Who is here, until when, and what becomes of what they hold.

-- name: leased_v1
-- What a session holds, in the order of taking.
CREATE FUNCTION leased_v1(_app integer, _session text)
RETURNS TABLE (task task, fence bigint, at bigint, chore boolean) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT one.t, c.fence, c.at, c.chore
    FROM claim AS c CROSS JOIN unnest(c.seqs) AS held (seq)
    CROSS JOIN LATERAL (SELECT it FROM task AS it WHERE it.seq = held.seq OFFSET 0) AS one (t)
    WHERE c.app = _app AND c.session = _session AND (one.t).settled_fence < c.fence
    ORDER BY c.fence, c.chore, (one.t).due - (one.t).boost, held.seq;
END $$;

-- name: release_session_v1
-- All that a session held, whose row is ours to drop. died: with it, and a suspect among its runs alone is counted as
-- crashed, without one all runs are. Chores go back uncounted.
CREATE FUNCTION release_session_v1(_app integer, _session text, _died boolean, _now double precision) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    _held record;
    _task task;
    _tasks task[] := '{}';
    _woken text[] := '{}';
    _suspects boolean := EXISTS (SELECT FROM leased_v1(_app, _session) AS h
        WHERE NOT h.chore AND (h.task).crashes + 1 >= (h.task).max_crashes);
BEGIN
    -- What has to be waited for, before the gate.
    PERFORM FROM task WHERE seq = ANY (ARRAY(SELECT (h.task).seq FROM leased_v1(_app, _session) AS h))
    ORDER BY seq FOR NO KEY UPDATE;
    FOR _held IN SELECT * FROM leased_v1(_app, _session) LOOP
        _task := _held.task;
        _tasks := _tasks || _task;
        PERFORM count_v1(_app, _task.source, CASE WHEN _held.chore THEN _task.state ELSE 'running' END, -1);
        IF _held.chore THEN
            PERFORM queue_chore_v1(_task, _now);
            CONTINUE;
        END IF;
        IF _died THEN
            _task.crashes := _task.crashes + (NOT _suspects OR _task.crashes + 1 >= _task.max_crashes)::integer;
            _task.reason := CASE WHEN _task.crashes >= _task.max_crashes AND NOT _task.cancel_requested
                THEN 'crashed' ELSE 'crash' END;
            _task.started := _held.at;
        END IF;
        _woken := _woken || requeue_v1(_task, NULL, _now);
    END LOOP;
    DELETE FROM claim WHERE app = _app AND session = _session;
    DELETE FROM session WHERE app = _app AND name = _session;
    FOR _task IN SELECT * FROM unnest(_tasks) ORDER BY due - boost, seq LOOP
        _woken := _woken || release_capacity_v1(_task, _now, false);
    END LOOP;
    RETURN _woken;
END $$;

-- name: reap_session_v1
CREATE FUNCTION reap_session_v1(_app integer, _session text, _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dead_session (app, name) VALUES (_app, _session) ON CONFLICT DO NOTHING;
    RETURN release_session_v1(_app, _session, true, _now);
END $$;

-- name: reap_overdue_v1
-- Sessions whose time is over, but for those of which somebody settles a task at this moment.
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

-- name: heartbeat_v1
-- {"app", "now", "session", "lease", "info"} → alive, and its runs that somebody wants cancelled.
CREATE FUNCTION heartbeat_v1(_request json, OUT alive boolean, OUT cancel json, OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _lease double precision := (_request ->> 'lease')::double precision;
    _written boolean;
BEGIN
    alive := false;
    INSERT INTO session
    SELECT _app, _session, decode(_request ->> 'info', 'base64'), _now + _lease
    WHERE NOT EXISTS (SELECT FROM dead_session WHERE app = _app AND name = _session)
    ON CONFLICT (app, name) DO UPDATE SET info = excluded.info, until = excluded.until;
    _written := FOUND;
    IF EXISTS (SELECT FROM dead_session WHERE app = _app AND name = _session) THEN
        IF _written THEN  -- buried while this waited; else it may be there as one who only visits, and holds something
            DELETE FROM session WHERE app = _app AND name = _session;
        END IF;
        RETURN;
    END IF;
    alive := true;
    SELECT json_agg(json_build_array((h.task).uuid, h.fence)) INTO cancel FROM leased_v1(_app, _session) AS h
    WHERE NOT h.chore AND (h.task).cancel_requested;
END $$;

-- name: close_session_v1
-- {"app", "now", "session", "crashed"}. Its tasks are requeued, uncounted; or its process has crashed: it is reaped.
CREATE FUNCTION close_session_v1(_request json, OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _written boolean;
BEGIN
    IF (_request ->> 'crashed')::boolean THEN
        INSERT INTO session SELECT _app, _session, '', _now
        WHERE NOT EXISTS (SELECT FROM dead_session WHERE app = _app AND name = _session)
        ON CONFLICT (app, name) DO UPDATE SET until = excluded.until;
        _written := FOUND;
        IF EXISTS (SELECT FROM dead_session WHERE app = _app AND name = _session) THEN
            IF _written THEN  -- reaped while this waited
                DELETE FROM session WHERE app = _app AND name = _session;
            END IF;
            RETURN;
        END IF;
        PERFORM FROM session WHERE app = _app AND name = _session FOR UPDATE SKIP LOCKED;
        IF FOUND THEN  -- otherwise it is overdue, and the next turn of any worker reaps it
            notification := json_build_object('sources', reap_session_v1(_app, _session, _now) || ''::text);
        END IF;
        RETURN;
    END IF;
    PERFORM FROM session WHERE app = _app AND name = _request ->> 'session' FOR UPDATE;
    IF FOUND THEN
        notification := json_build_object('sources', ''::text || release_session_v1(
            _app, _request ->> 'session', false, now_v1((_request ->> 'now')::double precision)));
    END IF;
END $$;

-- name: mark_cancelled_v1
-- Marks one to be cancelled. Answers with its number if it waits, and then locks its place; with null if it is held
-- (whose then is who holds it) or has ended.
CREATE FUNCTION mark_cancelled_v1(_app integer, _uuid text, OUT seq bigint, OUT holder text) LANGUAGE plpgsql AS $$
DECLARE
    _task task;
BEGIN
    FOR _ IN 1 .. 20 LOOP
        SELECT p.seq INTO seq FROM task AS t JOIN place AS p ON p.seq = t.seq
        WHERE t.app = _app AND t.uuid = _uuid FOR UPDATE OF p;
        EXIT WHEN FOUND;
        UPDATE task AS t SET cancel_requested = true WHERE t.app = _app AND t.uuid = _uuid AND t.ended IS NULL
        RETURNING * INTO _task;
        EXIT WHEN NOT FOUND;  -- it has ended
        SELECT c.session INTO holder FROM claim AS c WHERE c.app = _app AND c.source = _task.source
            AND c.fence > _task.settled_fence AND _task.seq = ANY (c.seqs);
        EXIT WHEN FOUND;  -- else it came back in between
    END LOOP;
END $$;

-- name: cancel_v1
-- {"app", "now", "session", "uuids"} → those that nobody held, leased to the caller; whom to tell of the others.
CREATE FUNCTION cancel_v1(
    _request json, OUT fence bigint, OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[],
    OUT lanes text[], OUT unique_keys text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[], OUT states text[],
    OUT histories text[], OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _uuid text;
    _flag record;
    _place place;
    _held json[] := '{}';
    _taken bigint[] := '{}';
    _sources text[] := '{}';
    _woken text[] := '{}';
BEGIN
    INSERT INTO session VALUES (_app, _session, NULL, _now + 10000)
    ON CONFLICT (app, name) DO UPDATE SET until = excluded.until WHERE session.info IS NULL;
    PERFORM FROM session WHERE app = _app AND name = _session FOR KEY SHARE;
    FOR _uuid IN SELECT DISTINCT uuid FROM json_array_elements_text(_request -> 'uuids') AS uuid ORDER BY uuid LOOP
        SELECT * INTO _flag FROM mark_cancelled_v1(_app, _uuid);
        _taken := _taken || _flag.seq;
        IF _flag.holder IS NOT NULL THEN
            _held := _held || json_build_array(_flag.holder, _uuid);
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM place WHERE seq = ANY (_taken) AND lane IS NOT NULL) THEN
        PERFORM lock_limits_v1(_app);
    END IF;
    _taken := ARRAY(
        SELECT t.seq FROM json_array_elements_text(_request -> 'uuids') WITH ORDINALITY AS u (uuid, nth)
        JOIN task AS t ON t.seq = ANY (_taken) AND t.uuid = u.uuid GROUP BY t.seq ORDER BY min(u.nth));
    FOR _place IN SELECT p.* FROM unnest(_taken) WITH ORDINALITY AS u (seq, nth)
        JOIN place AS p ON p.seq = ANY (_taken) AND p.seq = u.seq ORDER BY u.nth
    LOOP
        IF _place.kind NOT IN ('c', 'l') THEN  -- as it is now: the one before it may have let it in
            PERFORM end_as_chore_v1(_place.seq, 'cancel', _now);
        END IF;
        UPDATE task SET cancel_requested = true, reason = 'cancel' WHERE seq = _place.seq;
        DELETE FROM place WHERE seq = _place.seq;
        _sources := _sources || _place.source::text;
        IF _place.lane IS NOT NULL AND _place.kind IN ('r', 'p') THEN
            _woken := _woken || admit_v1(_app, _place.lane, _now);
        END IF;
    END LOOP;
    fence := 0;
    IF _taken <> '{}' THEN
        fence := nextval('fence');
        PERFORM lease_v1(_app, _session, 0, fence, _taken, _sources, NULL, true, _now);
        SELECT r.uuids, r.sources, r.bodies, r.policies, r.lanes, r.unique_keys, r.dues, r.seqs, r.addeds, r.states, r.histories
        INTO uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories
        FROM records_v1(_taken) AS r;
    END IF;
    notification := json_build_object('sources', _woken, 'cancel', _held);
END $$;

-- name: revive_v1
-- Failed or cancelled → due now; answers with those that live now.
CREATE FUNCTION revive_v1(_request json, OUT live text[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _uuid text;
    _task task;
    _woken text[] := '{}';
BEGIN
    live := '{}';
    FOR _uuid IN SELECT uuid FROM json_array_elements_text(_request -> 'uuids') AS uuid LOOP
        SELECT * INTO _task FROM task WHERE app = _app AND uuid = _uuid FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND OR _task.state = 'succeeded';
        IF _task.ended IS NULL THEN
            live := live || _uuid;
            CONTINUE;
        END IF;
        IF _task.unique_key IS NOT NULL AND _task.unique_for IS NULL THEN
            INSERT INTO unique_key VALUES (_app, _task.source, _task.unique_key, _uuid, NULL)
            ON CONFLICT (app, source, name) DO UPDATE SET uuid = excluded.uuid, until = NULL
            WHERE unique_key.uuid = excluded.uuid OR unique_key.until <= _now;
            CONTINUE WHEN NOT FOUND;
        ELSIF EXISTS (SELECT FROM unique_key WHERE app = _app AND source = _task.source AND name = _task.unique_key
            AND uuid <> _uuid AND coalesce(until > _now, true))
        THEN
            CONTINUE;
        END IF;
        PERFORM count_v1(_app, _task.source, _task.state, -1);
        _task.earlier := _task.earlier + 1 + _task.retries + _task.crashes;
        _task.retries := 0;
        _task.crashes := 0;
        _task.reason := 'due';
        _task.cancel_requested := false;
        _task.ended := NULL;
        _task.keep_until := NULL;
        _task.error := NULL;
        _task.result := NULL;
        _task.result_until := NULL;
        _task.due := floor(_now);
        PERFORM enter_v1(_task, CASE WHEN _task.lane IS NULL THEN 'r' ELSE 's' END::"char", _now);
        live := live || _uuid;
        _woken := _woken || _task.source;
    END LOOP;
    notification := json_build_object('sources', _woken);
END $$;
