-- signal: keep messages under a name, in order, and raise the counters of their names.

-- name: lock_stripes_v1
-- Lock the stripes of names, sorted, so that no two callers wait for each other.
CREATE FUNCTION lock_stripes_v1(_app integer, _names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _stripe integer;
BEGIN
    FOR _stripe IN SELECT DISTINCT stripe_v1(name) FROM unnest(_names) AS name ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(1869897846, _app * 64 + _stripe);
    END LOOP;
END $$;

-- name: refuse_surplus_v1
-- Roll the call back if more than MAX_KEPT_SIGNALS are kept under a name. The client reads the name from the detail.
CREATE FUNCTION refuse_surplus_v1(_app integer, _names text[], _now double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _full text := (
        SELECT n.name FROM unnest(_names) AS n (name) CROSS JOIN LATERAL (
            SELECT count(*) AS number FROM signal WHERE app = _app AND name = n.name AND until > _now) AS kept
        WHERE kept.number > 1000 LIMIT 1);
BEGIN
    IF _full IS NOT NULL THEN
        RAISE EXCEPTION 'too many signals are kept under one name' USING ERRCODE = 'OTD02', DETAIL = _full;
    END IF;
END $$;

-- name: append_signals_v1
-- Store signals whose id is not kept, each once, and set the counters of their names. The caller holds the stripes.
-- Return the positions of those that are new.
CREATE FUNCTION append_signals_v1(_app integer, _signals json, _now double precision) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    _positions bigint[];
BEGIN
    WITH given AS (
        SELECT DISTINCT ON (g.name, g.id) g.* FROM ROWS FROM (json_to_recordset(_signals) AS (
            name text, id text, payload text, keep bigint)) WITH ORDINALITY AS g (name, id, payload, keep, nth)
        ORDER BY g.name, g.id, g.nth
    ), fresh AS MATERIALIZED (
        SELECT g.*, greatest(floor(_now)::bigint, coalesce(c.value, 0) + 1)
            + row_number() OVER (PARTITION BY g.name ORDER BY g.nth) - 1 AS number
        FROM given AS g
        LEFT JOIN LATERAL (SELECT value FROM counter WHERE app = _app AND name = g.name OFFSET 0) AS c ON true
        WHERE NOT EXISTS (
            SELECT FROM signal AS s WHERE s.app = _app AND s.name = g.name AND s.id = g.id AND s.until > _now OFFSET 0)
    ), stored AS (  -- a signal of this id that is past its time makes room
        INSERT INTO signal SELECT _app, name, number, id, decode(payload, 'base64'), floor(_now)::bigint + keep
        FROM fresh ORDER BY nth
        ON CONFLICT (app, name, id) DO UPDATE SET number = excluded.number, payload = excluded.payload,
            until = excluded.until
    ), raised AS (
        INSERT INTO counter SELECT _app, name, max(number), 0, floor(_now) + 2592000000 FROM fresh GROUP BY name
        ON CONFLICT (app, name) DO UPDATE SET value = excluded.value, failed = 0, until = excluded.until
    )
    SELECT coalesce(array_agg(nth), '{}') INTO _positions FROM fresh;
    RETURN _positions;
END $$;

-- name: signal_v1
-- {"app", "now", "signals": […]} → per signal whether it is new. It waits for stripes and holds nothing else meanwhile.
CREATE FUNCTION signal_v1(_request json, OUT answers boolean[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _signals json := _request -> 'signals';
    _names text[] := ARRAY(SELECT DISTINCT s.name FROM json_to_recordset(_signals) AS s (name text));
    _new bigint[];
BEGIN
    PERFORM lock_stripes_v1(_app, _names);
    PERFORM add_deltas_v1(_app, _names);
    _new := append_signals_v1(_app, _signals, _now);
    PERFORM refuse_surplus_v1(_app, _names, _now);
    PERFORM mark_dirty_v1(_app, _names, _now);
    answers := ARRAY(SELECT nth = ANY (_new) FROM generate_series(1, json_array_length(_signals)) AS nth);
    IF is_wait_over_v1(_app, _names) THEN
        notification := json_build_object('recheck', true);
    END IF;
END $$;
