-- settle: the only end. Plain ends are written together, everything else in order.

-- name: finish_v1
-- The end of those that came in the ordinary way, in one statement; or (`only`) of one that did not: what it was
-- counted as is said then. Answers with the places of those that it ended in the list, and what follows from that.
CREATE FUNCTION finish_v1(
    _app integer, _outcomes json, _now double precision, _only bigint, _was text,
    OUT places bigint[], OUT woken text[], OUT suspect boolean, OUT ended json
) LANGUAGE plpgsql AS $$
DECLARE
    _at bigint := floor(_now);
    _call bigint := pg_current_xact_id()::text::bigint;
BEGIN
    WITH said AS (
        SELECT ordinality AS place, uuid, fence, session, state, keep, tasks, repeated, decode(data, 'base64') AS data,
            CASE WHEN data <> '' AND keep_result IS NOT NULL THEN least(keep, keep_result) END AS keep_result
        FROM ROWS FROM (json_to_recordset(_outcomes) AS (
            uuid text, fence bigint, session text, state text, data text, keep bigint, keep_result bigint, tasks json,
            repeated boolean)) WITH ORDINALITY
    ), ends AS (
        SELECT * FROM said WHERE state IS NOT NULL
            AND CASE WHEN _only IS NULL THEN repeated IS NULL AND tasks IS NULL ELSE place = _only END
    ), held AS MATERIALIZED (
        SELECT e.*, t.ctid AS at_ctid, c.at, c.chore FROM ends AS e
        CROSS JOIN LATERAL (
            SELECT ctid, seq, settled_fence, lane, unique_key FROM task WHERE uuid = e.uuid AND app = _app OFFSET 0
        ) AS t
        JOIN claim AS c ON c.app = _app AND c.session = ANY (ARRAY(SELECT DISTINCT session FROM ends))
            AND c.session = e.session AND c.fence = e.fence AND t.seq = ANY (c.seqs)
        WHERE t.settled_fence < e.fence AND (_only IS NOT NULL OR NOT c.chore AND t.lane IS NULL AND t.unique_key IS NULL)
    ), stays AS (
        UPDATE task AS t SET state = h.state, settled_fence = h.fence, session = h.session, ended = _at,
            started = CASE WHEN h.chore THEN t.started ELSE h.at END, keep_until = _at + h.keep,
            result = CASE h.state WHEN 'succeeded' THEN h.data END, result_until = _at + h.keep_result,
            error = CASE h.state WHEN 'succeeded' THEN t.error ELSE h.data END
        FROM held AS h WHERE t.ctid = h.at_ctid AND t.settled_fence < h.fence AND h.keep > 0
        RETURNING h.place, h.keep, h.keep_result, t.seq, t.uuid, t.source, t.state, t.unique_key, t.unique_for, t.reply_to,
            t.crashes + 1 >= t.max_crashes AS suspect
    ), goes AS (
        DELETE FROM task AS t USING held AS h WHERE t.ctid = h.at_ctid AND t.settled_fence < h.fence AND h.keep <= 0
        RETURNING h.place, h.keep, h.keep_result, t.seq, t.uuid, t.source, h.state, t.unique_key, t.unique_for, t.reply_to,
            t.crashes + 1 >= t.max_crashes AS suspect
    ), over AS (
        SELECT * FROM stays UNION ALL SELECT * FROM goes
    ), freed AS (
        DELETE FROM unique_key AS k USING over AS o WHERE k.name = ANY (ARRAY(SELECT unique_key FROM over WHERE unique_key IS NOT NULL))
            AND o.unique_for IS NULL AND k.app = _app AND k.source = o.source AND k.name = o.unique_key AND k.uuid = o.uuid
    ), quiet AS (
        DELETE FROM note WHERE seq = ANY (ARRAY(SELECT seq FROM goes))
    ), retention AS (
        INSERT INTO retention (app, what, until, ended, seqs)
        SELECT _app, 'task', _at + keep, _at, array_agg(seq ORDER BY seq) FROM stays GROUP BY keep
        UNION ALL
        SELECT _app, 'result', _at + keep_result, _at, array_agg(seq) FROM stays WHERE keep_result < keep
        GROUP BY keep_result
    ), counted AS (
        INSERT INTO tally SELECT _app, source, coalesce(_was, 'running'), -count(*) FROM over GROUP BY source
        UNION ALL SELECT _app, source, state, count(*) FROM stays GROUP BY source, state
    ), logged AS (
        INSERT INTO change
        SELECT _app, _call, _at, state, array_agg(seq), NULL::json FROM stays GROUP BY state
        UNION ALL
        SELECT _app, _call, _at, state, NULL, json_agg(json_build_array(uuid, source)) FROM goes GROUP BY state
    )
    SELECT coalesce(array_agg(place), '{}'), coalesce(bool_or(o.suspect), false),
        ARRAY(SELECT s.source FROM (SELECT DISTINCT source FROM over OFFSET 0) AS s
            WHERE EXISTS (SELECT FROM limit_rule AS b WHERE b.app = _app AND b.name = s.source)),
        (SELECT json_agg(json_build_array(w.reply_to, w.uuids)) FROM (
            SELECT reply_to, array_agg(uuid) AS uuids FROM over WHERE reply_to IS NOT NULL GROUP BY reply_to
        ) AS w)
    INTO places, suspect, woken, ended FROM over AS o;
END $$;

-- name: requeue_outcome_v1
-- Retry, snooze, release: back; a lifted one is put down, but a chore goes back to those that must end. The task is
-- locked and held.
CREATE FUNCTION requeue_outcome_v1(
    _task task, _fence bigint, _session text, _at bigint, _chore boolean, _after bigint, _counted boolean, _error text,
    _now double precision
) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count_v1(_task.app, _task.source, CASE WHEN _chore THEN _task.state ELSE 'running' END, -1);
    _task.settled_fence := _fence;
    _task.session := _session;
    IF _chore AND _task.reason <> 'lifted' THEN
        RETURN enter_v1(_task, 'c', _now);
    END IF;
    IF _error <> '' THEN
        _task.error := decode(_error, 'base64');
        INSERT INTO note (seq, kind, name, data, fence, session) VALUES (
            _task.seq, 'error', _task.earlier + 1 + _task.retries + _task.crashes, _task.error, _fence, _session)
        ON CONFLICT DO NOTHING;
    END IF;
    IF _after IS NOT NULL AND NOT _chore THEN
        _task.started := _at;
    END IF;
    _task.reason := 'due';
    _task.retries := _task.retries + _counted::integer;
    RETURN requeue_v1(_task, _after, _now);
END $$;

-- name: release_capacity_v1
-- What it held is free: a limit may let another one in now, or itself again, by rank.
CREATE FUNCTION release_capacity_v1(_task task, _now double precision, _in_transaction boolean) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _woken text[] := '{}';
BEGIN
    IF _task.lane IS NOT NULL THEN
        IF _in_transaction THEN
            INSERT INTO lane_check VALUES (_task.app, _task.lane);
            _woken := ARRAY[_task.source];
        ELSE
            PERFORM lock_limits_v1(_task.app);
            _woken := admit_v1(_task.app, _task.lane, _now, _task.seq);
        END IF;
    END IF;
    IF EXISTS (SELECT FROM limit_rule WHERE app = _task.app AND name = _task.source) THEN
        _woken := _woken || _task.source;
    END IF;
    IF _task.crashes + 1 >= _task.max_crashes THEN
        _woken := _woken || ARRAY(SELECT DISTINCT source FROM place WHERE app = _task.app AND kind = 'r' AND suspect);
    END IF;
    RETURN _woken;
END $$;

-- name: settle_one_v1
-- One that has a lane, a key, tasks to add with it, is a chore, or comes back; in the order of the list.
CREATE FUNCTION settle_one_v1(
    _app integer, _outcomes json, _place bigint, _now double precision, _in_transaction boolean,
    OUT verdict text, OUT woken text[], OUT ended json
) LANGUAGE plpgsql AS $$
DECLARE
    _said record;
    _task task;
    _claim claim;
    _done record;
BEGIN
    woken := '{}';
    SELECT * INTO _said FROM json_to_record(_outcomes -> (_place - 1)::integer) AS o (
        uuid text, fence bigint, session text, state text, data text, after bigint, counted boolean, tasks json);
    SELECT * INTO _task FROM task WHERE app = _app AND uuid = _said.uuid FOR NO KEY UPDATE;
    SELECT * INTO _claim FROM claim WHERE fence = _said.fence AND app = _app AND session = _said.session
        AND _task.seq = ANY (seqs) AND _task.settled_fence < fence;
    IF NOT FOUND THEN
        verdict := CASE
            WHEN (_task.settled_fence, _task.session) = (_said.fence, _said.session) THEN 'repeat' ELSE 'lost' END;
        RETURN;
    END IF;
    verdict := 'ok';
    IF _said.state IS NULL THEN
        woken := requeue_outcome_v1(_task, _said.fence, _said.session, _claim.at, _claim.chore, _said.after, _said.counted,
            _said.data, _now);
    ELSE
        SELECT * INTO _done FROM finish_v1(
            _app, _outcomes, _now, _place, CASE WHEN _claim.chore THEN _task.state END);
        ended := _done.ended;
    END IF;
    woken := woken || release_capacity_v1(_task, _now, _in_transaction);
    IF _said.tasks IS NOT NULL THEN
        woken := woken || (SELECT a.sources FROM add_tasks_v1(_app, _said.tasks, _now, _in_transaction) AS a);
    END IF;
END $$;

-- name: settle_v1
CREATE FUNCTION settle_v1(
    _app integer, _outcomes json, _sessions text[], _now double precision, _in_transaction boolean,
    OUT verdicts text[], OUT woken text[], OUT ended json
) LANGUAGE plpgsql AS $$
DECLARE
    _plain record;
    _one record;
    _place bigint;
    _rest bigint[] := '{}';
BEGIN
    -- Nobody ends these sessions meanwhile.
    PERFORM FROM session WHERE app = _app AND name = ANY (_sessions) ORDER BY name FOR KEY SHARE;
    SELECT * INTO _plain FROM finish_v1(_app, _outcomes, _now, NULL, NULL);
    verdicts := array_fill('ok'::text, ARRAY[json_array_length(_outcomes)]);
    IF cardinality(_plain.places) < cardinality(verdicts) THEN
        _rest := ARRAY(SELECT n FROM generate_subscripts(verdicts, 1) AS n WHERE n <> ALL (_plain.places) ORDER BY n);
    END IF;
    woken := _plain.woken;
    ended := _plain.ended;
    IF _plain.suspect THEN
        woken := woken || ARRAY(SELECT DISTINCT source FROM place WHERE app = _app AND kind = 'r' AND suspect);
    END IF;
    IF _rest <> '{}' THEN  -- all that has to be waited for, before the gate
        PERFORM FROM task WHERE app = _app AND uuid = ANY (ARRAY(
            SELECT o.uuid FROM json_to_recordset(_outcomes) AS o (uuid text))) ORDER BY seq FOR NO KEY UPDATE;
    END IF;
    FOREACH _place IN ARRAY _rest LOOP
        SELECT * INTO _one FROM settle_one_v1(_app, _outcomes, _place, _now, _in_transaction);
        verdicts[_place] := _one.verdict;
        woken := woken || _one.woken;
        IF _one.ended IS NOT NULL THEN
            ended := (coalesce(ended, '[]')::jsonb || _one.ended::jsonb)::json;
        END IF;
    END LOOP;
END $$;

-- name: settle_in_v1
-- In a caller's transaction: nothing that others want is locked, and they are told when it commits.
CREATE FUNCTION settle_in_v1(_request json, OUT verdict text) LANGUAGE plpgsql AS $$
DECLARE
    _done record;
BEGIN
    SELECT * INTO _done FROM settle_v1(app_v1(_request ->> 'app'), _request -> 'outcomes',
        ARRAY[_request #>> '{outcomes,0,session}'], now_v1((_request ->> 'now')::double precision), true);
    verdict := _done.verdicts[1];
    IF verdict = 'ok' THEN
        PERFORM notify_v1(_request ->> 'app', json_build_object('sources', _done.woken, 'ended', _done.ended));
    END IF;
END $$;
