-- Alarms: the one time per pending or waiting task at which something happens to it by itself.

-- name: time_out_v1
-- End the waits of waiting tasks, whose places are locked: one that has started is due, the others are expired.
CREATE FUNCTION time_out_v1(
    _app integer, _seqs bigint[], _now double precision, INOUT limits_locked boolean, OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _over record;
BEGIN
    SELECT array_agg(t.seq ORDER BY s.nth) AS seqs,
        array_agg(CASE WHEN t.started IS NULL THEN 'expired' ELSE 'due' END ORDER BY s.nth) AS reasons,
        array_agg(CASE WHEN t.started IS NULL THEN t.due ELSE greatest(t.due, floor(_now)::bigint) END ORDER BY s.nth)
            AS dues
    INTO _over FROM unnest(_seqs) WITH ORDINALITY AS s (seq, nth)
    CROSS JOIN LATERAL (SELECT seq, due, started FROM task WHERE seq = s.seq OFFSET 0) AS t;
    SELECT r.woken, r.limits_locked INTO woken, limits_locked
    FROM resume_v1(_app, _over.seqs, _over.reasons, _over.dues, _now, limits_locked) AS r;
END $$;

-- name: arrive_in_order_v1
-- Handle alarms, in their order, of tasks that have a lane or expire. Their places are locked.
CREATE FUNCTION arrive_in_order_v1(
    _app integer, _due bigint[], _now double precision, INOUT limits_locked boolean, OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _place place;
    _timed_out record;
BEGIN
    woken := '{}';
    FOR _place IN
        SELECT p.* FROM unnest(_due) WITH ORDINALITY AS d (seq, nth)
        JOIN place AS p ON p.seq = ANY (_due) AND p.seq = d.seq
        WHERE p.kind = 'w' OR p.kind <> 'c' AND (p.lane IS NOT NULL OR p.expires_at <= _now) ORDER BY d.nth
    LOOP
        IF _place.kind = 'w' THEN
            SELECT * INTO _timed_out FROM time_out_v1(_app, ARRAY[_place.seq], _now, limits_locked);
            woken := woken || _timed_out.woken;
            limits_locked := _timed_out.limits_locked;
            CONTINUE;
        END IF;
        IF _place.expires_at <= _now THEN
            PERFORM end_as_chore_v1(_place.seq, 'expired', _now);
        ELSE
            PERFORM park_v1(_app, _place.seq, _place.source, 'scheduled');
            PERFORM log_transitions_v1(_app, _now, 'parked', ARRAY[_place.seq], ARRAY[_place.source::text]);
        END IF;
        IF _place.lane IS NOT NULL THEN
            woken := woken || admit_v1(_app, ARRAY[_place.lane::text], _now, ARRAY[_place.seq]);
        END IF;
    END LOOP;
END $$;

-- name: promote_v1
-- Promote up to BATCH tasks whose alarm is due. Without the limits lock, tasks with a lane are left out, except those
-- that wait: for them the lock is taken.
CREATE FUNCTION promote_v1(
    _app integer, _now double precision, INOUT limits_locked boolean, OUT woken text[], OUT more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _due bigint[];
    _ready bigint[];
    _sources text[];
    _waiting bigint[];
    _step record;
BEGIN
    SELECT coalesce(array_agg(seq ORDER BY alarm, seq), '{}'),
        array_agg(seq ORDER BY alarm, seq) FILTER (WHERE kind = 'w')
    INTO _due, _waiting FROM (
        SELECT seq, alarm, kind FROM place
        WHERE app = _app AND alarm <= floor(_now)::bigint AND (limits_locked OR lane IS NULL)
        ORDER BY alarm, seq LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS due;
    more := cardinality(_due) = 1000;
    woken := '{}';
    IF _due = '{}' THEN
        RETURN;
    END IF;
    WITH promoted AS (
        UPDATE place SET kind = next_place_v1('due', false, alarm, lane, _now, true), alarm = expires_at
        WHERE seq = ANY (_due) AND kind <> 'w' AND lane IS NULL AND coalesce(expires_at > _now, true)
        RETURNING seq, source
    ), counted AS (
        INSERT INTO tally SELECT _app, source, state, count(*) * sign FROM promoted
        CROSS JOIN (VALUES ('scheduled', -1), ('ready', 1)) AS deltas (state, sign) GROUP BY source, state, sign
    )
    SELECT coalesce(array_agg(DISTINCT source), '{}'), array_agg(seq), array_agg(source::text)
    INTO woken, _ready, _sources FROM promoted;
    IF _ready IS NOT NULL THEN
        PERFORM log_transitions_v1(_app, _now, 'ready', _ready, _sources);
    END IF;
    IF cardinality(_ready) = cardinality(_due) THEN
        RETURN;
    END IF;
    IF _waiting IS NOT NULL THEN
        SELECT * INTO _step FROM time_out_v1(_app, ARRAY(
            SELECT w.seq FROM unnest(_waiting) WITH ORDINALITY AS w (seq, nth)
            CROSS JOIN LATERAL (SELECT lane FROM task WHERE seq = w.seq OFFSET 0) AS t
            WHERE t.lane IS NULL ORDER BY w.nth), _now, limits_locked);
        woken := woken || _step.woken;
    END IF;
    SELECT * INTO _step FROM arrive_in_order_v1(_app, _due, _now, limits_locked);
    woken := woken || _step.woken;
    limits_locked := _step.limits_locked;
END $$;
