-- settle: the only end. The outcomes of a call are settled in a few statements, whatever their kind; then lanes admit,
-- then the new tasks of the outcomes are added. Outcomes of which one depends on another are settled one by one.

-- name: requeue_outcomes_v1
-- Requeue the tasks, which are locked, of the outcomes that are no ends: retry, snooze, release or suspension. A chore
-- stays one; a lifted task returns to its place, unless it is suspended. A task that must end becomes a chore.
CREATE FUNCTION requeue_outcomes_v1(_app integer, _outcomes json, _sessions text[], _now double precision)
RETURNS settlement LANGUAGE plpgsql AS $$
DECLARE
    _call bigint := pg_current_xact_id()::text::bigint;
    _settled settlement;
BEGIN
    WITH leased AS MATERIALIZED (
        SELECT *, chore AND (reason <> 'lifted' OR wait IS NOT NULL) AS stays,
            CASE WHEN chore AND reason <> 'lifted' OR after IS NULL THEN due ELSE due_v1(after, _now) END AS next_due,
            (coalesce(reset_crashes, false) OR wait IS NOT NULL)
                AND NOT (chore AND (reason <> 'lifted' OR wait IS NOT NULL)) AS resets
        FROM leased_outcomes_v1(_app, _outcomes, _sessions, false)
    ), decided AS MATERIALIZED (
        SELECT *, next_place_v1(CASE WHEN stays THEN reason ELSE 'due' END, cancel_requested, next_due, lane, _now,
            true, wait IS NOT NULL) AS kind
        FROM leased
    ), saved AS (
        UPDATE task AS t SET settled_fence = d.fence, session = d.session,
            due = CASE WHEN d.kind = 'c' THEN t.due ELSE d.next_due END,
            state = CASE WHEN d.stays THEN t.state WHEN d.kind = 'c' THEN 'ready' END,
            reason = CASE WHEN d.stays AND d.reason <> 'lifted' THEN t.reason WHEN t.cancel_requested THEN 'cancel'
                WHEN d.stays THEN t.reason ELSE 'due' END,
            retries = t.retries + (d.counted AND NOT d.stays)::integer,
            crashes = CASE WHEN d.resets THEN 0 ELSE t.crashes END,
            earlier = t.earlier + CASE WHEN d.resets THEN t.crashes ELSE 0 END,
            wait = CASE WHEN d.kind = 'w' THEN d.wait END,
            wait_until = CASE WHEN d.kind = 'w' THEN wait_deadline_v1(d.wait, _now) END,
            started = CASE WHEN d.chore OR d.after IS NULL AND d.wait IS NULL THEN t.started ELSE d.at END,
            error = CASE WHEN d.data <> '' AND NOT d.stays THEN d.data ELSE t.error END
        FROM decided AS d WHERE t.ctid = d.task_ctid
        RETURNING d.position, d.was, d.chore, d.kind, d.stays, d.data, d.fence, d.session, d.counted,
            coalesce(state_v1(d.kind), t.state) AS state, expiry_v1(t) AS expires_at, is_suspect_v1(t) AS suspect,
            t.earlier + t.retries + t.crashes + (NOT d.counted)::integer AS attempt, t.seq, t.source, t.lane,
            t.due - t.boost AS rank, t.cost, alarm_v1(t, d.kind) AS alarm
    ), placed AS (
        INSERT INTO place
        SELECT seq, _app, kind, source, suspect, CASE WHEN kind = 'c' THEN nextval('chore') ELSE rank END,
            CASE WHEN kind <> 'w' THEN lane END, cost, expires_at, alarm
        FROM saved ORDER BY position
    ), noted AS (
        INSERT INTO note (seq, kind, name, data, fence, session)
        SELECT seq, 'error', attempt, data, fence, session FROM saved WHERE data <> '' AND NOT stays
        ORDER BY position ON CONFLICT DO NOTHING
    ), counted AS (
        INSERT INTO tally SELECT _app, source, was, -count(*) FROM saved GROUP BY source, was
        UNION ALL SELECT _app, source, state, count(*) FROM saved GROUP BY source, state
    ), logged AS (
        INSERT INTO change (app, call, at, state, seqs, source, number)
        SELECT _app, _call, floor(_now), state, array_agg(seq ORDER BY position), source, count(*) FROM saved
        GROUP BY source, state
    )
    SELECT coalesce(array_agg(position), '{}'), coalesce(array_agg(DISTINCT source::text), '{}'),
        array_agg(DISTINCT lane::text) FILTER (WHERE lane IS NOT NULL),
        array_agg(seq ORDER BY rank, seq) FILTER (WHERE kind = 'p'),
        array_agg(DISTINCT source::text) FILTER (WHERE kind = 'r'), bool_or(suspect), bool_or(chore), false, NULL,
        NULL, array_agg(seq ORDER BY seq) FILTER (WHERE kind = 'w'), NULL
    INTO _settled FROM saved;
    RETURN _settled;
END $$;

-- name: verdicts_v1
-- The verdicts of outcomes, of which those at `positions` were settled.
CREATE FUNCTION verdicts_v1(_app integer, _outcomes json, _sessions text[], _positions bigint[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT CASE
            WHEN o.ordinality = ANY (_positions) THEN 'ok'
            WHEN (SELECT (t.settled_fence, t.session) = (o.fence, coalesce(o.session, _sessions[1]))
                FROM task AS t WHERE t.app = _app AND t.uuid = o.uuid) THEN 'repeat'
            ELSE 'lost' END
        FROM ROWS FROM (json_to_recordset(_outcomes) AS (uuid text, fence bigint, session text))
            WITH ORDINALITY AS o ORDER BY o.ordinality);
END $$;

-- name: release_capacity_v1
-- Admit the next tasks after others were settled, perhaps these themselves, by rank. Return the sources that may start.
CREATE FUNCTION release_capacity_v1(_app integer, _settled settlement, _now double precision, _in_transaction boolean)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _woken text[] := coalesce(_settled.woken, '{}') || ARRAY(SELECT s.source FROM unnest(_settled.sources) AS s (source)
        WHERE EXISTS (SELECT FROM limit_rule AS r WHERE r.app = _app AND r.name = s.source));
BEGIN
    IF _settled.suspect THEN
        _woken := _woken || ARRAY(SELECT DISTINCT source FROM place WHERE app = _app AND kind = 'r' AND suspect);
    END IF;
    IF _settled.lanes IS NULL THEN
        RETURN _woken;
    END IF;
    IF _in_transaction THEN
        INSERT INTO lane_check SELECT _app, unnest(_settled.lanes);
        RETURN _woken || _settled.sources;
    END IF;
    PERFORM lock_limits_v1(_app);
    RETURN _woken || admit_v1(_app, _settled.lanes, _now, _settled.newcomers);
END $$;

-- name: drop_claims_of_chores_v1
-- Delete the claims of which the last chore was settled. A client that cancels sends no claim request, whose turn would
-- delete them.
CREATE FUNCTION drop_claims_of_chores_v1(_app integer, _outcomes json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM claim AS c WHERE c.app = _app AND c.chore
        AND c.fence = ANY (ARRAY(SELECT DISTINCT o.fence FROM json_to_recordset(_outcomes) AS o (fence bigint)))
        AND NOT EXISTS (SELECT FROM task AS t WHERE t.seq = ANY (c.seqs) AND t.settled_fence < c.fence OFFSET 0);
END $$;

-- name: ended_v1
-- The sessions that hear of ended tasks: those that the tasks name, and subscribers, for the last time. In the caller's
-- transaction no subscription is deleted, since its row would stay locked.
CREATE FUNCTION ended_v1(_app integer, _outcomes json, _settled settlement, _in_transaction boolean) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    _uuids text[];
    _subscribers json;
BEGIN
    _uuids := ARRAY(SELECT o.uuid FROM ROWS FROM (json_to_recordset(_outcomes) AS (uuid text, requeue json))
        WITH ORDINALITY AS o WHERE o.requeue IS NULL AND o.ordinality = ANY (_settled.positions));
    _subscribers := subscribers_v1(_app, _uuids);
    IF _subscribers IS NULL THEN
        RETURN _settled.ended;
    END IF;
    IF NOT _in_transaction THEN
        PERFORM end_subscriptions_v1(_app, _uuids);
    END IF;
    RETURN coalesce(_settled.ended, '[]')::jsonb || _subscribers::jsonb;
END $$;

-- name: settle_together_v1
-- Settle outcomes that do not depend on each other; one verdict each. number: of outcomes. tasks, events: their new tasks
-- and events, each with the position of its outcome, or null; in_parts: see `add_tasks_v1`. raised: counters that were
-- incremented, or that tasks wait for now. published: there are new events.
CREATE FUNCTION settle_together_v1(
    _app integer, _outcomes json, _number integer, _tasks json, _in_parts boolean, _events json, _sessions text[],
    _now double precision, _in_transaction boolean, OUT verdicts text[], OUT woken text[], OUT ended json,
    OUT raised text[], OUT published boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _settled settlement := finish_v1(_app, _outcomes, _sessions, _now);
BEGIN
    verdicts := array_fill('ok'::text, ARRAY[_number]);
    IF cardinality(_settled.positions) < _number THEN
        -- Everything that has to be waited for, before the limits lock.
        PERFORM FROM task WHERE app = _app AND uuid = ANY (ARRAY(
            SELECT o.uuid FROM json_to_recordset(_outcomes) AS o (uuid text))) ORDER BY seq FOR NO KEY UPDATE;
        IF _settled.missed THEN
            _settled := together_v1(_settled, finish_v1(_app, _outcomes, _sessions, _now));
        END IF;
        _settled := together_v1(_settled, requeue_outcomes_v1(_app, _outcomes, _sessions, _now));
        verdicts := verdicts_v1(_app, _outcomes, _sessions, _settled.positions);
    END IF;
    ended := _settled.ended;
    IF EXISTS (SELECT FROM subscription WHERE app = _app) THEN
        ended := ended_v1(_app, _outcomes, _settled, _in_transaction);
    END IF;
    raised := _settled.raised;
    IF _settled.dropped IS NOT NULL THEN
        DELETE FROM note WHERE seq = ANY (_settled.dropped);
    END IF;
    IF _settled.waiting IS NOT NULL THEN
        raised := raised || begin_waits_v1(_app, _settled.waiting, _now);
    END IF;
    IF _events IS NOT NULL THEN
        published := nullif(true = ANY (insert_events_v1(_app, _events,
            CASE WHEN cardinality(_settled.positions) < _number THEN _settled.positions END)), false);
    END IF;
    woken := release_capacity_v1(_app, _settled, _now, _in_transaction);
    IF _settled.chore THEN
        PERFORM drop_claims_of_chores_v1(_app, _outcomes);
    END IF;
    IF _tasks IS NOT NULL AND cardinality(_settled.positions) < _number THEN
        _tasks := (SELECT json_agg(t.value ORDER BY t.ordinality) FROM json_array_elements(_tasks) WITH ORDINALITY AS t
            WHERE (t.value ->> 'outcome')::bigint = ANY (_settled.positions));
    END IF;
    IF _tasks IS NOT NULL THEN
        woken := woken || (SELECT a.sources
            FROM add_tasks_v1(_app, _tasks, json_array_length(_tasks), _in_parts, _now, _in_transaction) AS a);
    END IF;
END $$;

-- name: depends_v1
-- Whether an outcome depends on an earlier one: a new task finds the holder of its unique key leased; or a lane with a
-- rate admits a task that was parked again before it considers the next one.
CREATE FUNCTION depends_v1(_app integer, _outcomes json, _tasks json) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM json_to_recordset(_tasks) AS n (source text, unique_key text, outcome bigint)
        CROSS JOIN LATERAL (SELECT k.uuid FROM unique_key AS k
            WHERE k.app = _app AND k.source = n.source AND k.name = n.unique_key OFFSET 0) AS holder
        JOIN ROWS FROM (json_to_recordset(_outcomes) AS (uuid text)) WITH ORDINALITY AS o
            ON o.uuid = holder.uuid AND o.ordinality > n.outcome
    ) OR EXISTS (
        SELECT FROM json_to_recordset(_outcomes) AS o (uuid text, requeue json)
        CROSS JOIN LATERAL (SELECT lane, reason FROM task WHERE uuid = o.uuid AND app = _app OFFSET 0) AS t
        WHERE t.lane IS NOT NULL GROUP BY t.lane
        HAVING count(*) > 1 AND bool_or(o.requeue IS NOT NULL AND coalesce((o.requeue ->> 'after')::bigint, 0) <= 0) AND (
            bool_or(t.reason = 'lifted') OR (SELECT (effective_limit_v1(_app, t.lane)).rate) IS NOT NULL));
END $$;

-- name: settle_v1
-- Settle outcomes; one verdict each. order: "any", "given", or "check" if the tasks decide.
CREATE FUNCTION settle_v1(
    _app integer, _outcomes json, _number integer, _tasks json, _in_parts boolean, _events json, _sessions text[],
    _order text, _now double precision, _in_transaction boolean, OUT verdicts text[], OUT woken text[], OUT ended json,
    OUT raised text[], OUT published boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _next record;
    _one record;
BEGIN
    -- The lock keeps these sessions from being reaped meanwhile.
    PERFORM FROM session WHERE app = _app AND name = ANY (_sessions) ORDER BY name FOR KEY SHARE;
    IF _order = 'any' OR _order = 'check' AND NOT depends_v1(_app, _outcomes, _tasks) THEN
        SELECT t.* INTO verdicts, woken, ended, raised, published FROM settle_together_v1(
            _app, _outcomes, _number, _tasks, _in_parts, _events, _sessions, _now, _in_transaction) AS t;
        RETURN;
    END IF;
    woken := '{}';
    FOR _next IN SELECT o.value, o.ordinality FROM json_array_elements(_outcomes) WITH ORDINALITY AS o
        ORDER BY o.ordinality
    LOOP
        SELECT * INTO _one FROM settle_together_v1(_app, json_build_array(_next.value), 1, (
            SELECT json_agg(t.value ORDER BY t.ordinality) FROM json_array_elements(_tasks) WITH ORDINALITY AS t
            WHERE (t.value ->> 'outcome')::bigint = _next.ordinality), _in_parts, (
            SELECT json_agg(e.value ORDER BY e.ordinality) FROM json_array_elements(_events) WITH ORDINALITY AS e
            WHERE (e.value ->> 'outcome')::bigint = _next.ordinality), _sessions, _now, _in_transaction);
        verdicts := verdicts || _one.verdicts;
        woken := woken || _one.woken;
        raised := raised || _one.raised;
        published := coalesce(_one.published, published);
        IF _one.ended IS NOT NULL THEN
            ended := coalesce(ended, '[]')::jsonb || _one.ended::jsonb;
        END IF;
    END LOOP;
END $$;

-- name: settle_in_v1
-- {"app", "now", "session", "outcomes": [one], "tasks": of it, "in_parts", "events": of it} → its verdict. In the caller's
-- transaction: it takes no lock that others need, and notifies at the commit. Others may raise the same counters before
-- that, so a hint is sent for each counter that a task waits for, whatever its value.
CREATE FUNCTION settle_in_v1(_request json, OUT verdict text) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _settled record;
BEGIN
    SELECT * INTO _settled FROM settle_v1(
        _app, _request -> 'outcomes', 1, nullif(_request ->> 'tasks', '[]')::json,
        (_request ->> 'in_parts')::boolean, nullif(_request ->> 'events', '[]')::json, ARRAY[_request ->> 'session'],
        'any', _now, true);
    verdict := _settled.verdicts[1];
    IF verdict = 'ok' THEN
        PERFORM notify_v1(_request ->> 'app', json_strip_nulls(
            json_build_object('sources', _settled.woken, 'ended', _settled.ended, 'events', _settled.published,
                'recheck', nullif(EXISTS (SELECT FROM unnest(_settled.raised) AS n (name) WHERE EXISTS (
                    SELECT FROM waiter AS w WHERE w.app = _app AND w.name = n.name OFFSET 0)), false))));
    END IF;
END $$;
