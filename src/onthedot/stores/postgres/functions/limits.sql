-- Limits: what a source or lane may start now. Everything that counts or spends runs under the limits lock.

-- name: lock_limits_v1
-- Take the app's limits lock, in a statement of its own: the next one sees what others have committed. It is taken
-- after everything that has to be waited for; behind it, rows that others have locked are skipped.
CREATE FUNCTION lock_limits_v1(_app integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1869897844, _app);
END $$;

-- name: keep_limits_v1
-- Let no limit be stored until the end of this transaction. A turn decides by the limits whether it takes the limits
-- lock; one that does not is not counted by others before it commits.
CREATE FUNCTION keep_limits_v1(_app integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1869897845, _app);
END $$;

-- name: effective_limit_v1
-- The limit of a name, field by field: its own before its star's, the operator's before code's.
CREATE FUNCTION effective_limit_v1(
    _app integer, _name text, OUT is_set boolean, OUT cap integer, OUT rate double precision,
    OUT burst double precision, OUT paused boolean
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT count(*) > 0, (array_agg(r.cap ORDER BY r.precedence) FILTER (WHERE r.cap IS NOT NULL))[1],
        (array_agg(r.rate ORDER BY r.precedence) FILTER (WHERE r.rate IS NOT NULL))[1],
        (array_agg(r.burst ORDER BY r.precedence) FILTER (WHERE r.rate IS NOT NULL))[1],
        coalesce(bool_or(r.paused), false)
    INTO is_set, cap, rate, burst, paused
    FROM (
        SELECT *, (name <> _name, owner <> 'operator') AS precedence FROM limit_rule
        WHERE app = _app AND (
            name = _name OR name = split_part(_name, '/', 1) || '/*' AND position('/' IN _name) > 0)
    ) AS r;
END $$;

-- name: level_v1
-- The tokens in a bucket now.
CREATE FUNCTION level_v1(
    _app integer, _name text, _rate double precision, _burst double precision, _now double precision
) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
    _bucket token_bucket;
BEGIN
    SELECT * INTO _bucket FROM token_bucket WHERE app = _app AND name = _name;
    IF _bucket.at > _now + 2000 THEN  -- the server's clock was set back: the bucket continues from there
        UPDATE token_bucket SET at = _now WHERE app = _app AND name = _name;
        _bucket.at := _now;
    END IF;
    RETURN coalesce(least(_burst, _bucket.tokens + _rate * greatest(_now - _bucket.at, 0) / 1000), _burst);
END $$;

-- name: spend_v1
-- Take tokens out of a bucket.
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

-- name: running_v1
-- The number of running tasks of a lane, or of a source. Counted from the leases, so a crash leaks no slot.
CREATE FUNCTION running_v1(_app integer, _source text, _lane text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF _lane IS NOT NULL THEN
        RETURN (SELECT count(*) FROM onthedot.claim AS c CROSS JOIN unnest(c.seqs) AS leased (seq)
            CROSS JOIN LATERAL (SELECT settled_fence FROM onthedot.task WHERE seq = leased.seq OFFSET 0) AS t
            WHERE c.app = _app AND c.lane = _lane AND NOT c.chore AND t.settled_fence < c.fence);
    END IF;
    RETURN (SELECT count(*) FROM onthedot.claim AS c CROSS JOIN unnest(c.seqs) AS leased (seq)
        CROSS JOIN LATERAL (SELECT settled_fence FROM onthedot.task WHERE seq = leased.seq OFFSET 0) AS t
        WHERE c.app = _app AND c.source = _source AND NOT c.chore AND t.settled_fence < c.fence);
END $$;

-- name: source_capacity_v1
-- How many more tasks of a source may start now, and in how many ms it is worth asking again.
CREATE FUNCTION source_capacity_v1(
    _app integer, _source text, _now double precision, OUT free integer, OUT wait double precision
) LANGUAGE plpgsql AS $$
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

-- name: limits_v1
-- Limits of a request, as rows of their table.
CREATE FUNCTION limits_v1(_app integer, _limits json) RETURNS SETOF limit_rule LANGUAGE sql AS $$
    SELECT _app, l.name, l.owner, l.cap, l.rate, l.burst, l.paused, l.reason, l.paused_since,
        decode(l.lane_rule, 'base64'), l.mode
    FROM json_to_recordset(_limits) AS l (
        name text, owner text, cap integer, rate double precision, burst double precision, paused boolean, reason text,
        paused_since bigint, lane_rule text, mode text)
$$;

-- name: put_limits_v1
-- {"app", "limits": […]} and replaced ones: store limits, each for its name and owner. `stored` is false, and nothing has
-- changed, unless each replaced one is stored as it is given; one that sets nothing may be missing.
CREATE FUNCTION put_limits_v1(_request json, _replaces json, OUT stored boolean, OUT notification json)
    LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _limit record;
    _woken text[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock(1869897845, _app);  -- wait for the turns that keep the limits
    stored := NOT EXISTS (
        SELECT FROM limits_v1(_app, _replaces) AS old
        LEFT JOIN limit_rule AS r ON r.app = _app AND r.name = old.name AND r.owner = old.owner
        WHERE old IS DISTINCT FROM CASE WHEN r.app IS NULL
            THEN (_app, old.name, old.owner, NULL, NULL, 1, false, '', NULL, NULL, '')::limit_rule ELSE r END);
    IF NOT stored THEN
        RETURN;
    END IF;
    FOR _limit IN SELECT * FROM limits_v1(_app, _request -> 'limits') LOOP
        INSERT INTO limit_rule VALUES (_app, _limit.name, _limit.owner, _limit.cap, _limit.rate, _limit.burst,
            _limit.paused, _limit.reason, _limit.paused_since, _limit.lane_rule, _limit.mode)
        ON CONFLICT (app, name, owner) DO UPDATE SET cap = excluded.cap, rate = excluded.rate, burst = excluded.burst,
            paused = excluded.paused, reason = excluded.reason, paused_since = excluded.paused_since,
            lane_rule = excluded.lane_rule, mode = excluded.mode;
        INSERT INTO lane_check SELECT DISTINCT _app, lane FROM place WHERE app = _app AND kind = 'p' AND (
            lane = _limit.name OR split_part(lane, '/', 1) || '/*' = _limit.name);
        _woken := _woken || split_part(_limit.name, '/', 1);
    END LOOP;
    notification := json_build_object('sources', _woken);
END $$;
