-- What may start now: limits, buckets, and the tasks that their lane holds back. All of it behind the gate.

-- name: effective_limit_v1
-- Field by field, the most specific first: the name's own before its star, the operator's before code's.
CREATE FUNCTION effective_limit_v1(
    _app integer, _name text, OUT is_set boolean, OUT cap integer, OUT rate double precision, OUT burst double precision,
    OUT paused boolean
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT count(*) > 0, (array_agg(b.cap ORDER BY b.place) FILTER (WHERE b.cap IS NOT NULL))[1],
        (array_agg(b.rate ORDER BY b.place) FILTER (WHERE b.rate IS NOT NULL))[1],
        (array_agg(b.burst ORDER BY b.place) FILTER (WHERE b.rate IS NOT NULL))[1], coalesce(bool_or(b.paused), false)
    INTO is_set, cap, rate, burst, paused
    FROM (
        SELECT *, (name <> _name, owner <> 'operator') AS place FROM limit_rule
        WHERE app = _app AND (
            name = _name OR name = split_part(_name, '/', 1) || '/*' AND position('/' IN _name) > 0)
    ) AS b;
END $$;

-- name: level_v1
CREATE FUNCTION level_v1(
    _app integer, _name text, _rate double precision, _burst double precision, _now double precision
) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
    _bucket token_bucket;
BEGIN
    SELECT * INTO _bucket FROM token_bucket WHERE app = _app AND name = _name;
    RETURN coalesce(least(_burst, _bucket.tokens + _rate * greatest(_now - _bucket.at, 0) / 1000), _burst);
END $$;

-- name: spend_v1
CREATE FUNCTION spend_v1(
    _app integer, _name text, _rate double precision, _burst double precision, _cost double precision,
    _now double precision
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _left double precision := level_v1(_app, _name, _rate, _burst, _now) - _cost;
BEGIN
    INSERT INTO token_bucket (app, name, tokens, at) VALUES (_app, _name, _left, _now)
    ON CONFLICT (app, name) DO UPDATE SET tokens = _left, at = greatest(token_bucket.at, _now);
END $$;

-- name: set_refill_v1
CREATE FUNCTION set_refill_v1(_app integer, _lane text, _when double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_bucket (app, name, refill_at) VALUES (_app, _lane, _when)
    ON CONFLICT (app, name) DO UPDATE SET refill_at = least(token_bucket.refill_at, _when)
    WHERE token_bucket.refill_at IS NULL OR token_bucket.refill_at > _when;
END $$;

-- name: running_v1
-- Counted from the leases themselves, so that no crash leaks a slot. Of a source, or of a lane.
CREATE FUNCTION running_v1(_app integer, _source text, _lane text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF _lane IS NOT NULL THEN
        RETURN (SELECT count(*) FROM onthedot.claim AS c CROSS JOIN unnest(c.seqs) AS held (seq)
            CROSS JOIN LATERAL (SELECT settled_fence FROM onthedot.task WHERE seq = held.seq OFFSET 0) AS t
            WHERE c.app = _app AND c.lane = _lane AND NOT c.chore AND t.settled_fence < c.fence);
    END IF;
    RETURN (SELECT count(*) FROM onthedot.claim AS c CROSS JOIN unnest(c.seqs) AS held (seq)
        CROSS JOIN LATERAL (SELECT settled_fence FROM onthedot.task WHERE seq = held.seq OFFSET 0) AS t
        WHERE c.app = _app AND c.source = _source AND NOT c.chore AND t.settled_fence < c.fence);
END $$;

-- name: admit_v1
-- Lets parked ones of a lane into ready while it is open, by rank; then the one that has just come, if it is open for
-- that one: it may pass those that wait for more tokens. Answers with the sources that got ready tasks.
CREATE FUNCTION admit_v1(_app integer, _lane text, _now double precision, _just bigint DEFAULT NULL) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    _limit record := effective_limit_v1(_app, _lane);
    _slots bigint;  -- running and admitted
    _reserved double precision;  -- what the admitted ones will cost
    _tokens double precision;
    _cost double precision;
    _missing double precision;
    _one place;
    _seqs bigint[] := '{}';
    _sources text[] := '{}';
BEGIN
    SELECT count(*), coalesce(sum(cost), 0) INTO _slots, _reserved FROM place
    WHERE app = _app AND lane = _lane AND kind = 'r' AND _limit.is_set;
    _slots := _slots + CASE WHEN _limit.cap IS NULL THEN 0 ELSE running_v1(_app, NULL, _lane) END;
    _tokens := CASE WHEN _limit.rate IS NULL THEN 0 ELSE level_v1(_app, _lane, _limit.rate, _limit.burst, _now) END;
    FOR _ IN 0 .. 1000 LOOP
        SELECT * INTO _one FROM place WHERE app = _app AND lane = _lane AND kind = 'p'
        ORDER BY rank, seq LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        FOR _ IN 1 .. 2 LOOP  -- the first, else the one that has just come
            _cost := least(_one.cost, _limit.burst);  -- one that was added under a larger burst waits for a full token_bucket
            _missing := CASE WHEN _limit.rate IS NULL THEN 0 ELSE _cost - (_tokens - _reserved) END;
            EXIT WHEN NOT _limit.paused AND coalesce(_slots < _limit.cap, true)
                AND coalesce(_missing <= _limit.rate * 1e-6, true);
            IF NOT _limit.paused AND coalesce(_slots < _limit.cap, true) AND _reserved + _cost <= _limit.burst THEN
                PERFORM set_refill_v1(_app, _lane, _now + _missing / _limit.rate * 1000);
            END IF;  -- else time alone does not open it
            SELECT * INTO _one FROM place WHERE seq = _just AND kind = 'p' FOR UPDATE SKIP LOCKED;
            _just := NULL;
            EXIT WHEN NOT FOUND;
        END LOOP;
        EXIT WHEN _one.seq IS NULL;
        IF cardinality(_seqs) = 1000 THEN
            PERFORM set_refill_v1(_app, _lane, _now);
            EXIT;
        END IF;
        UPDATE place SET kind = 'r' WHERE seq = _one.seq;
        _seqs := _seqs || _one.seq;
        _sources := _sources || _one.source;
        _slots := _slots + 1;
        _reserved := _reserved + _one.cost;
    END LOOP;
    IF _seqs <> '{}' THEN
        INSERT INTO tally SELECT _app, source, state, sum(way) FROM unnest(_sources) AS source
            CROSS JOIN (VALUES ('parked', -1), ('ready', 1)) AS moves (state, way) GROUP BY source, state;
        PERFORM log_transitions_v1(_app, _now, 'ready', _seqs);
    END IF;
    RETURN _sources;
END $$;

-- name: refill_lanes_v1
-- Lanes whose moment has come, or of which somebody said that they may have opened. more: there may be others.
CREATE FUNCTION refill_lanes_v1(_app integer, _now double precision, OUT woken text[], OUT more boolean)
LANGUAGE plpgsql AS $$
DECLARE
    _lane text;
    _done integer := 0;
    _in text[];
BEGIN
    woken := '{}';
    INSERT INTO token_bucket (app, name, refill_at) SELECT DISTINCT _app, checked.lane, _now FROM take_lane_checks_v1(_app) AS checked (lane)
    ON CONFLICT (app, name) DO UPDATE SET refill_at = _now;
    WHILE _done < 1000 LOOP
        UPDATE token_bucket SET refill_at = NULL WHERE app = _app AND name = (
            SELECT name FROM token_bucket WHERE app = _app AND refill_at <= _now + 1e-3 ORDER BY refill_at LIMIT 1
        ) RETURNING name INTO _lane;
        EXIT WHEN _lane IS NULL;
        _in := admit_v1(_app, _lane, _now);
        woken := woken || _in;
        _done := _done + 1 + cardinality(_in);
    END LOOP;
    more := _done >= 1000;
END $$;

-- name: take_lane_checks_v1
CREATE FUNCTION take_lane_checks_v1(_app integer) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY DELETE FROM lane_check WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM lane_check WHERE app = _app LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING lane::text;
END $$;

-- name: source_capacity_v1
-- How many more of a source may start now, and in how many ms it is worth asking again.
CREATE FUNCTION source_capacity_v1(_app integer, _source text, _now double precision, OUT free integer, OUT wait double precision)
LANGUAGE plpgsql AS $$
DECLARE
    _limit record := effective_limit_v1(_app, _source);
    _tokens double precision;
BEGIN
    free := 1000000;
    IF _limit.paused THEN
        free := 0;
    ELSIF _limit.cap IS NOT NULL THEN
        free := greatest(0, _limit.cap - running_v1(_app, _source, NULL));
    END IF;
    IF _limit.rate IS NOT NULL AND free > 0 THEN
        _tokens := level_v1(_app, _source, _limit.rate, _limit.burst, _now);
        free := least(free, floor(_tokens + _limit.rate * 1e-6));
        IF free < 1 THEN
            free := 0;
            wait := (1 - _tokens) / _limit.rate * 1000;
        END IF;
    END IF;
END $$;

-- name: may_start_v1
-- May an admitted one start? The last look at its lane, since limits can have changed in between. `more`: so many of
-- this lane are being taken in the same claim.
CREATE FUNCTION may_start_v1(_app integer, _lane text, _cost double precision, _more integer, _now double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _limit record := effective_limit_v1(_app, _lane);
    _missing double precision;
BEGIN
    IF _limit.paused OR coalesce(running_v1(_app, NULL, _lane) + _more >= _limit.cap, false) THEN
        RETURN false;
    END IF;
    IF _limit.rate IS NOT NULL THEN
        _cost := least(_cost, _limit.burst);
        _missing := _cost - level_v1(_app, _lane, _limit.rate, _limit.burst, _now);
        IF _missing > _limit.rate * 1e-6 THEN
            PERFORM set_refill_v1(_app, _lane, _now);  -- what was reserved to it may be enough for the first parked one
            RETURN false;
        END IF;
        PERFORM spend_v1(_app, _lane, _limit.rate, _limit.burst, _cost, _now);
    END IF;
    RETURN true;
END $$;
