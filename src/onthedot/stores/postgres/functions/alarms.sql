-- Alarms: the one time per pending task at which something happens to it.

-- name: promote_v1
-- Promote up to BATCH tasks whose alarm is due. Without the limits lock, tasks with a lane are left out.
CREATE FUNCTION promote_v1(
    _app integer, _now double precision, _limits_locked boolean, OUT woken text[], OUT more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _due bigint[];
    _ready bigint[];
    _place place;
BEGIN
    SELECT coalesce(array_agg(seq ORDER BY alarm, seq), '{}') INTO _due FROM (
        SELECT seq, alarm FROM place
        WHERE app = _app AND alarm <= floor(_now)::bigint AND (_limits_locked OR lane IS NULL)
        ORDER BY alarm, seq LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS due;
    more := cardinality(_due) = 1000;
    woken := '{}';
    IF _due = '{}' THEN
        RETURN;
    END IF;
    WITH promoted AS (
        UPDATE place SET kind = next_place_v1('due', false, alarm, lane, _now, true), alarm = expires_at
        WHERE seq = ANY (_due) AND lane IS NULL AND coalesce(expires_at > _now, true) RETURNING seq, source
    ), counted AS (
        INSERT INTO tally SELECT _app, source, state, count(*) * sign FROM promoted
        CROSS JOIN (VALUES ('scheduled', -1), ('ready', 1)) AS deltas (state, sign) GROUP BY source, state, sign
    )
    SELECT coalesce(array_agg(DISTINCT source), '{}'), array_agg(seq) INTO woken, _ready FROM promoted;
    IF _ready IS NOT NULL THEN
        PERFORM log_transitions_v1(_app, _now, 'ready', _ready);
    END IF;
    IF cardinality(_ready) = cardinality(_due) THEN
        RETURN;
    END IF;
    FOR _place IN
        SELECT p.* FROM unnest(_due) WITH ORDINALITY AS d (seq, nth)
        JOIN place AS p ON p.seq = ANY (_due) AND p.seq = d.seq
        WHERE p.lane IS NOT NULL OR p.expires_at <= _now ORDER BY d.nth
    LOOP
        IF _place.expires_at <= _now THEN
            PERFORM end_as_chore_v1(_place.seq, 'expired', _now);
        ELSE
            PERFORM park_v1(_app, _place.seq, _place.source, 'scheduled');
            PERFORM log_transitions_v1(_app, _now, 'parked', ARRAY[_place.seq]);
        END IF;
        IF _place.lane IS NOT NULL THEN
            woken := woken || admit_v1(_app, ARRAY[_place.lane::text], _now, ARRAY[_place.seq]);
        END IF;
    END LOOP;
END $$;
