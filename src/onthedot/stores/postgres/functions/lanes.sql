-- Lanes: parked tasks are admitted to ready while their lane has capacity. Everything here runs under the limits lock.

-- name: set_refill_v1
-- Set the time at which a lane is checked again, unless it is checked earlier.
CREATE FUNCTION set_refill_v1(_app integer, _lane text, _at double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_bucket (app, name, refill_at) VALUES (_app, _lane, _at)
    ON CONFLICT (app, name) DO UPDATE SET refill_at = least(token_bucket.refill_at, _at)
    WHERE token_bucket.refill_at IS NULL OR token_bucket.refill_at > _at;
END $$;

-- name: admit_in_lane_v1
-- Admit parked tasks of a lane by rank while it has capacity, then each newcomer if there is capacity for it: a newcomer
-- may overtake tasks that wait for more tokens. Return the sources that got ready tasks.
CREATE FUNCTION admit_in_lane_v1(_app integer, _lane text, _now double precision, _newcomers bigint[])
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _limit record := effective_limit_v1(_app, _lane);
    _slots bigint;  -- running and admitted
    _reserved double precision;  -- the cost of admitted tasks
    _tokens double precision;
    _cost double precision;
    _missing double precision;
    _next place;
    _seqs bigint[] := '{}';
    _sources text[] := '{}';
BEGIN
    SELECT count(*), coalesce(sum(cost), 0) INTO _slots, _reserved FROM place
    WHERE app = _app AND lane = _lane AND kind = 'r' AND _limit.is_set;
    _slots := _slots + CASE WHEN _limit.cap IS NULL THEN 0 ELSE running_v1(_app, NULL, _lane) END;
    _tokens := CASE WHEN _limit.rate IS NULL THEN 0 ELSE level_v1(_app, _lane, _limit.rate, _limit.burst, _now) END;
    FOR _ IN 0 .. 1000 LOOP
        SELECT * INTO _next FROM place WHERE app = _app AND lane = _lane AND kind = 'p'
        ORDER BY rank, seq LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        LOOP  -- the first by rank, otherwise a newcomer
            _cost := least(_next.cost, _limit.burst);  -- a task that was added under a larger burst costs the burst
            _missing := CASE WHEN _limit.rate IS NULL THEN 0 ELSE _cost - (_tokens - _reserved) END;
            EXIT WHEN NOT _limit.paused AND coalesce(_slots < _limit.cap, true)
                AND coalesce(_missing <= _limit.rate * 1e-6, true);
            IF NOT _limit.paused AND coalesce(_slots < _limit.cap, true) AND _reserved + _cost <= _limit.burst THEN
                PERFORM set_refill_v1(_app, _lane, _now + _missing / _limit.rate * 1000);
            END IF;  -- otherwise time alone does not help
            SELECT * INTO _next FROM place WHERE seq = ANY (_newcomers) AND lane = _lane AND kind = 'p'
            ORDER BY rank, seq LIMIT 1 FOR UPDATE SKIP LOCKED;
            EXIT WHEN NOT FOUND;
            _newcomers := array_remove(_newcomers, _next.seq);
        END LOOP;
        EXIT WHEN _next.seq IS NULL;
        IF cardinality(_seqs) = 1000 THEN  -- BATCH: the next turn continues
            PERFORM set_refill_v1(_app, _lane, _now);
            EXIT;
        END IF;
        UPDATE place SET kind = 'r' WHERE seq = _next.seq;
        _seqs := _seqs || _next.seq;
        _sources := _sources || _next.source;
        _slots := _slots + 1;
        _reserved := _reserved + _next.cost;
    END LOOP;
    IF _seqs <> '{}' THEN
        INSERT INTO tally SELECT _app, source, state, sum(sign) FROM unnest(_sources) AS source
            CROSS JOIN (VALUES ('parked', -1), ('ready', 1)) AS deltas (state, sign) GROUP BY source, state;
        PERFORM log_transitions_v1(_app, _now, 'ready', _seqs, _sources);
    END IF;
    RETURN _sources;
END $$;

-- name: admit_v1
-- Admit parked tasks of lanes. Most lanes have none.
CREATE FUNCTION admit_v1(_app integer, _lanes text[], _now double precision, _newcomers bigint[] DEFAULT NULL)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _lane text;
    _sources text[] := '{}';
BEGIN
    FOR _lane IN SELECT l.lane FROM unnest(_lanes) AS l (lane)
        WHERE EXISTS (SELECT FROM place AS p WHERE p.app = _app AND p.lane = l.lane AND p.kind = 'p' OFFSET 0)
    LOOP
        _sources := _sources || admit_in_lane_v1(_app, _lane, _now, _newcomers);
    END LOOP;
    RETURN _sources;
END $$;

-- name: may_start_v1
-- Whether an admitted task may start; its tokens are spent then. The limits may have changed since it was admitted.
-- starting: how many tasks of this lane the same claim has picked.
CREATE FUNCTION may_start_v1(_app integer, _lane text, _cost double precision, _starting integer, _now double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _limit record := effective_limit_v1(_app, _lane);
    _missing double precision;
BEGIN
    IF _limit.paused OR coalesce(running_v1(_app, NULL, _lane) + _starting >= _limit.cap, false) THEN
        RETURN false;
    END IF;
    IF _limit.rate IS NOT NULL THEN
        _cost := least(_cost, _limit.burst);
        _missing := _cost - level_v1(_app, _lane, _limit.rate, _limit.burst, _now);
        IF _missing > _limit.rate * 1e-6 THEN
            PERFORM set_refill_v1(_app, _lane, _now);  -- its tokens may be enough for the first parked task
            RETURN false;
        END IF;
        PERFORM spend_v1(_app, _lane, _limit.rate, _limit.burst, _cost, _now);
    END IF;
    RETURN true;
END $$;

-- name: take_lane_checks_v1
-- Lanes that a call without the limits lock has left to be checked; each is returned once.
CREATE FUNCTION take_lane_checks_v1(_app integer) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY DELETE FROM lane_check WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM lane_check WHERE app = _app LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING lane::text;
END $$;

-- name: refill_lanes_v1
-- Admit tasks of lanes whose time to be checked has come. more: there may be more such lanes.
CREATE FUNCTION refill_lanes_v1(_app integer, _now double precision, OUT woken text[], OUT more boolean)
LANGUAGE plpgsql AS $$
DECLARE
    _lane text;
    _done integer := 0;
    _admitted text[];
BEGIN
    woken := '{}';
    INSERT INTO token_bucket (app, name, refill_at)
    SELECT DISTINCT _app, checked.lane, _now FROM take_lane_checks_v1(_app) AS checked (lane)
    ON CONFLICT (app, name) DO UPDATE SET refill_at = _now;
    WHILE _done < 1000 LOOP
        UPDATE token_bucket SET refill_at = NULL WHERE app = _app AND name = (
            SELECT name FROM (
                SELECT * FROM token_bucket WHERE app = _app AND refill_at IS NOT NULL ORDER BY refill_at LIMIT 1
            ) AS first WHERE refill_at <= _now + 1e-3 OR at > _now + 2000  -- the server's clock was set back
        ) RETURNING name INTO _lane;
        EXIT WHEN _lane IS NULL;
        _admitted := admit_v1(_app, ARRAY[_lane], _now);
        woken := woken || _admitted;
        _done := _done + 1 + cardinality(_admitted);
    END LOOP;
    more := _done >= 1000;
END $$;
