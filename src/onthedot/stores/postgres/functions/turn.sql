-- turn: settle, reap dead sessions and claim, in one call.

-- name: turn_v1
-- {"app", "now", "session", "claim": request or null; of the outcomes "number", "sessions", "order": in which they are
-- settled, "in_parts": as their new tasks are added}, outcomes: […] or null, tasks, events: their new tasks and events or
-- null → verdicts, and the answer to the claim: its tasks are the first `number` of the records, its chores are the rest.
CREATE FUNCTION turn_v1(
    _request json, _outcomes json, _tasks json, _events json, OUT verdicts text[], OUT alive boolean, OUT fence bigint,
    OUT number integer, OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[], OUT lanes text[],
    OUT unique_keys text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[], OUT states text[],
    OUT histories text[], OUT links json[], OUT schedules json, OUT idle json, OUT woken text[],
    OUT next_in double precision, OUT more boolean, OUT moment double precision, OUT data_set text,
    OUT last_fence bigint, OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _claim_request json := CASE WHEN json_typeof(_request -> 'claim') = 'object' THEN _request -> 'claim' END;
    _settled record;
    _last_number bigint;
    _claimed record;
    _recheck boolean;
BEGIN
    moment := _now;
    IF _claim_request IS NOT NULL THEN  -- a repeat, or a late request, waits for the call that is still running
        PERFORM pg_advisory_xact_lock(hashtextextended(_session, _app));
        PERFORM keep_limits_v1(_app);
    END IF;
    PERFORM FROM session WHERE app = _app AND name = _session FOR KEY SHARE;
    SELECT * INTO _settled FROM settle_v1(
        _app, _outcomes, (_request ->> 'number')::integer, _tasks, (_request ->> 'in_parts')::boolean, _events,
        ARRAY(SELECT json_array_elements_text(_request -> 'sessions')), _request ->> 'order', _now, false)
    WHERE _outcomes IS NOT NULL;  -- without outcomes, all of it is null
    verdicts := _settled.verdicts;
    woken := coalesce(_settled.woken, '{}');
    IF _claim_request IS NOT NULL THEN
        woken := woken || reap_overdue_v1(_app, _now);
    END IF;
    SELECT s.claim_number INTO _last_number FROM session AS s
    WHERE s.app = _app AND s.name = _session AND s.role = 'worker';
    alive := FOUND;
    IF alive AND _claim_request IS NOT NULL THEN
        SELECT * INTO _claimed FROM claim_v1(_app, _session, _claim_request, _last_number, _now);
        fence := _claimed.fence;
        number := cardinality(_claimed.tasks);
        schedules := _claimed.schedules;
        idle := _claimed.idle;
        next_in := _claimed.next_in;
        more := _claimed.more;
        woken := woken || _claimed.woken;
        SELECT r.uuids, r.sources, r.bodies, r.policies, r.lanes, r.unique_keys, r.dues, r.seqs, r.addeds, r.states,
            r.histories, r.links
        INTO uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories, links
        FROM records_v1(_claimed.tasks || _claimed.chores) AS r;
        SELECT i.data_set, i.last_fence INTO data_set, last_fence FROM identity_v1(_app) AS i;
        -- Last, because a heartbeat waits for this row until the commit.
        UPDATE session AS s SET claim_number = (_claim_request ->> 'number')::bigint
        WHERE s.app = _app AND s.name = _session AND s.claim_number < (_claim_request ->> 'number')::bigint;
    ELSIF _settled.raised IS NOT NULL THEN
        _recheck := nullif(is_wait_over_v1(_app, _settled.raised), false);
    END IF;
    woken := ARRAY(SELECT DISTINCT source FROM unnest(woken) AS source);
    notification := json_strip_nulls(json_build_object(
        'sources', woken, 'ended', _settled.ended, 'recheck', _recheck, 'events', _settled.published));
END $$;
