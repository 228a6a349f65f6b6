-- lift and adopt: a task moves to another store.

-- name: lift_v1
-- {"app", "now", "session", "uuids"} → the pending ones without links, taken out of the order and leased.
CREATE FUNCTION lift_v1(
    _request json, OUT fence bigint, OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[],
    OUT lanes text[], OUT unique_keys text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[],
    OUT states text[], OUT histories text[], OUT links json[], OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _uuids text[] := ARRAY(SELECT json_array_elements_text(_request -> 'uuids'));
    _pending bigint[];
    _reaped text[];
    _woken text[];
BEGIN
    -- Everything that has to be waited for, before the limits lock.
    PERFORM FROM session WHERE app = _app AND name = _session FOR NO KEY UPDATE;
    PERFORM FROM task AS t JOIN place AS p ON p.seq = t.seq
    WHERE t.app = _app AND t.uuid = ANY (_uuids) AND t.links IS NULL AND p.kind <> 'w'
    ORDER BY t.uuid FOR UPDATE OF p;
    _reaped := reap_overdue_v1(_app, _now);  -- no worker may be running that would do it
    PERFORM open_client_v1(_app, _session, _now);
    _pending := ARRAY(SELECT p.seq FROM task AS t JOIN place AS p ON p.seq = t.seq
        WHERE t.app = _app AND t.uuid = ANY (_uuids) AND t.links IS NULL AND p.kind NOT IN ('c', 'w')
        FOR UPDATE OF p SKIP LOCKED);
    SELECT p.fence, p.woken, r.uuids, r.sources, r.bodies, r.policies, r.lanes, r.unique_keys, r.dues, r.seqs,
        r.addeds, r.states, r.histories, r.links
    INTO fence, _woken, uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories,
        links
    FROM lease_pending_v1(_app, _session, _pending, _uuids, 'lifted', _now) AS p
    CROSS JOIN LATERAL records_v1(p.seqs) AS r;
    notification := json_build_object('sources', _reaped || _woken);
END $$;

-- name: adopt_one_v1
-- Store the lifted copy of another store's task. A copy that returns replaces the record that it left behind here.
CREATE FUNCTION adopt_one_v1(_app integer, _copy json, _now double precision, OUT uuid text, OUT fresh boolean)
LANGUAGE plpgsql AS $$
DECLARE
    _task task;
    _existing task;
BEGIN
    uuid := _copy ->> 'uuid';
    fresh := false;
    SELECT * INTO _existing FROM task AS t WHERE t.app = _app AND t.uuid = _copy ->> 'uuid';
    IF FOUND AND NOT (_existing.ended IS NOT NULL AND _existing.reason = 'lifted'
        AND _existing.hops <= coalesce((_copy ->> 'hops')::integer, 0))
    THEN
        RETURN;
    END IF;
    IF _copy ->> 'unique_key' IS NOT NULL THEN
        PERFORM take_keys_v1(_app, json_build_array(_copy), '{}', _now);
        uuid := (SELECT k.uuid FROM unique_key AS k
            WHERE k.app = _app AND k.source = _copy ->> 'source' AND k.name = _copy ->> 'unique_key');
        IF uuid <> _copy ->> 'uuid' THEN
            RETURN;
        END IF;
    END IF;
    IF _existing.seq IS NOT NULL THEN
        PERFORM count_v1(_app, _existing.source, _existing.state, -1);
        DELETE FROM note WHERE seq = _existing.seq;
        DELETE FROM task WHERE seq = _existing.seq;
    END IF;
    INSERT INTO task AS t (
        seq, app, uuid, source, lane, unique_key, due, added, boost, cost, expires, max_crashes, unique_for, reply_to,
        policy, body, state, reason, retries, crashes, earlier, started, error, hops, revives
    )
    SELECT nextval('seq'), _app, c.uuid, source, lane, unique_key, at, coalesce(added, 0), coalesce(boost, 0),
        coalesce(cost, 1), expires, coalesce(max_crashes, 3), unique_for, reply_to, coalesce(policy, '{}'),
        decode(body, 'base64'), 'scheduled', 'lifted', coalesce(retries, 0), coalesce(crashes, 0),
        coalesce(earlier, 0), started, decode(error, 'base64'), coalesce(hops, 0) + 1,
        coalesce(revives, 0)
    FROM json_to_record(_copy) AS c (
        uuid text, source text, lane text, unique_key text, at bigint, added bigint, boost bigint,
        cost double precision, expires bigint, max_crashes integer, unique_for bigint, reply_to text, policy text,
        body text, retries integer, crashes integer, earlier integer, started bigint, error text, hops integer,
        revives integer)
    ON CONFLICT DO NOTHING RETURNING * INTO _task;
    fresh := FOUND;
    IF fresh THEN
        PERFORM enter_v1(_task, next_place_v1('lifted', false, _task.due, _task.lane, _now, false), _now);
    END IF;
END $$;

-- name: adopt_v1
-- {"app", "now", "records": […]} → per record its uuid or the holder's, and whether it was stored.
CREATE FUNCTION adopt_v1(_request json, OUT uuids text[], OUT fresh boolean[]) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _copy json;
    _adopted record;
BEGIN
    uuids := '{}';
    fresh := '{}';
    PERFORM lock_keys_v1(_app, _request -> 'records');
    PERFORM FROM task WHERE app = _app AND ended IS NOT NULL AND reason = 'lifted' AND uuid = ANY (ARRAY(
        SELECT r.uuid FROM json_to_recordset(_request -> 'records') AS r (uuid text))) ORDER BY seq FOR UPDATE;
    FOR _copy IN SELECT value FROM json_array_elements(_request -> 'records') LOOP
        SELECT * INTO _adopted FROM adopt_one_v1(_app, _copy, _now);
        uuids := uuids || _adopted.uuid;
        fresh := fresh || _adopted.fresh;
    END LOOP;
    PERFORM unlock_keys_v1(_app, _request -> 'records');
END $$;
