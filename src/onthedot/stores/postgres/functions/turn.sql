-- turn, the verb: settle and claim, and when to come back.

-- name: pick_v1
-- What an ask's pools take, in the order of the pools.
CREATE FUNCTION pick_v1(
    _app integer, _pools json, _limits_locked boolean, _now double precision, INOUT more_suspects integer, OUT seqs bigint[],
    OUT sources text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _pool json;
    _asked record;
    _taken record;
    _started record;
    _limit record;
BEGIN
    seqs := '{}';
    sources := '{}';
    lanes := '{}';
    FOR _pool IN SELECT value FROM json_array_elements(_pools) LOOP
        SELECT array_agg(q.key ORDER BY q.nth) AS sources, array_agg(least(q.value::integer, CASE
            WHEN EXISTS (SELECT FROM limit_rule AS b WHERE b.app = _app AND b.name = q.key)
            THEN (source_capacity_v1(_app, q.key, _now)).free END) ORDER BY q.nth) AS room
        INTO _asked
        FROM json_each_text(_pool -> 'capacity') WITH ORDINALITY AS q (key, value, nth) WHERE q.value::integer > 0;
        CONTINUE WHEN _asked.sources IS NULL OR (_pool ->> 'total')::integer <= 0;
        SELECT * INTO _taken FROM pick_from_pool_v1(
            _app, _asked.sources, _asked.room, (_pool ->> 'total')::integer, _limits_locked, _now, more_suspects);
        more_suspects := _taken.more_suspects;
        seqs := seqs || _taken.seqs;
        sources := sources || _taken.sources;
        lanes := lanes || _taken.lanes;
        CONTINUE WHEN NOT _limits_locked;  -- then none of its sources has a limit
        FOR _started IN
            SELECT t.source, count(*) AS number FROM unnest(_taken.sources) AS t (source) WHERE EXISTS (
                SELECT FROM limit_rule AS b WHERE b.app = _app AND b.name = t.source AND b.rate IS NOT NULL)
            GROUP BY t.source
        LOOP
            _limit := effective_limit_v1(_app, _started.source);
            PERFORM spend_v1(_app, _started.source, _limit.rate, _limit.burst, _started.number, _now);
        END LOOP;
    END LOOP;
END $$;

-- name: idle_sources_v1
-- Asked sources that have nothing to take now, and for how many ms (null: until something happens).
CREATE FUNCTION idle_sources_v1(_app integer, _pools json, _suspects boolean, _now double precision) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    _source text;
    _room record;
    _idle jsonb := '{}';
BEGIN
    FOR _source IN
        SELECT q.key FROM json_array_elements(_pools) AS pool CROSS JOIN json_each_text(pool -> 'capacity') AS q
        WHERE q.value::integer > 0
    LOOP
        IF NOT EXISTS (SELECT FROM place WHERE app = _app AND kind = 'r' AND source = _source AND NOT suspect)
            AND NOT (_suspects AND EXISTS (
                SELECT FROM place WHERE app = _app AND kind = 'r' AND source = _source AND suspect))
        THEN
            _idle := _idle || jsonb_build_object(_source, NULL);
        ELSIF EXISTS (SELECT FROM limit_rule WHERE app = _app AND name = _source) THEN
            SELECT * INTO _room FROM source_capacity_v1(_app, _source, _now);
            IF _room.free <= 0 THEN
                _idle := _idle || jsonb_build_object(_source, _room.wait);
            END IF;
        END IF;
    END LOOP;
    RETURN _idle;
END $$;

-- name: next_in_v1
-- ms to the next alarm of any kind. What should have happened by now is being done by somebody else: soon.
CREATE FUNCTION next_in_v1(_app integer, _idle json, _now double precision) RETURNS double precision
LANGUAGE plpgsql AS $$
BEGIN
    RETURN least(
        (SELECT min(value::double precision) FROM json_each_text(_idle)),
        (SELECT min(CASE WHEN at > _now THEN at - _now ELSE 100 END) FROM (VALUES
            ((SELECT min(alarm) FROM place WHERE app = _app AND alarm IS NOT NULL)),
            ((SELECT min(refill_at) FROM token_bucket WHERE app = _app AND refill_at IS NOT NULL)),
            ((SELECT min(until) FROM session WHERE app = _app)),
            ((SELECT min(next_at) FROM schedule WHERE app = _app AND next_at > floor(_now)::bigint AND NOT paused))
        ) AS next (at) WHERE at IS NOT NULL));
END $$;

-- name: new_claim_v1
-- A new claim, if there is anything to hold: chores first, then the pools. 0: nothing was taken, no number is used up.
CREATE FUNCTION new_claim_v1(
    _app integer, _session text, _claim_request json, _limits_locked boolean, _suspects integer, _now double precision,
    OUT fence bigint, OUT tasks bigint[], OUT chores bigint[], OUT woken text[], OUT more_suspects integer
) LANGUAGE plpgsql AS $$
DECLARE
    _known text[] := CASE WHEN json_typeof(_claim_request -> 'known') = 'array'
        THEN ARRAY(SELECT json_array_elements_text(_claim_request -> 'known')) END;
    _of_chores text[];
    _sources text[];
    _lanes text[];
    _lane text;
BEGIN
    fence := 0;
    SELECT c.seqs, c.sources, c.woken INTO chores, _of_chores, woken FROM take_chores_v1(_app, _known, _limits_locked, _now) AS c;
    SELECT p.seqs, p.sources, p.lanes, p.more_suspects INTO tasks, _sources, _lanes, more_suspects
    FROM pick_v1(_app, _claim_request -> 'pools', _limits_locked, _now, _suspects) AS p;
    IF chores = '{}' AND tasks = '{}' THEN
        RETURN;
    END IF;
    fence := nextval('fence');
    IF chores <> '{}' THEN
        PERFORM lease_v1(_app, _session, (_claim_request ->> 'number')::bigint, fence, chores, _of_chores, NULL, true, _now);
    END IF;
    IF tasks <> '{}' THEN
        PERFORM lease_v1(
            _app, _session, (_claim_request ->> 'number')::bigint, fence, tasks, _sources, _lanes, false, _now);
    END IF;
    FOR _lane IN SELECT DISTINCT lane FROM unnest(_lanes) AS lane WHERE lane IS NOT NULL LOOP
        woken := woken || admit_v1(_app, _lane, _now);  -- from now on time may open it for the next
    END LOOP;
END $$;

-- name: free_suspects_v1
-- How many more of them a session may run; looked up only where one waits.
CREATE FUNCTION free_suspects_v1(_app integer, _session text, _most integer) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM place WHERE app = _app AND kind = 'r' AND suspect) THEN
        RETURN _most;
    END IF;
    RETURN _most - (SELECT count(*) FROM claim AS c CROSS JOIN unnest(c.seqs) AS held (seq)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE seq = held.seq OFFSET 0) AS t
        WHERE c.app = _app AND c.session = _session AND NOT c.chore AND t.settled_fence < c.fence
            AND t.crashes + 1 >= t.max_crashes);
END $$;

-- name: claim_v1
CREATE FUNCTION claim_v1(
    _app integer, _session text, _claim_request json, _now double precision,
    OUT fence bigint, OUT tasks bigint[], OUT chores bigint[], OUT schedules json, OUT idle json, OUT woken text[],
    OUT next_in double precision, OUT more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _limits_locked boolean := EXISTS (SELECT FROM place WHERE app = _app AND lane IS NOT NULL) OR EXISTS (
        SELECT FROM json_array_elements(_claim_request -> 'pools') AS pool CROSS JOIN json_object_keys(pool -> 'capacity') AS source
        JOIN limit_rule AS b ON b.app = _app AND b.name = source);
    _step record;
    _suspects integer;
BEGIN
    woken := '{}';
    more := false;
    IF _limits_locked THEN
        PERFORM lock_limits_v1(_app);
        SELECT * INTO _step FROM refill_lanes_v1(_app, _now);
        woken := _step.woken;
        more := _step.more;
    END IF;
    SELECT * INTO _step FROM promote_v1(_app, _now, _limits_locked);
    woken := woken || _step.woken;
    more := more OR _step.more;
    _suspects := free_suspects_v1(_app, _session, (_claim_request ->> 'max_suspects')::integer);
    SELECT max(c.fence) INTO fence FROM claim AS c
    WHERE c.app = _app AND c.session = _session AND c.number = (_claim_request ->> 'number')::bigint;
    IF fence IS NOT NULL THEN  -- asked before: what is still held under it
        SELECT coalesce(array_agg(t.seq ORDER BY asked.pool, t.due - t.boost, t.seq) FILTER (WHERE NOT c.chore), '{}'),
            coalesce(array_agg(t.seq ORDER BY t.seq) FILTER (WHERE c.chore), '{}')
        INTO tasks, chores
        FROM claim AS c CROSS JOIN unnest(c.seqs) AS held (seq)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE task.seq = held.seq OFFSET 0) AS t
        LEFT JOIN LATERAL (
            SELECT min(pool.nth) AS pool FROM json_array_elements(_claim_request -> 'pools') WITH ORDINALITY AS pool (value, nth)
            WHERE pool.value -> 'capacity' -> t.source IS NOT NULL
        ) AS asked ON true
        WHERE c.fence = claim_v1.fence AND t.settled_fence < c.fence;
    ELSIF (_claim_request ->> 'repeat')::boolean THEN
        tasks := '{}';
        chores := '{}';
    ELSE
        SELECT * INTO _step FROM new_claim_v1(_app, _session, _claim_request, _limits_locked, _suspects, _now);
        fence := _step.fence;
        tasks := _step.tasks;
        chores := _step.chores;
        woken := woken || _step.woken;
        _suspects := _step.more_suspects;
    END IF;
    fence := CASE WHEN tasks = '{}' AND chores = '{}' THEN 0 ELSE fence END;
    more := more OR cardinality(chores) >= 100;
    SELECT json_agg(json_build_array(name, encode(rule, 'hex'), definition_digest, next_at, rev, paused, last_at, runs, incoming))
    INTO schedules FROM schedule WHERE app = _app AND next_at <= floor(_now)::bigint AND NOT paused;
    idle := idle_sources_v1(_app, _claim_request -> 'pools', _suspects > 0, _now);
    next_in := next_in_v1(_app, idle, _now);
END $$;

-- name: turn_v1
-- {"app", "now", "session", "ask"}, outcomes: […]. Records come as arrays: one decoding for all of them.
CREATE FUNCTION turn_v1(
    _request json, _outcomes json, OUT verdicts text[], OUT alive boolean, OUT fence bigint, OUT number integer,
    OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[], OUT lanes text[], OUT unique_keys text[],
    OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[], OUT states text[], OUT histories text[], OUT schedules json,
    OUT idle json, OUT woken text[], OUT next_in double precision, OUT more boolean, OUT moment double precision,
    OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _claim_request json := CASE WHEN json_typeof(_request -> 'claim') = 'object' THEN _request -> 'claim' END;
    _settled record;
    _claimed record;
    _ended json;
BEGIN
    moment := _now;
    woken := '{}';
    IF _claim_request IS NOT NULL THEN  -- a repeat waits for the first to end, which may still be under way
        PERFORM pg_advisory_xact_lock(hashtextextended(_session, _app));
    END IF;
    PERFORM FROM session WHERE app = _app AND name = _session FOR KEY SHARE;
    IF json_array_length(_outcomes) > 0 THEN
        SELECT * INTO _settled FROM settle_v1(_app, _outcomes,
            ARRAY(SELECT json_array_elements_text(_request -> 'sessions')), _now, false);
        verdicts := _settled.verdicts;
        woken := _settled.woken;
        _ended := _settled.ended;
    END IF;
    IF _claim_request IS NOT NULL THEN
        woken := woken || reap_overdue_v1(_app, _now);
    END IF;
    alive := EXISTS (SELECT FROM session AS s WHERE s.app = _app AND s.name = _session AND s.info IS NOT NULL);
    IF alive AND _claim_request IS NOT NULL THEN
        DELETE FROM claim AS c WHERE c.app = _app AND c.session = _session AND NOT EXISTS (
            SELECT FROM task AS t WHERE t.seq = ANY (c.seqs) AND t.settled_fence < c.fence OFFSET 0);
        SELECT * INTO _claimed FROM claim_v1(_app, _session, _claim_request, _now);
        fence := _claimed.fence;
        number := cardinality(_claimed.tasks);
        schedules := _claimed.schedules;
        idle := _claimed.idle;
        next_in := _claimed.next_in;
        more := _claimed.more;
        woken := woken || _claimed.woken;
        SELECT r.uuids, r.sources, r.bodies, r.policies, r.lanes, r.unique_keys, r.dues, r.seqs, r.addeds, r.states, r.histories
        INTO uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories
        FROM records_v1(_claimed.tasks || _claimed.chores) AS r;
    END IF;
    woken := ARRAY(SELECT DISTINCT source FROM unnest(woken) AS source);
    notification := json_build_object('sources', woken, 'ended', _ended);
END $$;

-- name: records_v1
CREATE FUNCTION records_v1(
    _seqs bigint[], OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[], OUT lanes text[],
    OUT unique_keys text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[], OUT states text[], OUT histories text[]
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT array_agg(t.uuid), array_agg(t.source), array_agg(t.body), array_agg(t.policy), array_agg(t.lane),
        array_agg(t.unique_key), array_agg(t.due), array_agg(t.seq), array_agg(t.added), array_agg(t.state),
        array_agg(t.history)
    INTO uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories
    FROM (
        SELECT one.*, history_v1(one) AS history FROM unnest(_seqs) WITH ORDINALITY AS wanted (seq, nth)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE task.seq = wanted.seq OFFSET 0) AS one ORDER BY wanted.nth
    ) AS t;
END $$;
