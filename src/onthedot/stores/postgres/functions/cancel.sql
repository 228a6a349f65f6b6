-- cancel: request the cancel of live tasks.

-- name: mark_cancelled_v1
-- Lock the place of a pending task and return its seq. A leased task gets the request, and its holder is returned. Both
-- are null if it has ended.
CREATE FUNCTION mark_cancelled_v1(_app integer, _uuid text, OUT seq bigint, OUT holder text) LANGUAGE plpgsql AS $$
DECLARE
    _task task;
BEGIN
    FOR _ IN 1 .. 20 LOOP
        SELECT p.seq INTO seq FROM task AS t JOIN place AS p ON p.seq = t.seq
        WHERE t.app = _app AND t.uuid = _uuid FOR UPDATE OF p;
        EXIT WHEN FOUND;
        UPDATE task AS t SET cancel_requested = true WHERE t.app = _app AND t.uuid = _uuid AND t.ended IS NULL
        RETURNING * INTO _task;
        EXIT WHEN NOT FOUND;
        SELECT c.session INTO holder FROM claim AS c WHERE c.app = _app AND c.source = _task.source
            AND c.fence > _task.settled_fence AND _task.seq = ANY (c.seqs);
        EXIT WHEN FOUND;  -- otherwise it was requeued between the two statements
    END LOOP;
END $$;

-- name: cancel_v1
-- {"app", "now", "session", "uuids"} → the pending ones, leased to the caller as chores.
CREATE FUNCTION cancel_v1(
    _request json, OUT fence bigint, OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[],
    OUT lanes text[], OUT unique_keys text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[],
    OUT states text[], OUT histories text[], OUT links json[], OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _uuids text[] := ARRAY(SELECT json_array_elements_text(_request -> 'uuids'));
    _uuid text;
    _marked record;
    _pending bigint[] := '{}';
    _holders json[] := '{}';
    _woken text[];
BEGIN
    PERFORM open_client_v1(_app, _session, _now);
    PERFORM FROM session WHERE app = _app AND name = _session FOR KEY SHARE;
    FOR _uuid IN SELECT DISTINCT uuid FROM unnest(_uuids) AS uuid ORDER BY uuid LOOP
        SELECT * INTO _marked FROM mark_cancelled_v1(_app, _uuid);
        _pending := _pending || _marked.seq;
        IF _marked.holder IS NOT NULL THEN
            _holders := _holders || json_build_array(_marked.holder, _uuid);
        END IF;
    END LOOP;
    SELECT p.fence, p.woken, r.uuids, r.sources, r.bodies, r.policies, r.lanes, r.unique_keys, r.dues, r.seqs,
        r.addeds, r.states, r.histories, r.links
    INTO fence, _woken, uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories,
        links
    FROM lease_pending_v1(_app, _session, _pending, _uuids, 'cancel', _now) AS p
    CROSS JOIN LATERAL records_v1(p.seqs) AS r;
    notification := json_build_object('sources', _woken, 'cancel_requests', _holders);
END $$;
