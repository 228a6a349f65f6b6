-- Schedules: rules that create tasks over time. The client decides when; the store compares revisions.

-- name: due_schedules_v1
-- The schedules that are due, as JSON; null: none.
CREATE FUNCTION due_schedules_v1(_app integer, _now double precision) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT json_agg(json_build_object(
        'name', name, 'rule', translate(encode(rule, 'base64'), E'\n', ''), 'definition_digest', definition_digest,
        'next_at', next_at, 'rev', rev, 'paused', paused, 'last_at', last_at, 'runs', runs, 'incoming', incoming))
    FROM schedule WHERE app = _app AND next_at <= floor(_now)::bigint AND NOT paused);
END $$;

-- name: put_schedule_v1
-- Declare a schedule (rev = 0), or replace the record that has this revision. False: its revision did not match.
CREATE FUNCTION put_schedule_v1(_app integer, _given json) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _new schedule;
BEGIN
    SELECT _app, s.name, decode(s.rule, 'base64'), s.definition_digest, s.next_at, s.rev, s.paused, s.last_at, s.runs,
        s.incoming INTO _new
    FROM json_to_record(_given) AS s (
        name text, rule text, definition_digest text, next_at bigint, rev integer, paused boolean, last_at bigint,
        runs integer, incoming boolean);
    IF _new.rev > 0 THEN
        UPDATE schedule SET rule = _new.rule, definition_digest = _new.definition_digest, next_at = _new.next_at,
            rev = _new.rev + 1, paused = _new.paused, last_at = _new.last_at, runs = _new.runs,
            incoming = _new.incoming
        WHERE app = _app AND name = _new.name AND rev = _new.rev;
        RETURN FOUND;
    END IF;
    _new.rev := 1;
    INSERT INTO schedule AS old SELECT _new.*
    ON CONFLICT (app, name) DO UPDATE SET rule = excluded.rule, definition_digest = excluded.definition_digest,
        next_at = excluded.next_at, rev = old.rev + 1
    WHERE excluded.definition_digest = '' OR excluded.definition_digest <> old.definition_digest;
    RETURN true;
END $$;

-- name: put_schedules_v1
-- {"app", "schedules": […]} → one answer each.
CREATE FUNCTION put_schedules_v1(_request json, OUT answers boolean[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _new json;
BEGIN
    answers := '{}';
    FOR _new IN SELECT value FROM json_array_elements(_request -> 'schedules') LOOP
        answers := answers || put_schedule_v1(_app, _new);
    END LOOP;
    IF answers <> '{}' THEN
        notification := json_build_object('recheck', true);
    END IF;
END $$;

-- name: fire_v1
-- {"app", "now", "fires": […]} → one answer each; false: another revision, or paused.
CREATE FUNCTION fire_v1(_request json, OUT answers boolean[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _fire record;
    _added record;
    _woken text[] := '{}';
BEGIN
    answers := '{}';
    FOR _fire IN SELECT * FROM json_to_recordset(_request -> 'fires') AS f (
        name text, rev integer, tasks json, in_parts boolean, next_at bigint, last_at bigint)
    LOOP
        PERFORM FROM schedule WHERE app = _app AND name = _fire.name AND rev = _fire.rev AND NOT paused FOR UPDATE;
        answers := answers || FOUND;
        CONTINUE WHEN NOT FOUND;
        SELECT * INTO _added FROM add_tasks_v1(
            _app, _fire.tasks, json_array_length(_fire.tasks), _fire.in_parts, _now, false);
        UPDATE schedule SET next_at = _fire.next_at, rev = rev + 1, last_at = coalesce(_fire.last_at, last_at),
            runs = runs + _added.added
        WHERE app = _app AND name = _fire.name;
        _woken := _woken || _added.sources;
    END LOOP;
    notification := json_build_object('sources', _woken);
END $$;

-- name: delete_schedules_v1
-- {"app", "names"}: delete schedules; unknown names are ignored.
CREATE FUNCTION delete_schedules_v1(_request json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM schedule WHERE app = app_v1(_request ->> 'app')
        AND name IN (SELECT json_array_elements_text(_request -> 'names'));
END $$;
