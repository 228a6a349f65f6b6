-- add: inserts only. What a caller's open transaction has added makes nobody wait, but for the same uuid or key.

-- name: insert_v1
-- Those that are not there yet, in order; due and without a lane: ready, else waiting for their alarm.
CREATE FUNCTION insert_v1(_app integer, _tasks json, _now double precision, OUT uuids text[], OUT sources text[])
LANGUAGE plpgsql AS $$
BEGIN
    WITH said AS (
        SELECT nextval('seq') AS seq, ordered.* FROM (
            SELECT * FROM (
                SELECT DISTINCT ON (uuid COLLATE "C") * FROM ROWS FROM (json_to_recordset(_tasks) AS (
                    uuid text, source text, lane text, unique_key text, at bigint, after double precision, boost bigint,
                    cost double precision, expires bigint, max_crashes integer, unique_for bigint, reply_to text,
                    policy text, body text)) WITH ORDINALITY ORDER BY uuid COLLATE "C", ordinality
            ) AS once
            WHERE (SELECT seq FROM task AS t WHERE t.app = _app AND t.uuid = once.uuid) IS NULL ORDER BY ordinality
        ) AS ordered
    ), fresh AS (
        INSERT INTO task (
            seq, app, uuid, source, lane, unique_key, due, added, boost, cost, expires, max_crashes, unique_for, reply_to,
            policy, body
        )
        SELECT seq, _app, uuid, source, lane, unique_key, coalesce(at, due_v1(coalesce(after, 0), _now)), floor(_now),
            coalesce(boost, 0), coalesce(cost, 1), expires, coalesce(max_crashes, 3), unique_for, reply_to,
            coalesce(policy, '{}'), decode(body, 'base64')
        FROM said ON CONFLICT DO NOTHING
        RETURNING seq, uuid, source, lane, due, boost, cost, expires, max_crashes
    ), placed AS (
        INSERT INTO place
        SELECT seq, _app, kind, source, max_crashes <= 1, due - boost, lane, cost, due + expires,
            CASE kind WHEN 's' THEN due ELSE due + expires END
        FROM (
            SELECT *, CASE WHEN due <= _now AND lane IS NULL THEN 'r' ELSE 's' END::"char" AS kind FROM fresh
        ) AS due
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
-- The one that has the key takes body, lane, policy and due time, if it waits. Answers with the lane that it left.
CREATE FUNCTION replace_v1(_app integer, _uuid text, _new json, _now double precision) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    _task task;
    _place place;
    _kind "char";
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
    _kind := CASE WHEN _task.due <= _now AND _task.lane IS NULL THEN 'r' ELSE 's' END;
    PERFORM enter_v1(_task, _kind, _now);
    RETURN CASE WHEN _place.kind <> 's' THEN _place.lane END;
END $$;

-- name: lock_keys_v1
-- In one order by all, so that nobody waits in a circle; to be given a task, or given back.
CREATE FUNCTION lock_keys_v1(_app integer, _tasks json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO unique_key SELECT DISTINCT _app, t.source, t.unique_key, '', NULL::bigint
    FROM json_to_recordset(_tasks) AS t (source text, unique_key text) WHERE t.unique_key IS NOT NULL ORDER BY 2, 3
    ON CONFLICT DO NOTHING;
END $$;

-- name: unlock_keys_v1
CREATE FUNCTION unlock_keys_v1(_app integer, _tasks json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM unique_key AS k USING json_to_recordset(_tasks) AS t (source text, unique_key text)
    WHERE k.app = _app AND k.source = t.source AND k.name = t.unique_key AND k.uuid = '';
END $$;

-- name: take_key_v1
-- Whose a key is: this one's, if it was free or its time was over, else a living task's.
CREATE FUNCTION take_key_v1(_app integer, _new json, _added bigint, _now double precision) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    _key unique_key;
BEGIN
    FOR _ IN 1 .. 20 LOOP
        SELECT * INTO _key FROM unique_key AS k
        WHERE k.app = _app AND k.source = _new ->> 'source' AND k.name = _new ->> 'unique_key';
        IF NOT FOUND THEN  -- freed since
            INSERT INTO unique_key VALUES (_app, _new ->> 'source', _new ->> 'unique_key', '') ON CONFLICT DO NOTHING;
            CONTINUE;
        END IF;
        IF _key.uuid <> '' AND coalesce(_key.until > _now, true) THEN
            RETURN _key.uuid;
        END IF;
        UPDATE unique_key AS k SET uuid = _new ->> 'uuid', until = _added + (_new ->> 'unique_for')::bigint
        WHERE k.app = _app AND k.source = _key.source AND k.name = _key.name AND k.uuid = _key.uuid
            AND k.until IS NOT DISTINCT FROM _key.until;
        IF FOUND THEN
            RETURN _new ->> 'uuid';
        END IF;
    END LOOP;
    RAISE EXCEPTION 'the key % of % changes hands all the time', _new ->> 'unique_key', _new ->> 'source'
        USING ERRCODE = 'lock_not_available';
END $$;

-- name: add_keyed_v1
-- One with a unique key: if that is a living task's, that one's uuid is the answer.
CREATE FUNCTION add_keyed_v1(
    _app integer, _new json, _now double precision, OUT uuid text, OUT fresh boolean, OUT sources text[], OUT lane text
) LANGUAGE plpgsql AS $$
BEGIN
    uuid := _new ->> 'uuid';
    fresh := false;
    sources := '{}';
    IF EXISTS (SELECT FROM task AS t WHERE t.app = _app AND t.uuid = _new ->> 'uuid') THEN
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
-- joined: in a caller's transaction, which may stay open; then lanes that may have opened are looked at by others.
CREATE FUNCTION add_tasks_v1(
    _app integer, _tasks json, _now double precision, _in_transaction boolean,
    OUT uuids text[], OUT fresh boolean[], OUT sources text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _new json;
    _one record;
    _keyed boolean;
    _lanes text[] := '{}';
    _lane text;
BEGIN
    SELECT array_agg(t.uuid ORDER BY t.ordinality), coalesce(bool_or(t.unique_key IS NOT NULL), false) INTO uuids, _keyed
    FROM ROWS FROM (json_to_recordset(_tasks) AS (uuid text, unique_key text)) WITH ORDINALITY AS t;
    IF NOT _keyed THEN
        SELECT array_agg(said.uuid IS NOT NULL AND said.ordinality = said.first ORDER BY said.ordinality), i.sources
        INTO fresh, sources
        FROM insert_v1(_app, _tasks, _now) AS i
        CROSS JOIN LATERAL (
            SELECT w.ordinality, i2.uuid, min(w.ordinality) OVER (PARTITION BY w.uuid) AS first
            FROM unnest(add_tasks_v1.uuids) WITH ORDINALITY AS w (uuid)
            LEFT JOIN unnest(i.uuids) AS i2 (uuid) ON i2.uuid = w.uuid
        ) AS said GROUP BY i.sources;
        RETURN;
    END IF;
    PERFORM lock_keys_v1(_app, _tasks);
    fresh := '{}';
    sources := '{}';
    FOR _new IN SELECT value FROM json_array_elements(_tasks) LOOP
        IF _new ->> 'unique_key' IS NULL THEN
            SELECT _new ->> 'uuid' AS uuid, i.uuids <> '{}' AS fresh, i.sources, NULL::text AS lane INTO _one
            FROM insert_v1(_app, json_build_array(_new), _now) AS i;
        ELSE
            SELECT * INTO _one FROM add_keyed_v1(_app, _new, _now);
        END IF;
        fresh := fresh || _one.fresh;
        uuids[cardinality(fresh)] := _one.uuid;
        sources := sources || _one.sources;
        _lanes := _lanes || _one.lane;
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

-- name: add_v1
-- {"app", "now", "in_transaction", "tasks": […]} → the uuids that stand for them, which are new, whose sources to wake.
CREATE FUNCTION add_v1(_request json, OUT uuids text[], OUT fresh boolean[], OUT sources text[]) LANGUAGE plpgsql AS $$
DECLARE
    _in_transaction boolean := coalesce((_request ->> 'in_transaction')::boolean, false);
BEGIN
    SELECT a.uuids, a.fresh, a.sources INTO uuids, fresh, sources FROM add_tasks_v1(
        app_v1(_request ->> 'app'), _request -> 'tasks', now_v1((_request ->> 'now')::double precision), _in_transaction) AS a;
    IF _in_transaction AND sources <> '{}' THEN
        PERFORM notify_v1(_request ->> 'app', json_build_object('sources', sources));
    END IF;
END $$;

-- name: notify_v1
-- A hint is one of few bytes, or of none: then whoever hears it looks at everything.
CREATE FUNCTION notify_v1(_app text, _hint json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(
        'onthedot:' || md5(_app), CASE WHEN octet_length(_hint::text) < 7900 THEN _hint::text ELSE '{}' END);
END $$;
