-- revive: make failed or cancelled tasks due again.

-- name: revive_v1
-- {"app", "now", "uuids"} → the uuids that are live now. A task whose unique key is taken by another stays ended. One
-- that never started returns to its first wait. The counters that the tasks have incremented are lowered.
CREATE FUNCTION revive_v1(_request json, OUT live text[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _uuid text;
    _task task;
    _wait json;
    _waiting bigint[] := '{}';
    _lowered text[] := '{}';
    _woken text[] := '{}';
BEGIN
    live := '{}';
    FOR _uuid IN SELECT uuid FROM json_array_elements_text(_request -> 'uuids') AS uuid LOOP
        SELECT * INTO _task FROM task WHERE app = _app AND uuid = _uuid FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND OR _task.state = 'succeeded';
        IF _task.ended IS NULL THEN
            live := live || _uuid;
            CONTINUE;
        END IF;
        CONTINUE WHEN NOT retake_key_v1(_task, _now);
        PERFORM count_v1(_app, _task.source, _task.state, -1);
        _task.earlier := _task.earlier + 1 + _task.retries + _task.crashes;
        _task.revives := _task.revives + 1;
        _task.retries := 0;
        _task.crashes := 0;
        _task.reason := 'due';
        _task.cancel_requested := false;
        _task.ended := NULL;
        _task.keep_until := NULL;
        _task.error := NULL;
        _task.result := NULL;
        _task.result_until := NULL;
        _task.due := floor(_now);
        _wait := CASE WHEN _task.started IS NULL THEN _task.links -> 'waits' END;
        _task.wait_until := wait_deadline_v1(_wait, _now);
        PERFORM enter_v1(_task, next_place_v1(
            'due', false, _task.due, _task.lane, _now, false, _wait IS NOT NULL), _now);
        IF _wait IS NOT NULL THEN
            _waiting := _waiting || _task.seq;
        END IF;
        _lowered := _lowered || _task.increments;
        live := live || _uuid;
        _woken := _woken || _task.source;
    END LOOP;
    INSERT INTO counter_delta
    SELECT _app, stripe_v1(name), name, -count(*), -count(*), floor(_now) FROM unnest(_lowered) AS name GROUP BY name;
    IF _waiting <> '{}' THEN
        PERFORM begin_waits_v1(_app, _waiting, _now);
    END IF;
    notification := json_build_object('sources', _woken);
END $$;
