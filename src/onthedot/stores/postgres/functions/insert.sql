-- add: inserts only. An open transaction of a caller that adds tasks delays others only at the same uuid or unique key.

-- name: known_v1
-- The uuids of new tasks that exist, or ended a moment ago and were not kept.
CREATE FUNCTION known_v1(_app integer, _tasks json, _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT g.uuid FROM json_to_recordset(_tasks) AS g (uuid text)
        WHERE EXISTS (SELECT FROM task AS t WHERE t.uuid = g.uuid AND t.app = _app OFFSET 0) OR EXISTS (
            SELECT FROM recent_uuid AS r WHERE r.uuid = g.uuid AND r.app = _app AND r.until > _now OFFSET 0));
END $$;

-- name: insert_v1
-- Insert the tasks whose uuid is new and, with a unique key, which hold it; in order. No two have the same uuid.
CREATE FUNCTION insert_v1(_app integer, _tasks json, _now double precision, OUT uuids text[], OUT sources text[])
LANGUAGE plpgsql AS $$
DECLARE
    _waiting bigint[];
BEGIN
    WITH given AS (
        SELECT nextval('seq') AS seq, g.*, l.flow, l.increments, l.waits FROM json_to_recordset(_tasks) AS g (
            uuid text, source text, lane text, unique_key text, at bigint, after double precision, boost bigint,
            cost double precision, expires bigint, max_crashes integer, unique_for bigint, reply_to text, policy text,
            body text, links json)
        LEFT JOIN LATERAL json_to_record(g.links) AS l (flow text, increments text[], waits json) ON g.links IS NOT NULL
        WHERE (SELECT t.seq FROM task AS t WHERE t.app = _app AND t.uuid = g.uuid) IS NULL
            AND (NOT (SELECT EXISTS (SELECT FROM recent_uuid AS r WHERE r.until > _now)) OR (
                SELECT r.until FROM recent_uuid AS r WHERE r.app = _app AND r.uuid = g.uuid AND r.until > _now) IS NULL)
            AND (g.unique_key IS NULL OR g.uuid = (SELECT k.uuid FROM unique_key AS k
                WHERE k.app = _app AND k.source = g.source AND k.name = g.unique_key))
    ), fresh AS (
        INSERT INTO task (
            seq, app, uuid, source, lane, unique_key, due, added, boost, cost, expires, max_crashes, unique_for,
            reply_to, policy, body, links, flow, increments, wait_until
        )
        SELECT seq, _app, uuid, source, lane, unique_key, coalesce(at, due_v1(coalesce(after, 0), _now)), floor(_now),
            coalesce(boost, 0), coalesce(cost, 1), expires, coalesce(max_crashes, 3), unique_for, reply_to,
            coalesce(policy, '{}'), decode(body, 'base64'), links, flow, increments, wait_deadline_v1(waits, _now)
        FROM given ON CONFLICT (uuid, app) DO NOTHING
        RETURNING seq, uuid, source, lane, due, boost, cost, expires, max_crashes, wait_until,
            links -> 'waits' IS NOT NULL AS has_wait
    ), placed AS (
        INSERT INTO place
        SELECT seq, _app, kind, source, max_crashes <= 1, due - boost, CASE WHEN kind <> 'w' THEN lane END, cost,
            due + expires, CASE kind WHEN 's' THEN due WHEN 'w' THEN wait_until ELSE due + expires END
        FROM (SELECT *, next_place_v1('due', false, due, lane, _now, false, has_wait) AS kind FROM fresh) AS entering
        RETURNING seq, source, kind
    ), counted AS (
        INSERT INTO tally SELECT _app, source, state_v1(kind), count(*) FROM placed GROUP BY source, kind
    ), logged AS (
        INSERT INTO change (app, call, at, state, seqs, source, number)
        SELECT _app, pg_current_xact_id()::text::bigint, floor(_now), state_v1(kind), array_agg(seq ORDER BY seq), source,
            count(*)
        FROM placed GROUP BY source, kind
    )
    SELECT coalesce(array_agg(uuid), '{}'), coalesce(array_agg(DISTINCT source), '{}'),
        array_agg(seq) FILTER (WHERE has_wait)
    INTO uuids, sources, _waiting FROM fresh;
    IF _waiting IS NOT NULL THEN
        PERFORM begin_waits_v1(_app, _waiting, _now);
    END IF;
END $$;

-- name: replace_v1
-- Give the pending holder of a unique key body, lane, policy and due time of a new task, unless it has links. Return
-- the lane that it left.
CREATE FUNCTION replace_v1(_app integer, _uuid text, _new json, _now double precision) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    _task task;
    _place place;
BEGIN
    SELECT p.* INTO _place FROM task AS t JOIN place AS p ON p.seq = t.seq
    WHERE t.app = _app AND t.uuid = _uuid AND t.links IS NULL AND p.kind <> 'w' FOR UPDATE OF p;
    IF NOT FOUND OR _place.kind IN ('c', 'l') THEN
        RETURN NULL;
    END IF;
    UPDATE task SET body = decode(_new ->> 'body', 'base64'), policy = coalesce(_new ->> 'policy', '{}'),
        lane = _new ->> 'lane', reply_to = _new ->> 'reply_to', boost = coalesce((_new ->> 'boost')::bigint, 0),
        cost = coalesce((_new ->> 'cost')::double precision, 1), expires = (_new ->> 'expires')::bigint,
        max_crashes = coalesce((_new ->> 'max_crashes')::integer, 3), unique_for = (_new ->> 'unique_for')::bigint,
        due = coalesce(
            (_new ->> 'at')::bigint, due_v1(coalesce((_new ->> 'after')::double precision, 0), _now))
    WHERE seq = _place.seq RETURNING * INTO _task;
    UPDATE unique_key SET until = _task.added + _task.unique_for WHERE app = _app AND source = _task.source
        AND name = _task.unique_key AND until IS DISTINCT FROM _task.added + _task.unique_for;
    DELETE FROM place WHERE seq = _place.seq;
    PERFORM count_v1(_app, _task.source, state_v1(_place.kind), -1);
    PERFORM enter_v1(_task, next_place_v1('due', false, _task.due, _task.lane, _now, false), _now);
    RETURN CASE WHEN _place.kind <> 's' THEN _place.lane END;
END $$;

-- name: add_keyed_v1
-- Add tasks of which no two have the same uuid or unique key. If a live task holds a key, the answer is its uuid.
-- lanes: those that replaced tasks have left.
CREATE FUNCTION add_keyed_v1(
    _app integer, _tasks json, _now double precision,
    OUT uuids text[], OUT fresh boolean[], OUT sources text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _known text[] := known_v1(_app, _tasks, _now);
    _inserted text[];
    _conflict record;
BEGIN
    PERFORM take_keys_v1(_app, _tasks, _known, _now);
    SELECT i.uuids, i.sources INTO _inserted, sources FROM insert_v1(_app, _tasks, _now) AS i;
    SELECT array_agg(t.uuid ORDER BY t.ordinality), array_agg(t.uuid = ANY (_inserted) ORDER BY t.ordinality)
    INTO uuids, fresh FROM ROWS FROM (json_to_recordset(_tasks) AS (uuid text)) WITH ORDINALITY AS t;
    IF cardinality(_inserted) = cardinality(uuids) THEN
        RETURN;
    END IF;
    FOR _conflict IN
        SELECT t.value AS task, t.ordinality, t.value ->> 'source' AS source, k.uuid AS holder
        FROM json_array_elements(_tasks) WITH ORDINALITY AS t
        CROSS JOIN LATERAL (SELECT k.uuid FROM unique_key AS k WHERE k.app = _app
            AND k.source = t.value ->> 'source' AND k.name = t.value ->> 'unique_key' OFFSET 0) AS k
        WHERE k.uuid <> t.value ->> 'uuid' AND t.value ->> 'uuid' <> ALL (_known) ORDER BY t.ordinality
    LOOP
        uuids[_conflict.ordinality] := _conflict.holder;
        sources := sources || _conflict.source;
        IF _conflict.task ->> 'on_conflict' = 'replace' THEN
            lanes := lanes || replace_v1(_app, _conflict.holder, _conflict.task, _now);
        END IF;
    END LOOP;
END $$;

-- name: add_in_parts_v1
-- Add tasks of which some have a unique key. The list is cut where a task has the uuid or key of an earlier one: it must
-- find what that one has left.
CREATE FUNCTION add_in_parts_v1(
    _app integer, _tasks json, _now double precision,
    OUT uuids text[], OUT fresh boolean[], OUT sources text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _cut record;
    _start bigint := 1;
    _part record;
BEGIN
    FOR _cut IN
        SELECT t.ordinality, t.earlier FROM (
            SELECT g.ordinality, greatest(lag(g.ordinality) OVER (PARTITION BY g.uuid ORDER BY g.ordinality),
                CASE WHEN g.unique_key IS NOT NULL THEN
                    lag(g.ordinality) OVER (PARTITION BY g.source, g.unique_key ORDER BY g.ordinality) END) AS earlier
            FROM ROWS FROM (json_to_recordset(_tasks) AS (uuid text, source text, unique_key text))
                WITH ORDINALITY AS g
        ) AS t WHERE t.earlier IS NOT NULL
        UNION ALL SELECT json_array_length(_tasks) + 1, json_array_length(_tasks) ORDER BY 1
    LOOP
        CONTINUE WHEN _cut.earlier < _start;
        SELECT a.* INTO _part FROM add_keyed_v1(_app, CASE
            WHEN _start = 1 AND _cut.ordinality > json_array_length(_tasks) THEN _tasks
            ELSE (SELECT json_agg(t.value ORDER BY t.ordinality) FROM json_array_elements(_tasks) WITH ORDINALITY AS t
                WHERE t.ordinality >= _start AND t.ordinality < _cut.ordinality) END, _now) AS a;
        uuids := uuids || _part.uuids;
        fresh := fresh || _part.fresh;
        sources := sources || _part.sources;
        lanes := lanes || _part.lanes;
        _start := _cut.ordinality;
    END LOOP;
END $$;

-- name: add_tasks_v1
-- Add tasks. added: how many are new; if all are, uuids and fresh may be null. in_parts: some have a unique key, or the
-- same uuid. in_transaction: the caller's transaction may stay open, so the next turn checks the lanes that were left.
CREATE FUNCTION add_tasks_v1(
    _app integer, _tasks json, _number integer, _in_parts boolean, _now double precision, _in_transaction boolean,
    OUT uuids text[], OUT fresh boolean[], OUT sources text[], OUT added bigint
) LANGUAGE plpgsql AS $$
DECLARE
    _inserted text[];
    _lanes text[];
BEGIN
    IF NOT _in_parts THEN
        SELECT i.uuids, i.sources, cardinality(i.uuids) INTO _inserted, sources, added
        FROM insert_v1(_app, _tasks, _now) AS i;
        IF added < _number THEN
            SELECT array_agg(t.uuid ORDER BY t.ordinality), array_agg(t.uuid = ANY (_inserted) ORDER BY t.ordinality)
            INTO uuids, fresh FROM ROWS FROM (json_to_recordset(_tasks) AS (uuid text)) WITH ORDINALITY AS t;
        END IF;
        RETURN;
    END IF;
    PERFORM lock_keys_v1(_app, _tasks);
    SELECT a.uuids, a.fresh, a.sources, array_remove(a.lanes, NULL) INTO uuids, fresh, sources, _lanes
    FROM add_in_parts_v1(_app, _tasks, _now) AS a;
    added := cardinality(array_positions(fresh, true));
    PERFORM unlock_keys_v1(_app, _tasks);
    IF _in_transaction THEN
        INSERT INTO lane_check SELECT _app, unnest(_lanes);
    ELSIF _lanes <> '{}' THEN
        PERFORM lock_limits_v1(_app);
        sources := sources || admit_v1(_app, _lanes, _now);
    END IF;
END $$;

-- name: pending_sources_v1
-- The sources of tasks that are ready, have an alarm or wait.
CREATE FUNCTION pending_sources_v1(_app integer, _uuids text[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT DISTINCT p.source::text FROM unnest(_uuids) AS given (uuid)
        CROSS JOIN LATERAL (SELECT seq FROM task WHERE uuid = given.uuid AND app = _app OFFSET 0) AS t
        CROSS JOIN LATERAL (SELECT source FROM place WHERE seq = t.seq AND kind IN ('r', 's', 'w') OFFSET 0) AS p);
END $$;

-- name: refuse_late_v1
-- Roll an add back whose caller has given up. The client reads the time from the detail.
CREATE FUNCTION refuse_late_v1(_now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the add arrived after its deadline' USING ERRCODE = 'OTD01', DETAIL = _now;
END $$;

-- name: add_v1
-- {"app", "now", "deadline", "number", "in_parts"}, tasks: […] → per task its uuid or the holder's, and whether it is new
-- (null: all are); sources that may have work; the time. The deadline is checked first, and again after everything that
-- may wait. The tasks are a parameter of their own, because each look into a JSON value reads all of it.
CREATE FUNCTION add_v1(
    _request json, _tasks json, OUT uuids text[], OUT fresh boolean[], OUT sources text[], OUT moment double precision
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _given double precision := (_request ->> 'now')::double precision;
    _now double precision := now_v1(_given);
    _deadline double precision := (_request ->> 'deadline')::double precision;
BEGIN
    IF _now > _deadline THEN
        PERFORM refuse_late_v1(_now);
    END IF;
    SELECT a.uuids, a.fresh, a.sources INTO uuids, fresh, sources
    FROM add_tasks_v1(_app, _tasks, (_request ->> 'number')::integer, (_request ->> 'in_parts')::boolean, _now, false) AS a;
    IF false = ANY (fresh) THEN  -- a repeat: the hint of the first call may be lost with its answer
        sources := sources || pending_sources_v1(_app, uuids);
    END IF;
    moment := now_v1(_given);
    IF moment > _deadline THEN
        PERFORM refuse_late_v1(moment);
    END IF;
END $$;

-- name: add_in_v1
-- {"app", "now", "in_parts", "tasks": […]} → as add_v1. In the caller's transaction: it notifies at the commit.
CREATE FUNCTION add_in_v1(_request json, OUT uuids text[], OUT fresh boolean[]) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _sources text[];
BEGIN
    SELECT a.uuids, a.fresh, a.sources INTO uuids, fresh, _sources
    FROM add_tasks_v1(_app, _request -> 'tasks', json_array_length(_request -> 'tasks'),
        (_request ->> 'in_parts')::boolean, now_v1((_request ->> 'now')::double precision), true) AS a;
    IF false = ANY (fresh) THEN
        _sources := _sources || pending_sources_v1(_app, uuids);
    END IF;
    IF _sources <> '{}' THEN
        PERFORM notify_v1(_request ->> 'app', json_build_object('sources', _sources));
    END IF;
END $$;
