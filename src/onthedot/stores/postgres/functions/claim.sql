-- turn: settle, then reap the dead, refill lanes, promote alarms and claim: one step.

-- name: promote_v1
-- Alarms that have come, at most a batch. laned: the gate is ours, else tasks with a lane are left alone.
CREATE FUNCTION promote_v1(_app integer, _now double precision, _limits_locked boolean, OUT woken text[], OUT more boolean)
LANGUAGE plpgsql AS $$
DECLARE
    _rung bigint[];
    _seqs bigint[];
    _one place;
BEGIN
    SELECT coalesce(array_agg(seq ORDER BY alarm, seq), '{}') INTO _rung FROM (
        SELECT seq, alarm FROM place WHERE app = _app AND alarm <= floor(_now)::bigint AND (_limits_locked OR lane IS NULL)
        ORDER BY alarm, seq LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS rung;
    more := cardinality(_rung) = 1000;
    woken := '{}';
    IF _rung = '{}' THEN
        RETURN;
    END IF;
    WITH up AS (
        UPDATE place SET kind = 'r', alarm = expires_at
        WHERE seq = ANY (_rung) AND lane IS NULL AND coalesce(expires_at > _now, true) RETURNING seq, source
    ), counted AS (
        INSERT INTO tally SELECT _app, source, state, count(*) * way FROM up
        CROSS JOIN (VALUES ('scheduled', -1), ('ready', 1)) AS moves (state, way) GROUP BY source, state, way
    )
    SELECT coalesce(array_agg(DISTINCT source), '{}'), array_agg(seq) INTO woken, _seqs FROM up;
    IF _seqs IS NOT NULL THEN
        PERFORM log_transitions_v1(_app, _now, 'ready', _seqs);
    END IF;
    IF cardinality(_seqs) = cardinality(_rung) THEN
        RETURN;
    END IF;
    FOR _one IN
        SELECT p.* FROM unnest(_rung) WITH ORDINALITY AS r (seq, nth)
        JOIN place AS p ON p.seq = ANY (_rung) AND p.seq = r.seq
        WHERE p.lane IS NOT NULL OR p.expires_at <= _now ORDER BY r.nth
    LOOP
        IF _one.expires_at <= _now THEN
            PERFORM end_as_chore_v1(_one.seq, 'expired', _now);
        ELSE
            UPDATE place SET kind = 'p', alarm = expires_at WHERE seq = _one.seq;
            PERFORM count_v1(_app, _one.source, 'scheduled', -1);
            PERFORM count_v1(_app, _one.source, 'parked', 1);
            PERFORM log_transitions_v1(_app, _now, 'parked', ARRAY[_one.seq]);
        END IF;
        IF _one.lane IS NOT NULL THEN
            woken := woken || admit_v1(_app, _one.lane, _now, _one.seq);
        END IF;
    END LOOP;
END $$;

-- name: take_chores_v1
-- What must end, whatever the limits say; with `known`, ready tasks of sources that nobody knows as well.
CREATE FUNCTION take_chores_v1(
    _app integer, _known text[], _limits_locked boolean, _now double precision, OUT seqs bigint[], OUT sources text[],
    OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _strays record;
    _lane text;
BEGIN
    woken := '{}';
    IF _known IS NOT NULL THEN
        SELECT coalesce(array_agg(seq), '{}') AS seqs, coalesce(array_agg(DISTINCT lane), '{}') AS lanes INTO _strays
        FROM (
            SELECT seq, lane FROM place WHERE app = _app AND kind = 'r' AND source <> ALL (_known)
            AND (_limits_locked OR lane IS NULL) LIMIT 100 FOR UPDATE SKIP LOCKED
        ) AS ready;
        PERFORM end_as_chore_v1(seq, 'stray', _now) FROM unnest(_strays.seqs) AS seq;
        FOREACH _lane IN ARRAY array_remove(_strays.lanes, NULL) LOOP
            woken := woken || admit_v1(_app, _lane, _now);
        END LOOP;
    END IF;
    WITH taken AS (
        DELETE FROM place WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM place WHERE app = _app AND kind = 'c' ORDER BY rank LIMIT 100 FOR UPDATE SKIP LOCKED
        )) RETURNING seq, source, rank
    )
    SELECT coalesce(array_agg(seq ORDER BY rank), '{}'), array_agg(source::text ORDER BY rank) INTO seqs, sources
    FROM taken;
END $$;

-- name: pick_from_pool_v1
-- Of one pool: by (rank, seq) over all its sources, at most `room` of each and `total` in all. Who finds its lane
-- closed is parked, and another one is looked for, past a batch of them at most. more_suspects: how many of these the
-- session may still run.
CREATE FUNCTION pick_from_pool_v1(
    _app integer, _sources text[], _room integer[], _total integer, _limits_locked boolean, _now double precision,
    INOUT more_suspects integer, OUT seqs bigint[], OUT sources text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _found record;
    _one record;
    _taken tid[];
    _parked bigint[];
    _parks integer[] := array_fill(0, ARRAY[cardinality(_sources)]);  -- of each source, so far
    _most integer[];
    _shut integer := 0;
BEGIN
    seqs := '{}';
    sources := '{}';
    lanes := '{}';
    LOOP
        _taken := '{}';
        _parked := '{}';
        -- As many as there is room for, and as many more as were parked: else there is a look for each of these.
        _most := ARRAY(
            SELECT CASE WHEN least(room, _total) > 0 THEN least(room, _total) + parks ELSE 0 END
            FROM unnest(_room, _parks) WITH ORDINALITY AS q (room, parks, nth) ORDER BY nth
        );
        SELECT array_agg(f.ctid) AS ctids, array_agg(f.seq) AS seqs, array_agg(f.source::text) AS sources,
            array_agg(f.lane::text) AS lanes, array_agg(f.nth) AS nths, array_agg(f.cost) AS costs,
            array_agg(f.suspect) AS suspects,
            bool_or(_shut > 0 OR f.suspect OR f.lane IS NOT NULL) AS picky
        INTO _found FROM (
            SELECT q.nth, found.* FROM unnest(_sources, _most) WITH ORDINALITY AS q (source, most, nth)
            CROSS JOIN (VALUES (false), (true)) AS kinds (suspect)
            CROSS JOIN LATERAL (
                SELECT ctid, seq, rank, suspect, lane, cost, source FROM place
                WHERE app = _app AND kind = 'r' AND source = q.source AND suspect = kinds.suspect
                    AND (more_suspects > 0 OR NOT kinds.suspect) AND (_limits_locked OR lane IS NULL)
                ORDER BY rank, seq LIMIT q.most FOR UPDATE SKIP LOCKED
            ) AS found ORDER BY found.rank, found.seq
        ) AS f;
        IF NOT _found.picky THEN  -- the first ones: nobody's room is exceeded, since no more were looked at
            _taken := _found.ctids[:_total];
            seqs := seqs || _found.seqs[:_total];
            sources := sources || _found.sources[:_total];
            lanes := lanes || _found.lanes[:_total];
        END IF;
        FOR _one IN SELECT *, row_number() OVER (PARTITION BY nth, suspect ORDER BY pos) AS looked
            FROM unnest(_found.ctids, _found.seqs, _found.sources, _found.lanes, _found.nths, _found.costs,
                _found.suspects) WITH ORDINALITY AS f (ctid, seq, source, lane, nth, cost, suspect, pos)
            WHERE _found.picky ORDER BY pos
        LOOP
            EXIT WHEN cardinality(_taken) >= _total OR _shut >= 1000;
            CONTINUE WHEN _room[_one.nth] <= 0 OR _one.suspect AND more_suspects <= 0;
            IF _one.lane IS NOT NULL AND NOT may_start_v1(
                _app, _one.lane, _one.cost, cardinality(array_positions(lanes, _one.lane)), _now
            ) THEN
                UPDATE place SET kind = 'p' WHERE seq = _one.seq;
                PERFORM count_v1(_app, _one.source, 'ready', -1);
                PERFORM count_v1(_app, _one.source, 'parked', 1);
                _parked := _parked || _one.seq;
                _shut := _shut + 1;
                _parks[_one.nth] := _parks[_one.nth] + 1;
            ELSE
                _taken := _taken || _one.ctid;
                seqs := seqs || _one.seq;
                sources := sources || _one.source;
                lanes := lanes || _one.lane;
                _room[_one.nth] := _room[_one.nth] - 1;
                more_suspects := more_suspects - _one.suspect::integer;
            END IF;
            -- The last of its source that was looked at, and some were parked: who comes next must be looked for.
            EXIT WHEN _room[_one.nth] > 0 AND _one.looked = _most[_one.nth];
        END LOOP;
        DELETE FROM place WHERE ctid = ANY (_taken);
        EXIT WHEN _parked = '{}';
        PERFORM log_transitions_v1(_app, _now, 'parked', _parked);
        EXIT WHEN _shut >= 1000;
        _total := _total - cardinality(_taken);
    END LOOP;
END $$;

-- name: lease_v1
-- One entry a source and lane: the tasks themselves are not touched.
CREATE FUNCTION lease_v1(
    _app integer, _session text, _number bigint, _fence bigint, _seqs bigint[], _sources text[], _lanes text[],
    _chore boolean, _now double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH held AS (
        INSERT INTO claim
        SELECT _fence, _app, _session, _number, t.source, t.lane, _chore, floor(_now), array_agg(t.seq)
        FROM unnest(_seqs, _sources, _lanes) AS t (seq, source, lane) GROUP BY t.source, t.lane
        RETURNING source, cardinality(seqs) AS number
    )
    INSERT INTO tally SELECT _app, source, state, sum(number) * way FROM held
    CROSS JOIN (VALUES ('ready', -1), ('running', 1)) AS moves (state, way)
    WHERE NOT _chore GROUP BY source, state, way;
    IF NOT _chore THEN
        PERFORM log_transitions_v1(_app, _now, 'running', _seqs);
    END IF;
END $$;
