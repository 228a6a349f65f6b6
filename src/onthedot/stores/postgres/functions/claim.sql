-- claim: lease ready tasks and chores to a session, and report when it is worth asking again.

-- name: take_chores_v1
-- Take up to 100 tasks that must end out of their places, in the order of becoming chores, whatever the limits.
CREATE FUNCTION take_chores_v1(_app integer, OUT seqs bigint[], OUT sources text[]) LANGUAGE plpgsql AS $$
BEGIN
    WITH taken AS (
        DELETE FROM place WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM place WHERE app = _app AND kind = 'c' ORDER BY rank LIMIT 100 FOR UPDATE SKIP LOCKED
        )) RETURNING seq, source, rank
    )
    SELECT coalesce(array_agg(seq ORDER BY rank), '{}'), array_agg(source::text ORDER BY rank) INTO seqs, sources
    FROM taken;
END $$;

-- name: find_ready_v1
-- Lock the first ready tasks of several sources: as many of each as have capacity, plus as many as were parked before,
-- so that not every parked task costs another call. By (rank, seq), one array per column. is_plain: no suspect and no
-- task with a lane is among them.
CREATE FUNCTION find_ready_v1(
    _app integer, _sources text[], _capacity integer[], _parked integer[], _total integer, _with_suspects boolean,
    _limits_locked boolean, OUT most integer[], OUT ctids tid[], OUT seqs bigint[], OUT sources text[],
    OUT lanes text[], OUT nths bigint[], OUT costs double precision[], OUT suspects boolean[], OUT is_plain boolean
) LANGUAGE plpgsql AS $$
BEGIN
    most := ARRAY(
        SELECT CASE WHEN least(q.free, _total) > 0 THEN least(q.free, _total) + q.parked ELSE 0 END
        FROM unnest(_capacity, _parked) WITH ORDINALITY AS q (free, parked, nth) ORDER BY q.nth
    );
    SELECT array_agg(f.ctid), array_agg(f.seq), array_agg(f.source::text), array_agg(f.lane::text), array_agg(f.nth),
        array_agg(f.cost), array_agg(f.suspect), bool_and(NOT f.suspect AND f.lane IS NULL)
    INTO ctids, seqs, sources, lanes, nths, costs, suspects, is_plain
    FROM (
        SELECT q.nth, found.* FROM unnest(_sources, most) WITH ORDINALITY AS q (source, limited, nth)
        CROSS JOIN (VALUES (false), (true)) AS kinds (suspect)
        CROSS JOIN LATERAL (
            SELECT ctid, seq, rank, suspect, lane, cost, source FROM place
            WHERE app = _app AND kind = 'r' AND source = q.source AND suspect = kinds.suspect
                AND (_with_suspects OR NOT kinds.suspect) AND (_limits_locked OR lane IS NULL)
            ORDER BY rank, seq LIMIT q.limited FOR UPDATE SKIP LOCKED
        ) AS found ORDER BY found.rank, found.seq
    ) AS f;
END $$;

-- name: pick_from_pool_v1
-- Take ready tasks of one pool by (rank, seq) over its sources, at most `capacity` of each and `total` in all. A task
-- whose lane has no capacity is parked and the next one is picked, up to BATCH parked tasks. free_suspects: how many
-- more suspects the session may run.
CREATE FUNCTION pick_from_pool_v1(
    _app integer, _sources text[], _capacity integer[], _total integer, _limits_locked boolean, _now double precision,
    INOUT free_suspects integer, OUT seqs bigint[], OUT sources text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _found record;
    _next record;
    _taken tid[];
    _parked bigint[];
    _parked_of integer[] := array_fill(0, ARRAY[cardinality(_sources)]);  -- per source, in all rounds
    _parked_count integer := 0;
BEGIN
    seqs := '{}';
    sources := '{}';
    lanes := '{}';
    LOOP
        _taken := '{}';
        _parked := '{}';
        SELECT * INTO _found FROM find_ready_v1(
            _app, _sources, _capacity, _parked_of, _total, free_suspects > 0, _limits_locked);
        IF _found.is_plain AND _parked_count = 0 THEN  -- no capacity is exceeded, because no more were read
            seqs := _found.seqs[:_total];
            sources := _found.sources[:_total];
            lanes := _found.lanes[:_total];
            DELETE FROM place WHERE ctid = ANY (_found.ctids[:_total]);
            RETURN;
        END IF;
        FOR _next IN SELECT *, row_number() OVER (PARTITION BY nth, suspect ORDER BY pos) AS read_count
            FROM unnest(_found.ctids, _found.seqs, _found.sources, _found.lanes, _found.nths, _found.costs,
                _found.suspects) WITH ORDINALITY AS f (ctid, seq, source, lane, nth, cost, suspect, pos) ORDER BY pos
        LOOP
            EXIT WHEN cardinality(_taken) >= _total OR _parked_count >= 1000;
            CONTINUE WHEN _capacity[_next.nth] <= 0 OR _next.suspect AND free_suspects <= 0;
            IF _next.lane IS NOT NULL AND NOT may_start_v1(
                _app, _next.lane, _next.cost, cardinality(array_positions(lanes, _next.lane)), _now
            ) THEN
                PERFORM park_v1(_app, _next.seq, _next.source, 'ready');
                _parked := _parked || _next.seq;
                _parked_count := _parked_count + 1;
                _parked_of[_next.nth] := _parked_of[_next.nth] + 1;
            ELSE
                _taken := _taken || _next.ctid;
                seqs := seqs || _next.seq;
                sources := sources || _next.source;
                lanes := lanes || _next.lane;
                _capacity[_next.nth] := _capacity[_next.nth] - 1;
                free_suspects := free_suspects - _next.suspect::integer;
            END IF;
            -- After the last one that was read of a source, its next task must be read first.
            EXIT WHEN _capacity[_next.nth] > 0 AND _next.read_count = _found.most[_next.nth];
        END LOOP;
        DELETE FROM place WHERE ctid = ANY (_taken);
        EXIT WHEN _parked = '{}';
        PERFORM log_transitions_v1(_app, _now, 'parked', _parked, ARRAY(
            SELECT f.source FROM unnest(_found.seqs, _found.sources) AS f (seq, source) WHERE f.seq = ANY (_parked)));
        EXIT WHEN _parked_count >= 1000;
        _total := _total - cardinality(_taken);
    END LOOP;
END $$;

-- name: pick_v1
-- Take ready tasks for the pools of a claim request, pool by pool, and spend the tokens of their sources.
CREATE FUNCTION pick_v1(
    _app integer, _pools json, _limits_locked boolean, _now double precision, INOUT free_suspects integer,
    OUT seqs bigint[], OUT sources text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _pool json;
    _offered record;
    _picked record;
    _started record;
    _limit record;
BEGIN
    seqs := '{}';
    sources := '{}';
    lanes := '{}';
    FOR _pool IN SELECT value FROM json_array_elements(_pools) LOOP
        SELECT array_agg(q.key ORDER BY q.nth) AS sources, array_agg(least(q.value::integer, CASE
            WHEN EXISTS (SELECT FROM limit_rule AS r WHERE r.app = _app AND r.name = q.key)
            THEN (source_capacity_v1(_app, q.key, _now)).free END) ORDER BY q.nth) AS capacity
        INTO _offered
        FROM json_each_text(_pool -> 'capacity') WITH ORDINALITY AS q (key, value, nth) WHERE q.value::integer > 0;
        CONTINUE WHEN _offered.sources IS NULL OR (_pool ->> 'total')::integer <= 0;
        SELECT * INTO _picked FROM pick_from_pool_v1(_app, _offered.sources, _offered.capacity,
            (_pool ->> 'total')::integer, _limits_locked, _now, free_suspects);
        free_suspects := _picked.free_suspects;
        seqs := seqs || _picked.seqs;
        sources := sources || _picked.sources;
        lanes := lanes || _picked.lanes;
        CONTINUE WHEN NOT _limits_locked;  -- then none of its sources has a limit
        FOR _started IN
            SELECT t.source, count(*) AS number FROM unnest(_picked.sources) AS t (source) WHERE EXISTS (
                SELECT FROM limit_rule AS r WHERE r.app = _app AND r.name = t.source AND r.rate IS NOT NULL)
            GROUP BY t.source
        LOOP
            _limit := effective_limit_v1(_app, _started.source);
            PERFORM spend_v1(_app, _started.source, _limit.rate, _limit.burst, _started.number, _now);
        END LOOP;
    END LOOP;
END $$;

-- name: lease_v1
-- Write the lease of tasks: one entry per source and lane. The task rows are not touched.
CREATE FUNCTION lease_v1(
    _app integer, _session text, _number bigint, _fence bigint, _seqs bigint[], _sources text[], _lanes text[],
    _chore boolean, _now double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH leased AS (
        INSERT INTO claim
        SELECT _fence, _app, _session, _number, t.source, t.lane, _chore, floor(_now), array_agg(t.seq)
        FROM unnest(_seqs, _sources, _lanes) AS t (seq, source, lane) GROUP BY t.source, t.lane
        RETURNING source, cardinality(seqs) AS number
    )
    INSERT INTO tally SELECT _app, source, state, sum(number) * sign FROM leased
    CROSS JOIN (VALUES ('ready', -1), ('running', 1)) AS deltas (state, sign)
    WHERE NOT _chore GROUP BY source, state, sign;
    IF NOT _chore THEN
        PERFORM log_transitions_v1(_app, _now, 'running', _seqs, _sources);
    END IF;
END $$;

-- name: lease_pending_v1
-- Lease pending tasks, whose places are locked, to a caller that ends or moves them; in the order of the uuids.
-- fence = 0: there was none.
CREATE FUNCTION lease_pending_v1(
    _app integer, _session text, _pending bigint[], _uuids text[], _reason text, _now double precision,
    OUT fence bigint, OUT seqs bigint[], OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _place place;
    _sources text[] := '{}';
    _waiting record;
BEGIN
    fence := 0;
    woken := '{}';
    IF EXISTS (SELECT FROM place WHERE seq = ANY (_pending) AND lane IS NOT NULL) THEN
        PERFORM lock_limits_v1(_app);
    END IF;
    SELECT array_agg(seq) AS seqs, array_agg(_reason) AS reasons, array_agg(due) AS dues INTO _waiting FROM task
    WHERE seq = ANY (ARRAY(SELECT seq FROM place WHERE seq = ANY (_pending) AND kind = 'w'));
    IF _waiting.seqs IS NOT NULL THEN
        PERFORM end_waits_v1(_app, _waiting.seqs, _waiting.reasons, _waiting.dues, _now);
    END IF;
    seqs := ARRAY(
        SELECT t.seq FROM unnest(_uuids) WITH ORDINALITY AS u (uuid, nth)
        JOIN task AS t ON t.seq = ANY (_pending) AND t.uuid = u.uuid GROUP BY t.seq ORDER BY min(u.nth));
    IF seqs = '{}' THEN
        RETURN;
    END IF;
    _sources := ARRAY(SELECT p.source FROM unnest(seqs) WITH ORDINALITY AS u (seq, nth)
        CROSS JOIN LATERAL (SELECT source FROM place WHERE seq = u.seq OFFSET 0) AS p ORDER BY u.nth);
    PERFORM take_unlaned_v1(_app, seqs, _reason, _now);
    FOR _place IN SELECT p.* FROM unnest(seqs) WITH ORDINALITY AS u (seq, nth)  -- those that have a lane
        JOIN place AS p ON p.seq = ANY (seqs) AND p.seq = u.seq ORDER BY u.nth
    LOOP
        IF _place.kind NOT IN ('c', 'l') THEN
            PERFORM end_as_chore_v1(_place.seq, _reason, _now);
        END IF;
        IF _reason = 'cancel' THEN
            UPDATE task SET cancel_requested = true, reason = 'cancel' WHERE seq = _place.seq;
        END IF;
        DELETE FROM place WHERE seq = _place.seq;
        IF _place.kind IN ('r', 'p') THEN
            woken := woken || admit_v1(_app, ARRAY[_place.lane::text], _now);
        END IF;
    END LOOP;
    fence := nextval('fence');
    PERFORM lease_v1(_app, _session, 0, fence, seqs, _sources, NULL, true, _now);
END $$;

-- name: free_suspects_v1
-- How many more suspects a session may run; counted only where one is ready.
CREATE FUNCTION free_suspects_v1(_app integer, _session text, _max_suspects integer) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM place WHERE app = _app AND kind = 'r' AND suspect) THEN
        RETURN _max_suspects;
    END IF;
    RETURN _max_suspects - (SELECT count(*) FROM claim AS c CROSS JOIN unnest(c.seqs) AS leased (seq)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE seq = leased.seq OFFSET 0) AS t
        WHERE c.app = _app AND c.session = _session AND NOT c.chore AND t.settled_fence < c.fence
            AND t.crashes + 1 >= t.max_crashes);
END $$;

-- name: new_claim_v1
-- Take chores, then ready tasks, and lease them. fence = 0: nothing was taken.
CREATE FUNCTION new_claim_v1(
    _app integer, _session text, _claim_request json, _limits_locked boolean, _now double precision,
    INOUT free_suspects integer, OUT fence bigint, OUT tasks bigint[], OUT chores bigint[], OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _number bigint := (_claim_request ->> 'number')::bigint;
    _sources_of_chores text[];
    _sources text[];
    _lanes text[];
BEGIN
    fence := 0;
    woken := '{}';
    chores := '{}';
    IF EXISTS (SELECT FROM place WHERE app = _app AND kind = 'c') THEN
        SELECT c.seqs, c.sources INTO chores, _sources_of_chores FROM take_chores_v1(_app) AS c;
    END IF;
    SELECT p.seqs, p.sources, p.lanes, p.free_suspects INTO tasks, _sources, _lanes, free_suspects
    FROM pick_v1(_app, _claim_request -> 'pools', _limits_locked, _now, free_suspects) AS p;
    IF chores = '{}' AND tasks = '{}' THEN
        RETURN;
    END IF;
    fence := nextval('fence');
    IF chores <> '{}' THEN
        PERFORM lease_v1(_app, _session, _number, fence, chores, _sources_of_chores, NULL, true, _now);
    END IF;
    IF tasks <> '{}' THEN
        PERFORM lease_v1(_app, _session, _number, fence, tasks, _sources, _lanes, false, _now);
    END IF;
    IF _limits_locked THEN  -- otherwise none has a lane. Sets the times at which their next tasks are admitted.
        woken := admit_v1(_app, ARRAY(SELECT DISTINCT lane FROM unnest(_lanes) AS lane WHERE lane IS NOT NULL), _now);
    END IF;
END $$;

-- name: repeat_claim_v1
-- The tasks and chores that are still leased under a fence, in the order of the first answer.
CREATE FUNCTION repeat_claim_v1(_fence bigint, _pools json, OUT tasks bigint[], OUT chores bigint[])
LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(array_agg(t.seq ORDER BY p.pool, t.due - t.boost, t.seq) FILTER (WHERE NOT c.chore), '{}'),
        coalesce(array_agg(t.seq ORDER BY t.seq) FILTER (WHERE c.chore), '{}')
    INTO tasks, chores
    FROM claim AS c CROSS JOIN unnest(c.seqs) AS leased (seq)
    CROSS JOIN LATERAL (SELECT * FROM task WHERE task.seq = leased.seq OFFSET 0) AS t
    LEFT JOIN LATERAL (
        SELECT min(pool.nth) AS pool FROM json_array_elements(_pools) WITH ORDINALITY AS pool (value, nth)
        WHERE pool.value -> 'capacity' -> t.source IS NOT NULL
    ) AS p ON true
    WHERE c.fence = _fence AND t.settled_fence < c.fence;
END $$;

-- name: renew_leases_v1
-- Lease the tasks of a session again, under a new fence: the store has lost outcomes of it. fence = NULL: there are none.
CREATE FUNCTION renew_leases_v1(
    _app integer, _session text, _number bigint, _now double precision, OUT fence bigint
) LANGUAGE plpgsql AS $$
DECLARE
    _new_fence bigint := nextval('fence');
BEGIN
    UPDATE claim AS c SET fence = _new_fence, number = _number, at = floor(_now), seqs = ARRAY(
        SELECT leased.seq FROM unnest(c.seqs) WITH ORDINALITY AS leased (seq, nth)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE task.seq = leased.seq OFFSET 0) AS t
        WHERE t.settled_fence < c.fence ORDER BY leased.nth)
    WHERE c.app = _app AND c.session = _session;
    DELETE FROM claim AS c WHERE c.app = _app AND c.session = _session AND c.seqs = '{}';
    SELECT max(c.fence) INTO fence FROM claim AS c WHERE c.app = _app AND c.session = _session;
END $$;

-- name: idle_sources_v1
-- Requested sources without work, each with the ms until it is worth asking again (null: on a hint). last: the last task
-- that this claim took, or null. The places behind it are read first: the index still has those before it, which were
-- deleted.
CREATE FUNCTION idle_sources_v1(
    _app integer, _pools json, _with_suspects boolean, _last bigint, _now double precision
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    _last_rank bigint := (SELECT due - boost FROM task WHERE seq = _last);
    _source text;
    _capacity record;
    _idle jsonb := '{}';
BEGIN
    FOR _source IN
        SELECT q.key FROM json_array_elements(_pools) AS pool CROSS JOIN json_each_text(pool -> 'capacity') AS q
        WHERE q.value::integer > 0
    LOOP
        IF NOT EXISTS (SELECT FROM place WHERE app = _app AND kind = 'r' AND source = _source AND NOT suspect
                AND (rank, seq) > (_last_rank, _last))
            AND NOT EXISTS (SELECT FROM place WHERE app = _app AND kind = 'r' AND source = _source AND NOT suspect)
            AND NOT (_with_suspects AND EXISTS (
                SELECT FROM place WHERE app = _app AND kind = 'r' AND source = _source AND suspect))
        THEN
            _idle := _idle || jsonb_build_object(_source, NULL);
        ELSIF EXISTS (SELECT FROM limit_rule WHERE app = _app AND name = _source) THEN
            SELECT * INTO _capacity FROM source_capacity_v1(_app, _source, _now);
            IF _capacity.free <= 0 THEN
                _idle := _idle || jsonb_build_object(_source, _capacity.wait);
            END IF;
        END IF;
    END LOOP;
    RETURN _idle;
END $$;

-- name: next_in_v1
-- ms to the next alarm of any kind. Another worker is handling what is overdue: ask again soon.
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

-- name: claim_v1
-- Drop settled claims, refill lanes, end waits, promote alarms, then claim. The last number of the session again claims
-- nothing new; a lower number is a request that was delivered late, and takes nothing; after a gap in the numbers, the
-- leases of the session are renewed.
CREATE FUNCTION claim_v1(
    _app integer, _session text, _claim_request json, _last_number bigint, _now double precision,
    OUT fence bigint, OUT tasks bigint[], OUT chores bigint[], OUT schedules json, OUT idle json, OUT woken text[],
    OUT next_in double precision, OUT more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _pools json := _claim_request -> 'pools';
    _number bigint := (_claim_request ->> 'number')::bigint;
    _limits_locked boolean := EXISTS (SELECT FROM place WHERE app = _app AND lane IS NOT NULL) OR EXISTS (
        SELECT FROM json_array_elements(_pools) AS pool CROSS JOIN json_object_keys(pool -> 'capacity') AS source
        JOIN limit_rule AS r ON r.app = _app AND r.name = source);
    _step record;
    _folded record;
    _free_suspects integer;
BEGIN
    DELETE FROM claim AS c WHERE c.app = _app AND c.session = _session AND NOT EXISTS (
        SELECT FROM task AS t WHERE t.seq = ANY (c.seqs) AND t.settled_fence < c.fence OFFSET 0);
    woken := '{}';
    more := _number > _last_number + 1;
    IF _limits_locked THEN
        PERFORM lock_limits_v1(_app);
        SELECT * INTO _step FROM refill_lanes_v1(_app, _now);
        woken := _step.woken;
        more := more OR _step.more;
    END IF;
    SELECT * INTO _folded FROM fold_counters_v1(_app, _now, _limits_locked)
    WHERE EXISTS (SELECT FROM counter_delta WHERE app = _app);  -- otherwise all of it is null
    SELECT * INTO _step FROM promote_v1(_app, _now, coalesce(_folded.limits_locked, _limits_locked));
    _limits_locked := _step.limits_locked;
    woken := woken || _folded.woken || _step.woken;
    more := more OR coalesce(_folded.more, false) OR _step.more;
    _free_suspects := free_suspects_v1(_app, _session, (_claim_request ->> 'max_suspects')::integer);
    tasks := '{}';
    chores := '{}';
    IF _number > _last_number + 1 THEN
        fence := renew_leases_v1(_app, _session, _number, _now);
    ELSIF _number = _last_number THEN
        SELECT max(c.fence) INTO fence FROM claim AS c
        WHERE c.app = _app AND c.session = _session AND c.number = _number;
    END IF;
    IF fence IS NOT NULL THEN
        SELECT r.tasks, r.chores INTO tasks, chores FROM repeat_claim_v1(fence, _pools) AS r;
    ELSIF _number > _last_number THEN
        SELECT * INTO _step FROM new_claim_v1(_app, _session, _claim_request, _limits_locked, _now, _free_suspects);
        fence := _step.fence;
        tasks := _step.tasks;
        chores := _step.chores;
        woken := woken || _step.woken;
        _free_suspects := _step.free_suspects;
    END IF;
    fence := CASE WHEN tasks = '{}' AND chores = '{}' THEN 0 ELSE fence END;
    more := more OR cardinality(chores) >= 100 OR _number < _last_number;
    schedules := due_schedules_v1(_app, _now);
    idle := idle_sources_v1(_app, _pools, _free_suspects > 0, tasks[cardinality(tasks)], _now);
    next_in := next_in_v1(_app, idle, _now);
    IF _folded.is_left THEN
        next_in := least(next_in, 2);
    END IF;
END $$;
