-- Out of the order here, into it there: a move to another store.

-- name: lift_v1
-- {"app", "now", "session", "uuids"} → those that wait, leased to the caller.
CREATE FUNCTION lift_v1(
    _request json, OUT fence bigint, OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[],
    OUT lanes text[], OUT unique_keys text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[], OUT states text[],
    OUT histories text[], OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _uuids text[] := ARRAY(SELECT json_array_elements_text(_request -> 'uuids'));
    _place place;
    _taken bigint[];
    _sources text[] := '{}';
    _woken text[] := '{}';
BEGIN
    -- What has to be waited for, before the gate.
    PERFORM FROM session WHERE app = _app AND name = _session FOR NO KEY UPDATE;
    PERFORM FROM task AS t JOIN place AS p ON p.seq = t.seq WHERE t.app = _app AND t.uuid = ANY (_uuids)
    ORDER BY t.uuid FOR UPDATE OF p;
    _woken := reap_overdue_v1(_app, _now);  -- nobody but the mover may be there to do it
    INSERT INTO session VALUES (_app, _session, NULL, _now + 10000)
    ON CONFLICT (app, name) DO UPDATE SET until = excluded.until WHERE session.info IS NULL;
    _taken := ARRAY(SELECT p.seq FROM task AS t JOIN place AS p ON p.seq = t.seq
        WHERE t.app = _app AND t.uuid = ANY (_uuids) AND p.kind <> 'c' FOR UPDATE OF p SKIP LOCKED);
    IF EXISTS (SELECT FROM place WHERE seq = ANY (_taken) AND lane IS NOT NULL) THEN
        PERFORM lock_limits_v1(_app);
    END IF;
    _taken := ARRAY(
        SELECT t.seq FROM unnest(_uuids) WITH ORDINALITY AS u (uuid, nth)
        JOIN task AS t ON t.seq = ANY (_taken) AND t.uuid = u.uuid GROUP BY t.seq ORDER BY min(u.nth));
    FOR _place IN SELECT p.* FROM unnest(_taken) WITH ORDINALITY AS u (seq, nth)
        JOIN place AS p ON p.seq = ANY (_taken) AND p.seq = u.seq ORDER BY u.nth
    LOOP
        IF _place.kind <> 'l' THEN
            PERFORM end_as_chore_v1(_place.seq, 'lifted', _now);
        END IF;
        DELETE FROM place WHERE seq = _place.seq;
        _sources := _sources || _place.source::text;
        IF _place.lane IS NOT NULL AND _place.kind IN ('r', 'p') THEN
            _woken := _woken || admit_v1(_app, _place.lane, _now);
        END IF;
    END LOOP;
    fence := 0;
    IF _taken <> '{}' THEN
        fence := nextval('fence');
        PERFORM lease_v1(_app, _session, 0, fence, _taken, _sources, NULL, true, _now);
        SELECT r.uuids, r.sources, r.bodies, r.policies, r.lanes, r.unique_keys, r.dues, r.seqs, r.addeds, r.states, r.histories
        INTO uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories
        FROM records_v1(_taken) AS r;
    END IF;
    notification := json_build_object('sources', _woken);
END $$;

-- name: adopt_one_v1
CREATE FUNCTION adopt_one_v1(_app integer, _new json, _now double precision, OUT uuid text, OUT fresh boolean)
LANGUAGE plpgsql AS $$
DECLARE
    _task task;
    _here task;
BEGIN
    uuid := _new ->> 'uuid';
    fresh := false;
    SELECT * INTO _here FROM task AS t WHERE t.app = _app AND t.uuid = _new ->> 'uuid';
    IF FOUND AND NOT (_here.ended IS NOT NULL AND _here.reason = 'lifted'
        AND _here.hops <= coalesce((_new ->> 'hops')::integer, 0))
    THEN
        RETURN;
    END IF;
    IF _new ->> 'unique_key' IS NOT NULL THEN
        uuid := take_key_v1(_app, _new, (_new ->> 'added')::bigint, _now);
        IF uuid <> _new ->> 'uuid' THEN
            RETURN;
        END IF;
    END IF;
    IF _here.seq IS NOT NULL THEN  -- it has gone from here: what comes back takes its place
        PERFORM count_v1(_app, _here.source, _here.state, -1);
        DELETE FROM note WHERE seq = _here.seq;
        DELETE FROM task WHERE seq = _here.seq;
    END IF;
    INSERT INTO task AS t (
        seq, app, uuid, source, lane, unique_key, due, added, boost, cost, expires, max_crashes, unique_for, reply_to,
        policy, body, state, reason, retries, crashes, earlier, started, error, hops
    )
    SELECT nextval('seq'), _app, n.uuid, source, lane, unique_key, at, coalesce(added, 0), coalesce(boost, 0),
        coalesce(cost, 1), expires, coalesce(max_crashes, 3), unique_for, reply_to, coalesce(policy, '{}'),
        decode(body, 'base64'), 'scheduled', 'lifted', coalesce(retries, 0), coalesce(crashes, 0),
        coalesce(earlier, 0), started, decode(error, 'base64'), coalesce(hops, 0) + 1
    FROM json_to_record(_new) AS n (
        uuid text, source text, lane text, unique_key text, at bigint, added bigint, boost bigint, cost double precision,
        expires bigint, max_crashes integer, unique_for bigint, reply_to text, policy text, body text, retries integer,
        crashes integer, earlier integer, started bigint, error text, hops integer)
    ON CONFLICT DO NOTHING RETURNING * INTO _task;
    fresh := FOUND;
    IF fresh THEN
        PERFORM enter_v1(_task, 'l', _now);
    END IF;
END $$;

-- name: adopt_v1
-- {"app", "now", "records": […]} → as `add`; copies of another store's, lifted.
CREATE FUNCTION adopt_v1(_request json, OUT uuids text[], OUT fresh boolean[]) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _new json;
    _one record;
BEGIN
    uuids := '{}';
    fresh := '{}';
    PERFORM lock_keys_v1(_app, _request -> 'records');
    PERFORM FROM task WHERE app = _app AND ended IS NOT NULL AND reason = 'lifted' AND uuid = ANY (ARRAY(
        SELECT r.uuid FROM json_to_recordset(_request -> 'records') AS r (uuid text))) ORDER BY seq FOR UPDATE;
    FOR _new IN SELECT value FROM json_array_elements(_request -> 'records') LOOP
        SELECT * INTO _one FROM adopt_one_v1(_app, _new, _now);
        uuids := uuids || _one.uuid;
        fresh := fresh || _one.fresh;
    END LOOP;
    PERFORM unlock_keys_v1(_app, _request -> 'records');
END $$;
