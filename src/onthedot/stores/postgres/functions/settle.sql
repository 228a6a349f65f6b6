-- settle: the only end. Plain ends are written in one statement, other outcomes one by one, in order.

-- name: final_outcomes_v1
-- The outcomes of a list that end their tasks; without `single`, only those without effects that are not repeated.
CREATE FUNCTION final_outcomes_v1(_outcomes json, _single boolean) RETURNS TABLE (
    "position" bigint, uuid text, fence bigint, session text, state text, keep bigint, data bytea, keep_result bigint
) LANGUAGE sql STABLE AS $$
    SELECT o.ordinality, o.uuid, o.fence, o.session, o.state, o.keep, decode(o.data, 'base64'),
        CASE WHEN o.data <> '' AND o.keep_result IS NOT NULL THEN least(o.keep, o.keep_result) END
    FROM ROWS FROM (json_to_recordset(_outcomes) AS (
        uuid text, fence bigint, session text, state text, data text, keep bigint, keep_result bigint, tasks json,
        repeated boolean)) WITH ORDINALITY AS o
    WHERE o.state IS NOT NULL AND (_single OR o.repeated IS NULL AND o.tasks IS NULL)
$$;

-- name: finish_v1
-- End tasks in one statement: all that have no lane, key or effects and are no chores; single: the one of the list, whose
-- state was `was`. Returns the positions in the list that it ended, their sources, and the waiting sessions.
CREATE FUNCTION finish_v1(
    _app integer, _outcomes json, _now double precision, _single boolean, _was text,
    OUT positions bigint[], OUT sources text[], OUT suspect boolean, OUT ended json
) LANGUAGE plpgsql AS $$
DECLARE
    _at bigint := floor(_now);
    _call bigint := pg_current_xact_id()::text::bigint;
BEGIN
    WITH final AS (
        SELECT * FROM final_outcomes_v1(_outcomes, _single)
    ), leased AS MATERIALIZED (
        SELECT f.*, t.ctid AS task_ctid, c.at, c.chore FROM final AS f
        CROSS JOIN LATERAL (SELECT ctid, seq, settled_fence, lane, unique_key FROM task
            WHERE uuid = f.uuid AND app = _app OFFSET 0) AS t
        JOIN claim AS c ON c.app = _app AND c.session = ANY (ARRAY(SELECT DISTINCT session FROM final))
            AND c.session = f.session AND c.fence = f.fence AND t.seq = ANY (c.seqs)
        WHERE t.settled_fence < f.fence
            AND (_single OR NOT c.chore AND t.lane IS NULL AND t.unique_key IS NULL)
    ), retained AS (
        UPDATE task AS t SET state = h.state, settled_fence = h.fence, session = h.session, ended = _at,
            started = CASE WHEN h.chore THEN t.started ELSE h.at END, keep_until = _at + h.keep,
            result = CASE h.state WHEN 'succeeded' THEN h.data END, result_until = _at + h.keep_result,
            error = CASE h.state WHEN 'succeeded' THEN t.error ELSE h.data END
        FROM leased AS h WHERE t.ctid = h.task_ctid AND t.settled_fence < h.fence AND h.keep > 0
        RETURNING h.position, h.keep, h.keep_result, t.seq, t.uuid, t.source, t.state, t.added, t.reply_to,
            is_suspect_v1(t) AS suspect
    ), deleted AS (
        DELETE FROM task AS t USING leased AS h
        WHERE t.ctid = h.task_ctid AND t.settled_fence < h.fence AND h.keep <= 0
        RETURNING h.position, h.keep, h.keep_result, t.seq, t.uuid, t.source, h.state, t.added, t.reply_to,
            is_suspect_v1(t) AS suspect
    ), finished AS (
        SELECT * FROM retained UNION ALL SELECT * FROM deleted
    ), remembered AS (  -- for 10 s after their adds (RECENT_MS): later nobody repeats them
        INSERT INTO recent_uuid SELECT uuid, _app, added + 10000 FROM deleted WHERE added + 10000 > _at
        ON CONFLICT (uuid, app) DO UPDATE SET until = excluded.until
    ), deleted_notes AS (
        DELETE FROM note WHERE seq = ANY (ARRAY(SELECT seq FROM deleted))
    ), retentions AS (
        INSERT INTO retention (app, what, until, ended, seqs)
        SELECT _app, 'task', _at + keep, _at, array_agg(seq ORDER BY seq) FROM retained GROUP BY keep
        UNION ALL
        SELECT _app, 'result', _at + keep_result, _at, array_agg(seq) FROM retained WHERE keep_result < keep
        GROUP BY keep_result
    ), counted AS (
        INSERT INTO tally SELECT _app, source, coalesce(_was, 'running'), -count(*) FROM finished GROUP BY source
        UNION ALL SELECT _app, source, state, count(*) FROM retained GROUP BY source, state
    ), logged AS (
        INSERT INTO change
        SELECT _app, _call, _at, state, array_agg(seq), NULL::json FROM retained GROUP BY state
        UNION ALL
        SELECT _app, _call, _at, state, NULL, json_agg(json_build_array(uuid, source)) FROM deleted GROUP BY state
    )
    SELECT coalesce(array_agg(position), '{}'), coalesce(array_agg(DISTINCT f.source), '{}'),
        coalesce(bool_or(f.suspect), false), (SELECT json_agg(json_build_array(w.reply_to, w.uuids)) FROM (
            SELECT reply_to, array_agg(uuid) AS uuids FROM finished WHERE reply_to IS NOT NULL GROUP BY reply_to) AS w)
    INTO positions, sources, suspect, ended FROM finished AS f;
END $$;

-- name: requeue_outcome_v1
-- Requeue a locked, leased task: retry, snooze or release. A lifted task returns to its place; a chore stays one.
CREATE FUNCTION requeue_outcome_v1(
    _task task, _fence bigint, _session text, _at bigint, _chore boolean, _after bigint, _counted boolean, _error text,
    _now double precision
) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count_v1(_task.app, _task.source, CASE WHEN _chore THEN _task.state ELSE 'running' END, -1);
    _task.settled_fence := _fence;
    _task.session := _session;
    IF _chore AND _task.reason <> 'lifted' THEN
        PERFORM queue_chore_v1(_task, _now);
        RETURN '{}';
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
-- Admit the next tasks after one was settled; it may be that task itself, by rank.
CREATE FUNCTION release_capacity_v1(_task task, _now double precision, _in_transaction boolean) RETURNS text[]
LANGUAGE plpgsql AS $$
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
    IF is_suspect_v1(_task) THEN
        _woken := _woken || ARRAY(SELECT DISTINCT source FROM place WHERE app = _task.app AND kind = 'r' AND suspect);
    END IF;
    RETURN _woken;
END $$;

-- name: settle_one_v1
-- Settle one outcome: of a task with a lane or key, of a chore, with effects, or a requeue.
CREATE FUNCTION settle_one_v1(
    _app integer, _given json, _now double precision, _in_transaction boolean,
    OUT verdict text, OUT chore boolean, OUT woken text[], OUT ended json
) LANGUAGE plpgsql AS $$
DECLARE
    _outcome record;
    _task task;
    _claim claim;
    _finished record;
BEGIN
    woken := '{}';
    SELECT * INTO _outcome FROM json_to_record(_given) AS o (
        uuid text, fence bigint, session text, state text, data text, after bigint, counted boolean, tasks json);
    SELECT * INTO _task FROM task WHERE app = _app AND uuid = _outcome.uuid FOR NO KEY UPDATE;
    SELECT * INTO _claim FROM claim WHERE fence = _outcome.fence AND app = _app AND session = _outcome.session
        AND _task.seq = ANY (seqs) AND _task.settled_fence < fence;
    IF NOT FOUND THEN
        verdict := CASE WHEN (_task.settled_fence, _task.session) = (_outcome.fence, _outcome.session)
            THEN 'repeat' ELSE 'lost' END;
        RETURN;
    END IF;
    verdict := 'ok';
    chore := _claim.chore;
    IF _outcome.state IS NULL THEN
        woken := requeue_outcome_v1(_task, _outcome.fence, _outcome.session, _claim.at, _claim.chore, _outcome.after,
            _outcome.counted, _outcome.data, _now);
    ELSE
        SELECT * INTO _finished FROM finish_v1(
            _app, json_build_array(_given), _now, true, CASE WHEN _claim.chore THEN _task.state END);
        ended := _finished.ended;
        IF _task.unique_key IS NOT NULL AND _task.unique_for IS NULL THEN
            DELETE FROM unique_key WHERE app = _app AND source = _task.source AND name = _task.unique_key
                AND uuid = _task.uuid;
        END IF;
    END IF;
    woken := woken || release_capacity_v1(_task, _now, _in_transaction);
    IF _outcome.tasks IS NOT NULL THEN
        woken := woken || (SELECT a.sources FROM add_tasks_v1(_app, _outcome.tasks, _now, _in_transaction) AS a);
    END IF;
END $$;

-- name: drop_claims_of_chores_v1
-- Delete the claims of which the last chore was settled. A client that cancels sends no claim request, whose turn would
-- delete them.
CREATE FUNCTION drop_claims_of_chores_v1(_app integer, _outcomes json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM claim AS c WHERE c.app = _app AND c.chore
        AND c.fence = ANY (ARRAY(SELECT o.fence FROM json_to_recordset(_outcomes) AS o (fence bigint)))
        AND NOT EXISTS (SELECT FROM task AS t WHERE t.seq = ANY (c.seqs) AND t.settled_fence < c.fence OFFSET 0);
END $$;

-- name: settle_v1
-- Settle outcomes; one verdict each.
CREATE FUNCTION settle_v1(
    _app integer, _outcomes json, _sessions text[], _now double precision, _in_transaction boolean,
    OUT verdicts text[], OUT woken text[], OUT ended json
) LANGUAGE plpgsql AS $$
DECLARE
    _plain record;
    _next record;
    _settled record;
    _others bigint[] := '{}';
    _chores boolean := false;
BEGIN
    -- The lock keeps these sessions from being reaped meanwhile.
    PERFORM FROM session WHERE app = _app AND name = ANY (_sessions) ORDER BY name FOR KEY SHARE;
    SELECT * INTO _plain FROM finish_v1(_app, _outcomes, _now, false, NULL);
    verdicts := array_fill('ok'::text, ARRAY[json_array_length(_outcomes)]);
    IF cardinality(_plain.positions) < cardinality(verdicts) THEN
        _others := ARRAY(
            SELECT n FROM generate_subscripts(verdicts, 1) AS n WHERE n <> ALL (_plain.positions) ORDER BY n);
    END IF;
    woken := ARRAY(SELECT s.source FROM unnest(_plain.sources) AS s (source)
        WHERE EXISTS (SELECT FROM limit_rule AS r WHERE r.app = _app AND r.name = s.source));
    ended := _plain.ended;
    IF _plain.suspect THEN
        woken := woken || ARRAY(SELECT DISTINCT source FROM place WHERE app = _app AND kind = 'r' AND suspect);
    END IF;
    IF _others = '{}' THEN
        RETURN;
    END IF;
    -- Everything that has to be waited for, before the limits lock.
    PERFORM FROM task WHERE app = _app AND uuid = ANY (ARRAY(
        SELECT o.uuid FROM json_to_recordset(_outcomes) AS o (uuid text))) ORDER BY seq FOR NO KEY UPDATE;
    FOR _next IN SELECT o.value, o.nth FROM json_array_elements(_outcomes) WITH ORDINALITY AS o (value, nth)
        WHERE o.nth = ANY (_others) ORDER BY o.nth
    LOOP
        SELECT * INTO _settled FROM settle_one_v1(_app, _next.value, _now, _in_transaction);
        verdicts[_next.nth] := _settled.verdict;
        _chores := _chores OR coalesce(_settled.chore, false);
        woken := woken || _settled.woken;
        IF _settled.ended IS NOT NULL THEN
            ended := (coalesce(ended, '[]')::jsonb || _settled.ended::jsonb)::json;
        END IF;
    END LOOP;
    IF _chores THEN
        PERFORM drop_claims_of_chores_v1(_app, _outcomes);
    END IF;
END $$;

-- name: settle_in_v1
-- {"app", "now", "outcomes": [one]} → its verdict. In the caller's transaction: it takes no lock that others need, and
-- notifies at the commit.
CREATE FUNCTION settle_in_v1(_request json, OUT verdict text) LANGUAGE plpgsql AS $$
DECLARE
    _settled record;
BEGIN
    SELECT * INTO _settled FROM settle_v1(app_v1(_request ->> 'app'), _request -> 'outcomes',
        ARRAY[_request #>> '{outcomes,0,session}'], now_v1((_request ->> 'now')::double precision), true);
    verdict := _settled.verdicts[1];
    IF verdict = 'ok' THEN
        PERFORM notify_v1(_request ->> 'app', json_strip_nulls(
            json_build_object('sources', _settled.woken, 'ended', _settled.ended)));
    END IF;
END $$;
