-- Counters. An end, a revival and the begin of a wait only append to `counter_delta`; a turn with a claim request adds
-- the deltas up. A counter changes, and its waiters are read, only under the stripe of its name, an advisory lock that
-- is held to the commit. A wait that begins leaves a delta of 0. The turn that takes this delta reads the waiter too: it
-- was committed with the delta, or is of the same transaction, which keeps the stripe until others see the waiter.
--
-- Lock order: task rows, the limits lock, stripes by a try, place and task rows by SKIP LOCKED. Only `signal_v1` waits
-- for stripes; it takes them sorted and holds nothing else. A turn that holds a stripe may still wait for the limits
-- lock, whose holder waits for no stripe.

-- name: stripe_v1
-- The stripe of a counter, of 64.
CREATE FUNCTION stripe_v1(_name text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtext(_name) & 63
$$;

-- name: counter_v1
-- A counter, with the deltas that are not added up yet. stripe: of its name. It is a parameter, since a role that reads
-- may only call the functions that its statements name.
CREATE FUNCTION counter_v1(_app integer, _name text, _stripe integer, OUT value bigint, OUT failed bigint)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(part.value), 0)::bigint, coalesce(sum(part.failed), 0)::bigint FROM (
        SELECT c.value, c.failed FROM onthedot.counter AS c WHERE c.app = _app AND c.name = _name
        UNION ALL
        SELECT d.ended, d.failed FROM onthedot.counter_delta AS d
        WHERE d.app = _app AND d.stripe = _stripe AND d.name = _name
    ) AS part
$$;

-- name: is_wait_over_v1
-- Whether a task waits for one of these counters and its value is reached.
CREATE FUNCTION is_wait_over_v1(_app integer, _names text[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM unnest(_names) AS n (name) CROSS JOIN LATERAL (
            SELECT value FROM waiter WHERE app = _app AND name = n.name ORDER BY value LIMIT 1) AS first
        WHERE first.value <= (counter_v1(_app, n.name, stripe_v1(n.name))).value);
END $$;

-- name: take_stripes_v1
-- Lock the stripes that have deltas and are free. is_busy: others hold some.
CREATE FUNCTION take_stripes_v1(_app integer, OUT stripes integer[], OUT is_busy boolean) LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(array_agg(tried.stripe) FILTER (WHERE tried.is_taken), '{}'), NOT bool_and(tried.is_taken)
    INTO stripes, is_busy
    FROM (
        SELECT dirty.stripe, pg_try_advisory_xact_lock(1869897846, _app * 64 + dirty.stripe) AS is_taken FROM (
            SELECT all_of.stripe FROM generate_series(0, 63) AS all_of (stripe) WHERE EXISTS (
                SELECT FROM counter_delta AS d WHERE d.app = _app AND d.stripe = all_of.stripe OFFSET 0) OFFSET 0
        ) AS dirty OFFSET 0
    ) AS tried;
END $$;

-- name: add_deltas_v1
-- Add the deltas of counters to them. The caller holds their stripes.
CREATE FUNCTION add_deltas_v1(_app integer, _names text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH taken AS (
        DELETE FROM counter_delta WHERE ctid = ANY (ARRAY(
            SELECT d.ctid FROM unnest(_names) AS n (name) CROSS JOIN LATERAL (SELECT ctid FROM counter_delta
                WHERE app = _app AND stripe = stripe_v1(n.name) AND name = n.name OFFSET 0) AS d))
        RETURNING name, ended, failed, at
    )
    INSERT INTO counter AS c  -- COUNTER_KEEP after its last change
    SELECT _app, name, sum(ended), sum(failed), max(at) + 2592000000 FROM taken WHERE ended <> 0 GROUP BY name
    ON CONFLICT (app, name) DO UPDATE SET value = c.value + excluded.value, failed = c.failed + excluded.failed,
        until = greatest(c.until, excluded.until);
END $$;

-- name: reached_v1
-- Up to BATCH tasks that wait for a value that one of these counters has reached. The caller holds their stripes.
CREATE FUNCTION reached_v1(_app integer, _names text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT w.seq FROM unnest(_names) AS n (name)
        LEFT JOIN LATERAL (SELECT value FROM counter WHERE app = _app AND name = n.name OFFSET 0) AS c ON true
        CROSS JOIN LATERAL (SELECT seq FROM waiter
            WHERE app = _app AND name = n.name AND value <= coalesce(c.value, 0) ORDER BY value, seq LIMIT 1000) AS w
        ORDER BY w.seq LIMIT 1000);
END $$;

-- name: mark_dirty_v1
-- Let the next turn look at these counters again, if a task waits for a value that they have.
CREATE FUNCTION mark_dirty_v1(_app integer, _names text[], _now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO counter_delta SELECT _app, stripe_v1(n.name), n.name, 0, 0, floor(_now) FROM unnest(_names) AS n (name)
    LEFT JOIN LATERAL (SELECT value FROM counter WHERE app = _app AND name = n.name OFFSET 0) AS c ON true
    WHERE EXISTS (SELECT FROM waiter AS w
        WHERE w.app = _app AND w.name = n.name AND w.value <= coalesce(c.value, 0) OFFSET 0);
END $$;

-- name: collect_deltas_v1
-- Add the deltas of up to 1,000 counters to them, whose stripes this call can lock, and return their names: the caller
-- looks at their waiters. is_left: there are deltas of others.
CREATE FUNCTION collect_deltas_v1(_app integer, OUT names text[], OUT is_left boolean) LANGUAGE plpgsql AS $$
DECLARE
    _taken record;
BEGIN
    SELECT * INTO _taken FROM take_stripes_v1(_app);
    names := ARRAY(SELECT DISTINCT name FROM counter_delta WHERE app = _app AND stripe = ANY (_taken.stripes)
        LIMIT 1000);
    is_left := coalesce(_taken.is_busy, false) OR cardinality(names) = 1000;
    IF names <> '{}' THEN
        PERFORM add_deltas_v1(_app, names);
    END IF;
END $$;

-- name: fold_counters_v1
-- Add deltas up, and end up to BATCH waits whose counter has reached its value. more: as many were ended. is_left:
-- others hold some of the stripes or tasks, so it is worth asking again soon.
CREATE FUNCTION fold_counters_v1(
    _app integer, _now double precision, INOUT limits_locked boolean, OUT woken text[], OUT more boolean,
    OUT is_left boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _collected record;
    _reached bigint[];
    _over record;
    _resumed record;
BEGIN
    woken := '{}';
    more := false;
    SELECT * INTO _collected FROM collect_deltas_v1(_app);
    is_left := _collected.is_left;
    _reached := reached_v1(_app, _collected.names);
    IF _reached = '{}' THEN
        RETURN;
    END IF;
    SELECT * INTO _over FROM judge_waits_v1(_app, _reached, _now);
    more := cardinality(_over.seqs) = 1000;
    SELECT * INTO _resumed FROM resume_v1(_app, _over.seqs, _over.reasons, _over.dues, _now, limits_locked);
    woken := _resumed.woken;
    limits_locked := _resumed.limits_locked;
    IF more OR cardinality(_over.seqs) < cardinality(_reached) THEN
        PERFORM mark_dirty_v1(_app, _collected.names, _now);
        is_left := true;
    END IF;
END $$;
