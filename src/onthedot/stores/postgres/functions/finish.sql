-- The ends of tasks, in a few statements for all outcomes of a call.

-- name: leased_outcomes_v1
-- The outcomes of a list whose lease holds, with what a requeue reads of their tasks. final: ends, otherwise requeues.
-- An outcome leaves out its session if that is the first of all, and what most ends have. The first query comes first in
-- any plan, and both are joined by hashing. The caller names the columns that it needs: others are not computed.
CREATE FUNCTION leased_outcomes_v1(_app integer, _outcomes json, _sessions text[], _final boolean) RETURNS TABLE (
    "position" bigint, fence bigint, session text, outcome text, keep bigint, data bytea, keep_result bigint,
    after bigint, counted boolean, reset_crashes boolean, wait json, task_ctid tid, seq bigint, at bigint,
    chore boolean, was text, due bigint, lane label, reason text, cancel_requested boolean, started bigint
) LANGUAGE sql STABLE AS $$
    SELECT o.ordinality, o.fence, o.session, o.outcome, o.keep, decode(o.data, 'base64'),
        CASE WHEN o.data <> '' AND o.keep_result IS NOT NULL THEN least(o.keep, o.keep_result) END,
        (o.requeue ->> 'after')::bigint, (o.requeue ->> 'counted')::boolean,
        (o.requeue ->> 'reset_crashes')::boolean, o.requeue -> 'wait', o.ctid, o.seq, c.at, c.chore,
        CASE WHEN c.chore THEN o.state ELSE 'running' END, o.due, o.lane, o.reason, o.cancel_requested, o.started
    FROM (
        SELECT g.ordinality, g.fence, coalesce(g.session, _sessions[1]) AS session,
            coalesce(g.state, 'succeeded') AS outcome, coalesce(g.keep, 604800000) AS keep,
            coalesce(g.data, '') AS data, g.keep_result, g.requeue, g.requeue IS NULL AS final, t.*
        FROM ROWS FROM (json_to_recordset(_outcomes) AS (
            uuid text, fence bigint, session text, state text, data text, keep bigint, keep_result bigint,
            requeue json)) WITH ORDINALITY AS g
        CROSS JOIN LATERAL (
            SELECT ctid, seq, settled_fence, state, due, lane, reason, cancel_requested, started
            FROM task WHERE task.uuid = g.uuid AND task.app = _app OFFSET 0) AS t
        OFFSET 0
    ) AS o JOIN (
        SELECT claim.fence, claim.session, claim.at, claim.chore, unnest(claim.seqs) AS seq FROM claim
        WHERE claim.app = _app AND claim.session = ANY (_sessions) OFFSET 0
    ) AS c ON c.seq = o.seq AND c.fence = o.fence AND c.session = o.session AND c.fence > o.settled_fence
    WHERE o.final = _final
$$;

-- name: raise_counters_v1
-- Append a delta for each counter that ends of these tasks increment: no counter is locked.
CREATE FUNCTION raise_counters_v1(_app integer, _seqs bigint[], _now double precision) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    _names text[];
BEGIN
    WITH raised AS (
        INSERT INTO counter_delta
        SELECT _app, stripe_v1(one.name), one.name, count(*), count(*) FILTER (WHERE one.state <> 'succeeded'),
            floor(_now)
        FROM (
            SELECT t.state, unnest(t.increments) AS name FROM unnest(_seqs) AS s (seq)
            CROSS JOIN LATERAL (SELECT state, increments FROM task WHERE seq = s.seq OFFSET 0) AS t
        ) AS one GROUP BY one.name RETURNING name
    )
    SELECT array_agg(name::text) INTO _names FROM raised;
    RETURN _names;
END $$;

-- name: finish_kept_v1
-- End the tasks of the outcomes that are ends and whose tasks are kept. keyed, linked: tasks that hold a unique key or
-- increment counters. unkept: the number of ends whose tasks are not kept.
CREATE FUNCTION finish_kept_v1(
    _app integer, _outcomes json, _sessions text[], _now double precision,
    OUT settled settlement, OUT keyed bigint[], OUT linked bigint[], OUT unkept bigint
) LANGUAGE plpgsql AS $$
DECLARE
    _at bigint := floor(_now);
    _call bigint := pg_current_xact_id()::text::bigint;
BEGIN
    WITH leased AS MATERIALIZED (
        SELECT position, fence, session, outcome, keep, data, keep_result, task_ctid, at, chore, was
        FROM leased_outcomes_v1(_app, _outcomes, _sessions, true)
    ), finished AS (
        UPDATE task AS t SET state = h.outcome, settled_fence = h.fence, session = h.session, ended = _at,
            started = CASE WHEN h.chore THEN t.started ELSE h.at END, keep_until = _at + h.keep,
            result = CASE h.outcome WHEN 'succeeded' THEN h.data END, result_until = _at + h.keep_result,
            error = CASE h.outcome WHEN 'succeeded' THEN t.error ELSE h.data END
        FROM leased AS h WHERE t.ctid = h.task_ctid AND t.settled_fence < h.fence AND h.keep > 0
        RETURNING h.position, h.outcome, h.keep, h.keep_result, h.was, h.chore, t.seq, t.uuid, t.source, t.lane,
            t.unique_key IS NOT NULL AND t.unique_for IS NULL AS keyed, t.increments IS NOT NULL AS linked, t.reply_to,
            is_suspect_v1(t) AS suspect
    ), retentions AS (
        INSERT INTO retention (app, what, until, ended, seqs, source, state)
        SELECT _app, 'task', _at + keep, _at, array_agg(seq ORDER BY seq), source, outcome FROM finished
        GROUP BY keep, source, outcome
        UNION ALL
        SELECT _app, 'result', _at + keep_result, _at, array_agg(seq), NULL, NULL FROM finished WHERE keep_result < keep
        GROUP BY keep_result
    ), counted AS (
        INSERT INTO tally SELECT _app, source, was, -count(*) FROM finished GROUP BY source, was
        UNION ALL SELECT _app, source, outcome, count(*) FROM finished GROUP BY source, outcome
    ), logged AS (
        INSERT INTO change (app, call, at, state, seqs, source, number)
        SELECT _app, _call, _at, outcome, array_agg(seq), source, count(*) FROM finished GROUP BY source, outcome
    )
    SELECT coalesce(array_agg(f.position), '{}'), coalesce(array_agg(DISTINCT f.source::text), '{}'),
        array_agg(DISTINCT f.lane::text) FILTER (WHERE f.lane IS NOT NULL), bool_or(f.suspect), bool_or(f.chore),
        count(*) < (SELECT count(*) FROM leased WHERE keep > 0), (
            SELECT json_agg(json_build_array(w.reply_to, w.uuids)) FROM (
                SELECT reply_to, array_agg(uuid) AS uuids FROM finished WHERE reply_to IS NOT NULL GROUP BY reply_to
            ) AS w),
        array_agg(f.seq) FILTER (WHERE f.keyed), array_agg(f.seq) FILTER (WHERE f.linked),
        (SELECT count(*) FROM leased WHERE keep <= 0)
    INTO settled.positions, settled.sources, settled.lanes, settled.suspect, settled.chore, settled.missed,
        settled.ended, keyed, linked, unkept
    FROM finished AS f;
END $$;

-- name: finish_unkept_v1
-- End the tasks of the outcomes that are ends and whose tasks are not kept: they are deleted.
CREATE FUNCTION finish_unkept_v1(_app integer, _outcomes json, _sessions text[], _now double precision)
RETURNS settlement LANGUAGE plpgsql AS $$
DECLARE
    _at bigint := floor(_now);
    _call bigint := pg_current_xact_id()::text::bigint;
    _settled settlement;
BEGIN
    WITH leased AS MATERIALIZED (
        SELECT position, fence, outcome, task_ctid, chore, was
        FROM leased_outcomes_v1(_app, _outcomes, _sessions, true) WHERE keep <= 0
    ), finished AS (
        DELETE FROM task AS t USING leased AS h WHERE t.ctid = h.task_ctid AND t.settled_fence < h.fence
        RETURNING h.position, h.outcome, h.was, h.chore, t.seq, t.uuid, t.source, t.lane, t.unique_key, t.unique_for,
            t.added, t.reply_to, t.increments, is_suspect_v1(t) AS suspect
    ), raised AS (
        INSERT INTO counter_delta
        SELECT _app, stripe_v1(name), name, count(*), count(*) FILTER (WHERE outcome <> 'succeeded'), _at
        FROM (SELECT outcome, unnest(increments) AS name FROM finished) AS one GROUP BY name RETURNING name
    ), freed AS (
        DELETE FROM unique_key WHERE ctid = ANY (ARRAY(
            SELECT k.ctid FROM finished AS f CROSS JOIN LATERAL (SELECT ctid FROM unique_key
                WHERE app = _app AND source = f.source AND name = f.unique_key AND uuid = f.uuid OFFSET 0) AS k
            WHERE f.unique_key IS NOT NULL AND f.unique_for IS NULL))
    ), remembered AS (  -- for 10 s after their adds (RECENT_MS): later nobody repeats them
        INSERT INTO recent_uuid SELECT uuid, _app, added + 10000 FROM finished WHERE added + 10000 > _at
        ON CONFLICT (uuid, app) DO UPDATE SET until = excluded.until
    ), counted AS (
        INSERT INTO tally SELECT _app, source, was, -count(*) FROM finished GROUP BY source, was
    ), logged AS (
        INSERT INTO change (app, call, at, state, deleted, source, number)
        SELECT _app, _call, _at, outcome, json_agg(uuid), source, count(*) FROM finished GROUP BY source, outcome
    )
    SELECT coalesce(array_agg(f.position), '{}'), coalesce(array_agg(DISTINCT f.source::text), '{}'),
        array_agg(DISTINCT f.lane::text) FILTER (WHERE f.lane IS NOT NULL), NULL, NULL, bool_or(f.suspect),
        bool_or(f.chore), count(*) < (SELECT count(*) FROM leased), (
            SELECT json_agg(json_build_array(w.reply_to, w.uuids)) FROM (
                SELECT reply_to, array_agg(uuid) AS uuids FROM finished WHERE reply_to IS NOT NULL GROUP BY reply_to
            ) AS w), (SELECT array_agg(name::text) FROM raised), NULL, array_agg(f.seq)
    INTO _settled FROM finished AS f;
    RETURN _settled;
END $$;

-- name: together_v1
-- Two settlements of one call as one.
CREATE FUNCTION together_v1(_one settlement, _other settlement) RETURNS settlement LANGUAGE plpgsql AS $$
BEGIN
    _one.positions := _one.positions || _other.positions;
    _one.sources := _one.sources || _other.sources;
    _one.lanes := nullif(ARRAY(SELECT DISTINCT lane FROM unnest(_one.lanes || _other.lanes) AS lane), '{}');
    _one.newcomers := _one.newcomers || _other.newcomers;
    _one.woken := _one.woken || _other.woken;
    _one.raised := _one.raised || _other.raised;
    _one.waiting := _one.waiting || _other.waiting;
    _one.dropped := _one.dropped || _other.dropped;
    _one.suspect := coalesce(_one.suspect, false) OR coalesce(_other.suspect, false);
    _one.chore := coalesce(_one.chore, false) OR coalesce(_other.chore, false);
    IF _other.ended IS NOT NULL THEN
        _one.ended := coalesce(_one.ended, '[]')::jsonb || _other.ended::jsonb;
    END IF;
    RETURN _one;
END $$;

-- name: finish_v1
-- End the tasks of the outcomes that are ends. Rare properties take a statement of their own, so that other tasks do
-- not pay for them: keys, links, and ends that are not kept.
CREATE FUNCTION finish_v1(_app integer, _outcomes json, _sessions text[], _now double precision)
RETURNS settlement LANGUAGE plpgsql AS $$
DECLARE
    _kept record;
    _settled settlement;
BEGIN
    SELECT * INTO _kept FROM finish_kept_v1(_app, _outcomes, _sessions, _now);
    _settled := _kept.settled;
    IF _kept.keyed IS NOT NULL THEN
        DELETE FROM unique_key WHERE ctid = ANY (ARRAY(
            SELECT k.ctid FROM unnest(_kept.keyed) AS f (seq)
            CROSS JOIN LATERAL (SELECT source, unique_key, uuid FROM task WHERE seq = f.seq OFFSET 0) AS t
            CROSS JOIN LATERAL (SELECT ctid FROM unique_key
                WHERE app = _app AND source = t.source AND name = t.unique_key AND uuid = t.uuid OFFSET 0) AS k));
    END IF;
    IF _kept.linked IS NOT NULL THEN
        _settled.raised := raise_counters_v1(_app, _kept.linked, _now);
    END IF;
    IF _kept.unkept > 0 THEN
        _settled := together_v1(_settled, finish_unkept_v1(_app, _outcomes, _sessions, _now));
    END IF;
    RETURN _settled;
END $$;
