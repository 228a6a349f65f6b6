-- turn, the verb: settle and claim, and when to come back.

-- name: pools_v1
-- What an ask's pools take, in the order of the pools.
CREATE FUNCTION pools_v1(
    _app integer, _pools json, _laned boolean, _now double precision, INOUT more_suspects integer, OUT seqs bigint[],
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
            WHEN EXISTS (SELECT FROM bound AS b WHERE b.app = _app AND b.name = q.key)
            THEN (room_v1(_app, q.key, _now)).free END) ORDER BY q.nth) AS room
        INTO _asked
        FROM json_each_text(_pool -> 'room') WITH ORDINALITY AS q (key, value, nth) WHERE q.value::integer > 0;
        CONTINUE WHEN _asked.sources IS NULL OR (_pool ->> 'total')::integer <= 0;
        SELECT * INTO _taken FROM take_v1(
            _app, _asked.sources, _asked.room, (_pool ->> 'total')::integer, _laned, _now, more_suspects);
        more_suspects := _taken.more_suspects;
        seqs := seqs || _taken.seqs;
        sources := sources || _taken.sources;
        lanes := lanes || _taken.lanes;
        CONTINUE WHEN NOT _laned;  -- then none of its sources has a limit
        FOR _started IN
            SELECT t.source, count(*) AS number FROM unnest(_taken.sources) AS t (source) WHERE EXISTS (
                SELECT FROM bound AS b WHERE b.app = _app AND b.name = t.source AND b.rate IS NOT NULL)
            GROUP BY t.source
        LOOP
            _limit := limit_v1(_app, _started.source);
            PERFORM spend_v1(_app, _started.source, _limit.rate, _limit.burst, _started.number, _now);
        END LOOP;
    END LOOP;
END $$;

-- name: rest_v1
-- Asked sources that have nothing to take now, and for how many ms (null: until something happens).
CREATE FUNCTION rest_v1(_app integer, _pools json, _suspects boolean, _now double precision) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    _source text;
    _room record;
    _rest jsonb := '{}';
BEGIN
    FOR _source IN
        SELECT q.key FROM json_array_elements(_pools) AS pool CROSS JOIN json_each_text(pool -> 'room') AS q
        WHERE q.value::integer > 0
    LOOP
        IF NOT EXISTS (SELECT FROM place WHERE app = _app AND kind = 'r' AND source = _source AND NOT suspect)
            AND NOT (_suspects AND EXISTS (
                SELECT FROM place WHERE app = _app AND kind = 'r' AND source = _source AND suspect))
        THEN
            _rest := _rest || jsonb_build_object(_source, NULL);
        ELSIF EXISTS (SELECT FROM bound WHERE app = _app AND name = _source) THEN
            SELECT * INTO _room FROM room_v1(_app, _source, _now);
            IF _room.free <= 0 THEN
                _rest := _rest || jsonb_build_object(_source, _room.wait);
            END IF;
        END IF;
    END LOOP;
    RETURN _rest;
END $$;

-- name: next_v1
-- ms to the next alarm of any kind. What should have happened by now is being done by somebody else: soon.
CREATE FUNCTION next_v1(_app integer, _rest json, _now double precision) RETURNS double precision
LANGUAGE plpgsql AS $$
BEGIN
    RETURN least(
        (SELECT min(value::double precision) FROM json_each_text(_rest)),
        (SELECT min(CASE WHEN at > _now THEN at - _now ELSE 100 END) FROM (VALUES
            ((SELECT min(alarm) FROM place WHERE app = _app AND alarm IS NOT NULL)),
            ((SELECT min(refill_at) FROM bucket WHERE app = _app AND refill_at IS NOT NULL)),
            ((SELECT min(until) FROM session WHERE app = _app)),
            ((SELECT min(next_at) FROM schedule WHERE app = _app AND next_at > floor(_now)::bigint AND NOT paused))
        ) AS next (at) WHERE at IS NOT NULL));
END $$;

-- name: take_all_v1
-- A new claim, if there is anything to hold: chores first, then the pools. 0: nothing was taken, no number is used up.
CREATE FUNCTION take_all_v1(
    _app integer, _session text, _ask json, _laned boolean, _suspects integer, _now double precision,
    OUT fence bigint, OUT tasks bigint[], OUT chores bigint[], OUT woke text[], OUT more_suspects integer
) LANGUAGE plpgsql AS $$
DECLARE
    _known text[] := CASE WHEN json_typeof(_ask -> 'known') = 'array'
        THEN ARRAY(SELECT json_array_elements_text(_ask -> 'known')) END;
    _of_chores text[];
    _sources text[];
    _lanes text[];
    _lane text;
BEGIN
    fence := 0;
    SELECT c.seqs, c.sources, c.woke INTO chores, _of_chores, woke FROM take_chores_v1(_app, _known, _laned, _now) AS c;
    SELECT p.seqs, p.sources, p.lanes, p.more_suspects INTO tasks, _sources, _lanes, more_suspects
    FROM pools_v1(_app, _ask -> 'pools', _laned, _now, _suspects) AS p;
    IF chores = '{}' AND tasks = '{}' THEN
        RETURN;
    END IF;
    fence := nextval('fence');
    IF chores <> '{}' THEN
        PERFORM hold_v1(_app, _session, (_ask ->> 'number')::bigint, fence, chores, _of_chores, NULL, true, _now);
    END IF;
    IF tasks <> '{}' THEN
        PERFORM hold_v1(
            _app, _session, (_ask ->> 'number')::bigint, fence, tasks, _sources, _lanes, false, _now);
    END IF;
    FOR _lane IN SELECT DISTINCT lane FROM unnest(_lanes) AS lane WHERE lane IS NOT NULL LOOP
        woke := woke || admit_v1(_app, _lane, _now);  -- from now on time may open it for the next
    END LOOP;
END $$;

-- name: suspects_v1
-- How many more of them a session may run; looked up only where one waits.
CREATE FUNCTION suspects_v1(_app integer, _session text, _most integer) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM place WHERE app = _app AND kind = 'r' AND suspect) THEN
        RETURN _most;
    END IF;
    RETURN _most - (SELECT count(*) FROM claim AS c CROSS JOIN unnest(c.seqs) AS held (seq)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE seq = held.seq OFFSET 0) AS t
        WHERE c.app = _app AND c.session = _session AND NOT c.chore AND t.settled < c.fence
            AND t.crashes + 1 >= t.max_crashes);
END $$;

-- name: claim_v1
CREATE FUNCTION claim_v1(
    _app integer, _session text, _ask json, _now double precision,
    OUT fence bigint, OUT tasks bigint[], OUT chores bigint[], OUT schedules json, OUT rest json, OUT woke text[],
    OUT next_in double precision, OUT more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _laned boolean := EXISTS (SELECT FROM place WHERE app = _app AND lane IS NOT NULL) OR EXISTS (
        SELECT FROM json_array_elements(_ask -> 'pools') AS pool CROSS JOIN json_object_keys(pool -> 'room') AS source
        JOIN bound AS b ON b.app = _app AND b.name = source);
    _step record;
    _suspects integer;
BEGIN
    woke := '{}';
    more := false;
    IF _laned THEN
        PERFORM gate_v1(_app);
        SELECT * INTO _step FROM refilled_v1(_app, _now);
        woke := _step.woke;
        more := _step.more;
    END IF;
    SELECT * INTO _step FROM promote_v1(_app, _now, _laned);
    woke := woke || _step.woke;
    more := more OR _step.more;
    _suspects := suspects_v1(_app, _session, (_ask ->> 'suspects')::integer);
    SELECT max(c.fence) INTO fence FROM claim AS c
    WHERE c.app = _app AND c.session = _session AND c.number = (_ask ->> 'number')::bigint;
    IF fence IS NOT NULL THEN  -- asked before: what is still held under it
        SELECT coalesce(array_agg(t.seq ORDER BY asked.pool, t.due - t.boost, t.seq) FILTER (WHERE NOT c.chore), '{}'),
            coalesce(array_agg(t.seq ORDER BY t.seq) FILTER (WHERE c.chore), '{}')
        INTO tasks, chores
        FROM claim AS c CROSS JOIN unnest(c.seqs) AS held (seq)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE task.seq = held.seq OFFSET 0) AS t
        LEFT JOIN LATERAL (
            SELECT min(pool.nth) AS pool FROM json_array_elements(_ask -> 'pools') WITH ORDINALITY AS pool (value, nth)
            WHERE pool.value -> 'room' -> t.source IS NOT NULL
        ) AS asked ON true
        WHERE c.fence = claim_v1.fence AND t.settled < c.fence;
    ELSIF (_ask ->> 'repeat')::boolean THEN
        tasks := '{}';
        chores := '{}';
    ELSE
        SELECT * INTO _step FROM take_all_v1(_app, _session, _ask, _laned, _suspects, _now);
        fence := _step.fence;
        tasks := _step.tasks;
        chores := _step.chores;
        woke := woke || _step.woke;
        _suspects := _step.more_suspects;
    END IF;
    fence := CASE WHEN tasks = '{}' AND chores = '{}' THEN 0 ELSE fence END;
    more := more OR cardinality(chores) >= 100;
    SELECT json_agg(json_build_array(name, encode(rule, 'hex'), definition_digest, next_at, rev, paused, last_at, runs, incoming))
    INTO schedules FROM schedule WHERE app = _app AND next_at <= floor(_now)::bigint AND NOT paused;
    rest := rest_v1(_app, _ask -> 'pools', _suspects > 0, _now);
    next_in := next_v1(_app, rest, _now);
END $$;

-- name: turn_v1
-- {"app", "now", "session", "ask"}, outcomes: […]. Records come as arrays: one decoding for all of them.
CREATE FUNCTION turn_v1(
    _said json, _outcomes json, OUT verdicts text[], OUT alive boolean, OUT fence bigint, OUT number integer,
    OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[], OUT lanes text[], OUT uniqs text[],
    OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[], OUT states text[], OUT pasts text[], OUT schedules json,
    OUT rest json, OUT woke text[], OUT next_in double precision, OUT more boolean, OUT moment double precision,
    OUT told json
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_said ->> 'app');
    _now double precision := now_v1((_said ->> 'now')::double precision);
    _session text := _said ->> 'session';
    _ask json := CASE WHEN json_typeof(_said -> 'ask') = 'object' THEN _said -> 'ask' END;
    _settled record;
    _claimed record;
    _ended json;
BEGIN
    moment := _now;
    woke := '{}';
    IF _ask IS NOT NULL THEN  -- a repeat waits for the first to end, which may still be under way
        PERFORM pg_advisory_xact_lock(hashtextextended(_session, _app));
    END IF;
    PERFORM FROM session WHERE app = _app AND name = _session FOR KEY SHARE;
    IF json_array_length(_outcomes) > 0 THEN
        SELECT * INTO _settled FROM settle_v1(_app, _outcomes,
            ARRAY(SELECT json_array_elements_text(_said -> 'sessions')), _now, false);
        verdicts := _settled.verdicts;
        woke := _settled.woke;
        _ended := _settled.ended;
    END IF;
    IF _ask IS NOT NULL THEN
        woke := woke || reap_v1(_app, _now);
    END IF;
    alive := EXISTS (SELECT FROM session AS s WHERE s.app = _app AND s.name = _session AND s.info IS NOT NULL);
    IF alive AND _ask IS NOT NULL THEN
        DELETE FROM claim AS c WHERE c.app = _app AND c.session = _session AND NOT EXISTS (
            SELECT FROM task AS t WHERE t.seq = ANY (c.seqs) AND t.settled < c.fence OFFSET 0);
        SELECT * INTO _claimed FROM claim_v1(_app, _session, _ask, _now);
        fence := _claimed.fence;
        number := cardinality(_claimed.tasks);
        schedules := _claimed.schedules;
        rest := _claimed.rest;
        next_in := _claimed.next_in;
        more := _claimed.more;
        woke := woke || _claimed.woke;
        SELECT r.uuids, r.sources, r.bodies, r.policies, r.lanes, r.uniqs, r.dues, r.seqs, r.addeds, r.states, r.pasts
        INTO uuids, sources, bodies, policies, lanes, uniqs, dues, seqs, addeds, states, pasts
        FROM records_v1(_claimed.tasks || _claimed.chores) AS r;
    END IF;
    woke := ARRAY(SELECT DISTINCT source FROM unnest(woke) AS source);
    told := json_build_object('sources', woke, 'ended', _ended);
END $$;

-- name: records_v1
CREATE FUNCTION records_v1(
    _seqs bigint[], OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[], OUT lanes text[],
    OUT uniqs text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[], OUT states text[], OUT pasts text[]
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT array_agg(t.uuid), array_agg(t.source), array_agg(t.body), array_agg(t.policy), array_agg(t.lane),
        array_agg(t.uniq), array_agg(t.due), array_agg(t.seq), array_agg(t.added), array_agg(t.state),
        array_agg(t.past)
    INTO uuids, sources, bodies, policies, lanes, uniqs, dues, seqs, addeds, states, pasts
    FROM (
        SELECT one.*, past_v1(one) AS past FROM unnest(_seqs) WITH ORDINALITY AS wanted (seq, nth)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE task.seq = wanted.seq OFFSET 0) AS one ORDER BY wanted.nth
    ) AS t;
END $$;
