-- Waits: a waiting task has a place of the kind w and a row in `waiter` for each of its counters, as long as it waits.

-- name: awaited_v1
-- The counters of a wait, in their order.
CREATE FUNCTION awaited_v1(_wait json) RETURNS TABLE (name text, value bigint, nth bigint) LANGUAGE sql IMMUTABLE AS $$
    SELECT c.value ->> 0, (c.value ->> 1)::bigint, c.ordinality
    FROM json_array_elements(_wait -> 'counters') WITH ORDINALITY AS c
$$;

-- name: condition_v1
-- The wait that a text describes: a wait, or links with one. The tasks of a group have the same text, so that only one
-- of them need be read.
CREATE FUNCTION condition_v1(_text text) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(_text::json -> 'waits', _text::json)
$$;

-- name: wait_deadline_v1
-- When a wait that begins now is over in any case.
CREATE FUNCTION wait_deadline_v1(_wait json, _now double precision) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ceil(_now + (_wait ->> 'timeout')::bigint)::bigint
$$;

-- name: begin_waits_v1
-- Write the waiters of tasks that have entered their places as waiting. Their counters become dirty, because they may
-- have their values already. Return the names of the counters.
CREATE FUNCTION begin_waits_v1(_app integer, _seqs bigint[], _now double precision) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    _names text[];
BEGIN
    WITH waiting AS MATERIALIZED (
        SELECT s.seq, t.wait FROM unnest(_seqs) AS s (seq) CROSS JOIN LATERAL (
            SELECT coalesce(wait, links)::text AS wait FROM task WHERE seq = s.seq OFFSET 0) AS t
    ), awaited AS MATERIALIZED (
        SELECT DISTINCT w.wait, a.name, a.value FROM (SELECT DISTINCT wait FROM waiting) AS w
        CROSS JOIN LATERAL awaited_v1(condition_v1(w.wait)) AS a
    ), begun AS (
        INSERT INTO waiter SELECT _app, a.name, a.value, w.seq FROM waiting AS w JOIN awaited AS a ON a.wait = w.wait
        RETURNING name
    ), dirty AS (
        INSERT INTO counter_delta SELECT DISTINCT _app, stripe_v1(name), name, 0, 0, floor(_now)::bigint FROM begun
        RETURNING name
    )
    SELECT array_agg(name::text) INTO _names FROM dirty;
    RETURN _names;
END $$;

-- name: judge_waits_v1
-- Lock waiting tasks that have reached a counter, and decide by the first that they have reached what becomes of them:
-- due, or a chore if the failures are not as they require. In the order of seq; tasks that others have locked are left
-- out.
CREATE FUNCTION judge_waits_v1(
    _app integer, _reached bigint[], _now double precision, OUT seqs bigint[], OUT reasons text[], OUT dues bigint[]
) LANGUAGE plpgsql AS $$
BEGIN
    WITH waiting AS MATERIALIZED (
        SELECT t.seq, t.due, coalesce(t.wait, t.links)::text AS wait FROM unnest(_reached) AS r (seq)
        CROSS JOIN LATERAL (SELECT seq FROM place WHERE seq = r.seq AND kind = 'w' FOR UPDATE SKIP LOCKED) AS p
        CROSS JOIN LATERAL (SELECT seq, due, wait, links FROM task WHERE seq = p.seq
            FOR NO KEY UPDATE SKIP LOCKED) AS t
    ), judged AS MATERIALIZED (
        SELECT w.wait, due_v1(coalesce((w.condition ->> 'delay')::double precision, 0), _now) AS earliest,
            CASE w.condition ->> 'requires' WHEN 'success' THEN first.failed = 0 WHEN 'failure' THEN first.failed > 0
                ELSE true END AS is_met
        FROM (
            SELECT one.wait, condition_v1(one.wait) AS condition FROM (SELECT DISTINCT wait FROM waiting) AS one OFFSET 0
        ) AS w
        CROSS JOIN LATERAL (
            SELECT coalesce(c.failed, 0) AS failed FROM awaited_v1(w.condition) AS a
            LEFT JOIN LATERAL (SELECT value, failed FROM counter WHERE app = _app AND name = a.name OFFSET 0) AS c
                ON true
            WHERE coalesce(c.value, 0) >= a.value ORDER BY a.nth LIMIT 1
        ) AS first
    )
    SELECT coalesce(array_agg(w.seq ORDER BY w.seq), '{}'),
        array_agg(CASE WHEN j.is_met THEN 'due' ELSE 'upstream' END ORDER BY w.seq),
        array_agg(CASE WHEN j.is_met THEN greatest(w.due, j.earliest) ELSE w.due END ORDER BY w.seq)
    INTO seqs, reasons, dues FROM waiting AS w JOIN judged AS j ON j.wait = w.wait;
END $$;

-- name: end_waits_v1
-- Move waiting tasks, whose places are locked, to where they belong. reasons: due, or of a chore. dues: their new due
-- times. Tasks that have a lane and are due are parked.
CREATE FUNCTION end_waits_v1(_app integer, _seqs bigint[], _reasons text[], _dues bigint[], _now double precision)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _call bigint := pg_current_xact_id()::text::bigint;
    _woken text[];
BEGIN
    DELETE FROM waiter WHERE seq = ANY (_seqs);
    WITH given AS MATERIALIZED (
        SELECT g.*, t.ctid AS task_ctid, p.ctid AS place_ctid,
            next_place_v1(g.reason, false, g.due, t.lane, _now, true) AS kind
        FROM unnest(_seqs, _reasons, _dues) WITH ORDINALITY AS g (seq, reason, due, nth)
        CROSS JOIN LATERAL (SELECT ctid, lane FROM task WHERE seq = g.seq OFFSET 0) AS t
        CROSS JOIN LATERAL (SELECT ctid FROM place WHERE seq = g.seq OFFSET 0) AS p
    ), saved AS (
        UPDATE task AS t SET reason = g.reason, due = g.due, state = CASE WHEN g.kind = 'c' THEN 'ready' END,
            wait = NULL, wait_until = NULL
        FROM given AS g WHERE t.ctid = g.task_ctid
        RETURNING g.nth, g.place_ctid, g.kind, coalesce(state_v1(g.kind), t.state) AS state, t.seq, t.source, t.lane,
            t.due - t.boost AS rank, expiry_v1(t) AS expires_at, alarm_v1(t, g.kind) AS alarm
    ), placed AS (
        UPDATE place AS p SET kind = s.kind, rank = s.next_rank, lane = s.lane, expires_at = s.expires_at,
            alarm = s.alarm
        FROM (
            SELECT *, CASE WHEN kind = 'c' THEN nextval('chore') ELSE rank END AS next_rank
            FROM (SELECT * FROM saved ORDER BY nth) AS ordered
        ) AS s WHERE p.ctid = s.place_ctid
    ), counted AS (
        INSERT INTO tally SELECT _app, source, 'waiting', -count(*) FROM saved GROUP BY source
        UNION ALL SELECT _app, source, state, count(*) FROM saved GROUP BY source, state
    ), logged AS (
        INSERT INTO change (app, call, at, state, seqs, source, number)
        SELECT _app, _call, floor(_now), state, array_agg(seq ORDER BY nth), source, count(*) FROM saved
        GROUP BY source, state
    )
    SELECT coalesce(array_agg(DISTINCT source::text) FILTER (WHERE kind = 'r'), '{}') INTO _woken FROM saved;
    RETURN _woken;
END $$;

-- name: resume_v1
-- As `end_waits_v1`; then those that have a lane and are due are admitted, one after the other in the given order,
-- under the limits lock.
CREATE FUNCTION resume_v1(
    _app integer, _seqs bigint[], _reasons text[], _dues bigint[], _now double precision,
    INOUT limits_locked boolean, OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _split record;
    _next record;
    _lane text;
BEGIN
    SELECT coalesce(array_agg(g.seq ORDER BY g.nth) FILTER (WHERE NOT is_laned), '{}') AS seqs,
        array_agg(g.reason ORDER BY g.nth) FILTER (WHERE NOT is_laned) AS reasons,
        array_agg(g.due ORDER BY g.nth) FILTER (WHERE NOT is_laned) AS dues,
        array_agg(g.nth ORDER BY g.nth) FILTER (WHERE is_laned) AS laned
    INTO _split FROM (
        SELECT u.*, t.lane IS NOT NULL AND u.reason = 'due' AND u.due <= _now AS is_laned
        FROM unnest(_seqs, _reasons, _dues) WITH ORDINALITY AS u (seq, reason, due, nth)
        CROSS JOIN LATERAL (SELECT lane FROM task WHERE seq = u.seq OFFSET 0) AS t
    ) AS g;
    woken := '{}';
    IF _split.seqs <> '{}' THEN
        woken := end_waits_v1(_app, _split.seqs, _split.reasons, _split.dues, _now);
    END IF;
    IF _split.laned IS NULL THEN
        RETURN;
    END IF;
    IF NOT limits_locked THEN
        PERFORM lock_limits_v1(_app);
        limits_locked := true;
    END IF;
    FOR _next IN SELECT _seqs[l.nth] AS seq, _dues[l.nth] AS due FROM unnest(_split.laned) AS l (nth) LOOP
        PERFORM end_waits_v1(_app, ARRAY[_next.seq], ARRAY['due'], ARRAY[_next.due], _now);
        SELECT lane INTO _lane FROM place WHERE seq = _next.seq;
        woken := woken || admit_v1(_app, ARRAY[_lane], _now, ARRAY[_next.seq]);
    END LOOP;
END $$;
