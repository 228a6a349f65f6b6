-- add: inserts only. An open transaction of a caller that adds tasks delays others only at the same uuid or unique key.

-- name: insert_v1
-- Insert the tasks whose uuid is new, in order.
CREATE FUNCTION insert_v1(_app integer, _tasks json, _now double precision, OUT uuids text[], OUT sources text[])
LANGUAGE plpgsql AS $$
BEGIN
    WITH given AS (
        SELECT nextval('seq') AS seq, ordered.* FROM (
            SELECT * FROM (
                SELECT DISTINCT ON (uuid COLLATE "C") * FROM ROWS FROM (json_to_recordset(_tasks) AS (
                    uuid text, source text, lane text, unique_key text, at bigint, after double precision,
                    boost bigint, cost double precision, expires bigint, max_crashes integer, unique_for bigint,
                    reply_to text, policy text, body text)) WITH ORDINALITY ORDER BY uuid COLLATE "C", ordinality
            ) AS once
            WHERE (SELECT seq FROM task AS t WHERE t.app = _app AND t.uuid = once.uuid) IS NULL
                AND (SELECT until FROM recent_uuid AS r WHERE r.app = _app AND r.uuid = once.uuid AND r.until > _now)
                    IS NULL
            ORDER BY ordinality
        ) AS ordered
    ), fresh AS (
        INSERT INTO task (
            seq, app, uuid, source, lane, unique_key, due, added, boost, cost, expires, max_crashes, unique_for,
            reply_to, policy, body
        )
        SELECT seq, _app, uuid, source, lane, unique_key, coalesce(at, due_v1(coalesce(after, 0), _now)), floor(_now),
            coalesce(boost, 0), coalesce(cost, 1), expires, coalesce(max_crashes, 3), unique_for, reply_to,
            coalesce(policy, '{}'), decode(body, 'base64')
        FROM given ON CONFLICT DO NOTHING
        RETURNING seq, uuid, source, lane, due, boost, cost, expires, max_crashes
    ), placed AS (
        INSERT INTO place
        SELECT seq, _app, kind, source, max_crashes <= 1, due - boost, lane, cost, due + expires,
            CASE kind WHEN 's' THEN due ELSE due + expires END
        FROM (SELECT *, next_place_v1('due', false, due, lane, _now, false) AS kind FROM fresh) AS entering
        RETURNING seq, source, kind
    ), counted AS (
        INSERT INTO tally SELECT _app, source, state_v1(kind), count(*) FROM placed GROUP BY source, kind
    ), logged AS (
        INSERT INTO change
        SELECT _app, pg_current_xact_id()::text::bigint, floor(_now), state_v1(kind), array_agg(seq ORDER BY seq)
        FROM placed GROUP BY kind
    )
    SELECT coalesce(array_agg(uuid), '{}'), coalesce(array_agg(DISTINCT source), '{}') INTO uuids, sources FROM fresh;
END $$;

-- name: replace_v1
-- Give the pending holder of a unique key body, lane, policy and due time of a new task. Return the lane that it left.
CREATE FUNCTION replace_v1(_app integer, _uuid text, _new json, _now double precision) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    _task task;
    _place place;
BEGIN
    SELECT p.* INTO _place FROM task AS t JOIN place AS p ON p.seq = t.seq
    WHERE t.app = _app AND t.uuid = _uuid FOR UPDATE OF p;
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
-- Add one task with a unique key. If a live task holds the key, the answer is its uuid.
CREATE FUNCTION add_keyed_v1(
    _app integer, _new json, _now double precision, OUT uuid text, OUT fresh boolean, OUT sources text[], OUT lane text
) LANGUAGE plpgsql AS $$
BEGIN
    uuid := _new ->> 'uuid';
    fresh := false;
    sources := '{}';
    IF EXISTS (SELECT FROM task AS t WHERE t.app = _app AND t.uuid = _new ->> 'uuid') OR EXISTS (
        SELECT FROM recent_uuid AS r WHERE r.app = _app AND r.uuid = _new ->> 'uuid' AND r.until > _now)
    THEN
        RETURN;
    END IF;
    uuid := take_key_v1(_app, _new, floor(_now)::bigint, _now);
    IF uuid = _new ->> 'uuid' THEN
        SELECT i.sources, i.uuids <> '{}' INTO sources, fresh
        FROM insert_v1(_app, json_build_array(_new), _now) AS i;
        RETURN;
    END IF;
    sources := ARRAY[_new ->> 'source'];
    IF _new ->> 'on_conflict' = 'replace' THEN
        lane := replace_v1(_app, uuid, _new, _now);
    END IF;
END $$;

-- name: add_tasks_v1
-- Add tasks. in_transaction: the caller's transaction may stay open, so the next turn checks the lanes that were left.
CREATE FUNCTION add_tasks_v1(
    _app integer, _tasks json, _now double precision, _in_transaction boolean,
    OUT uuids text[], OUT fresh boolean[], OUT sources text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _new json;
    _added record;
    _keyed boolean;
    _lanes text[] := '{}';
    _lane text;
BEGIN
    SELECT array_agg(t.uuid ORDER BY t.ordinality), coalesce(bool_or(t.unique_key IS NOT NULL), false)
    INTO uuids, _keyed
    FROM ROWS FROM (json_to_recordset(_tasks) AS (uuid text, unique_key text)) WITH ORDINALITY AS t;
    IF NOT _keyed THEN
        SELECT array_agg(n.inserted AND n.ordinality = n.first ORDER BY n.ordinality), i.sources INTO fresh, sources
        FROM insert_v1(_app, _tasks, _now) AS i
        CROSS JOIN LATERAL (
            SELECT given.ordinality, found.uuid IS NOT NULL AS inserted,
                min(given.ordinality) OVER (PARTITION BY given.uuid) AS first
            FROM unnest(add_tasks_v1.uuids) WITH ORDINALITY AS given (uuid)
            LEFT JOIN unnest(i.uuids) AS found (uuid) ON found.uuid = given.uuid
        ) AS n GROUP BY i.sources;
        RETURN;
    END IF;
    PERFORM lock_keys_v1(_app, _tasks);
    fresh := '{}';
    sources := '{}';
    FOR _new IN SELECT value FROM json_array_elements(_tasks) LOOP
        IF _new ->> 'unique_key' IS NULL THEN
            SELECT _new ->> 'uuid' AS uuid, i.uuids <> '{}' AS fresh, i.sources, NULL::text AS lane INTO _added
            FROM insert_v1(_app, json_build_array(_new), _now) AS i;
        ELSE
            SELECT * INTO _added FROM add_keyed_v1(_app, _new, _now);
        END IF;
        fresh := fresh || _added.fresh;
        uuids[cardinality(fresh)] := _added.uuid;
        sources := sources || _added.sources;
        _lanes := _lanes || _added.lane;
    END LOOP;
    PERFORM unlock_keys_v1(_app, _tasks);
    FOREACH _lane IN ARRAY array_remove(_lanes, NULL) LOOP
        IF _in_transaction THEN
            INSERT INTO lane_check VALUES (_app, _lane);
        ELSE
            PERFORM lock_limits_v1(_app);
            sources := sources || admit_v1(_app, _lane, _now);
        END IF;
    END LOOP;
END $$;

-- name: pending_sources_v1
-- The sources of tasks that are ready or have an alarm.
CREATE FUNCTION pending_sources_v1(_app integer, _uuids text[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT DISTINCT p.source::text FROM unnest(_uuids) AS given (uuid)
        CROSS JOIN LATERAL (SELECT seq FROM task WHERE uuid = given.uuid AND app = _app OFFSET 0) AS t
        CROSS JOIN LATERAL (SELECT source FROM place WHERE seq = t.seq AND kind IN ('r', 's') OFFSET 0) AS p);
END $$;

-- name: refuse_late_v1
-- Roll an add back whose caller has given up. The client reads the time from the detail.
CREATE FUNCTION refuse_late_v1(_now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the add arrived after its deadline' USING ERRCODE = 'OTD01', DETAIL = _now;
END $$;

-- name: add_v1
-- {"app", "now", "in_transaction", "deadline", "tasks": […]} → per task its uuid or the holder's, and whether it is new;
-- sources that may have work; the time. The deadline is checked first, and again after everything that may wait.
CREATE FUNCTION add_v1(
    _request json, OUT uuids text[], OUT fresh boolean[], OUT sources text[], OUT moment double precision
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _given double precision := (_request ->> 'now')::double precision;
    _now double precision := now_v1(_given);
    _deadline double precision := (_request ->> 'deadline')::double precision;
    _in_transaction boolean := coalesce((_request ->> 'in_transaction')::boolean, false);
BEGIN
    IF _now > _deadline THEN
        PERFORM refuse_late_v1(_now);
    END IF;
    SELECT a.uuids, a.fresh, a.sources INTO uuids, fresh, sources
    FROM add_tasks_v1(_app, _request -> 'tasks', _now, _in_transaction) AS a;
    IF false = ANY (fresh) THEN  -- a repeat: the hint of the first call may be lost with its answer
        sources := sources || pending_sources_v1(_app, uuids);
    END IF;
    IF _in_transaction AND sources <> '{}' THEN
        PERFORM notify_v1(_request ->> 'app', json_build_object('sources', sources));
    END IF;
    moment := now_v1(_given);
    IF moment > _deadline THEN
        PERFORM refuse_late_v1(moment);
    END IF;
END $$;
