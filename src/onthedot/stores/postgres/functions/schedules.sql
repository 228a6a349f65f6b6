-- The journal, schedules, limits, retention.

-- name: note_v1
-- {"app", "notes": […]} → the places of those whose lease is lost.
CREATE FUNCTION note_v1(_request json, OUT lost integer[]) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _note record;
    _seq bigint;
BEGIN
    lost := '{}';
    FOR _note IN
        SELECT * FROM ROWS FROM (json_to_recordset(_request -> 'notes') AS (
            uuid text, fence bigint, session text, kind text, name text, data text)) WITH ORDINALITY
    LOOP
        SELECT t.seq INTO _seq FROM task AS t JOIN claim AS c ON c.fence = _note.fence AND c.app = _app
            AND c.session = _note.session AND t.seq = ANY (c.seqs) AND t.settled_fence < c.fence
        WHERE t.app = _app AND t.uuid = _note.uuid;
        IF NOT FOUND THEN
            lost := lost || _note.ordinality::integer;
            CONTINUE;
        END IF;
        DELETE FROM note WHERE seq = _seq AND kind = _note.kind AND name = _note.name AND kind = 'progress';
        INSERT INTO note (seq, kind, name, data, fence, session) VALUES (
            _seq, _note.kind, _note.name, decode(_note.data, 'base64'), _note.fence, _note.session)
        ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- name: put_schedule_v1
CREATE FUNCTION put_schedule_v1(_app integer, _new json) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _said schedule;
BEGIN
    SELECT _app, s.name, decode(s.rule, 'base64'), s.definition_digest, s.next_at, s.rev, s.paused, s.last_at, s.runs,
        s.incoming INTO _said
    FROM json_to_record(_new) AS s (
        name text, rule text, definition_digest text, next_at bigint, rev integer, paused boolean, last_at bigint, runs integer,
        incoming boolean);
    IF _said.rev > 0 THEN
        UPDATE schedule SET rule = _said.rule, definition_digest = _said.definition_digest, next_at = _said.next_at,
            rev = _said.rev + 1, paused = _said.paused, last_at = _said.last_at, runs = _said.runs, incoming = _said.incoming
        WHERE app = _app AND name = _said.name AND rev = _said.rev;
        RETURN FOUND;
    END IF;
    _said.rev := 1;
    INSERT INTO schedule AS old SELECT _said.*
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
        notification := json_build_object('sources', ARRAY['']);  -- of no source: workers check schedules again
    END LOOP;
END $$;

-- name: put_limits_v1
-- {"app", "limits": […]}.
CREATE FUNCTION put_limits_v1(_request json, OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _limit record;
    _woken text[] := '{}';
BEGIN
    FOR _limit IN SELECT * FROM json_to_recordset(_request -> 'limits') AS l (
        name text, owner text, cap integer, rate double precision, burst double precision, paused boolean, reason text,
        paused_since bigint, lane_rule text)
    LOOP
        INSERT INTO limit_rule VALUES (_app, _limit.name, _limit.owner, _limit.cap, _limit.rate, _limit.burst, _limit.paused,
            _limit.reason, _limit.paused_since, decode(_limit.lane_rule, 'base64'))
        ON CONFLICT (app, name, owner) DO UPDATE SET cap = excluded.cap, rate = excluded.rate, burst = excluded.burst,
            paused = excluded.paused, reason = excluded.reason, paused_since = excluded.paused_since,
            lane_rule = excluded.lane_rule;
        INSERT INTO lane_check SELECT DISTINCT _app, lane FROM place WHERE app = _app AND kind = 'p' AND (
            lane = _limit.name OR split_part(lane, '/', 1) || '/*' = _limit.name);
        _woken := _woken || split_part(_limit.name, '/', 1);
    END LOOP;
    notification := json_build_object('sources', _woken);
END $$;

-- name: fire_v1
-- {"app", "now", "fires": […]} → which of them still had their rev and were not paused.
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
        name text, rev integer, tasks json, next_at bigint, last_at bigint)
    LOOP
        PERFORM FROM schedule WHERE app = _app AND name = _fire.name AND rev = _fire.rev AND NOT paused FOR UPDATE;
        answers := answers || FOUND;
        CONTINUE WHEN NOT FOUND;
        SELECT * INTO _added FROM add_tasks_v1(_app, _fire.tasks, _now, false);
        UPDATE schedule SET next_at = _fire.next_at, rev = rev + 1, last_at = coalesce(_fire.last_at, last_at),
            runs = runs + (SELECT count(*) FROM unnest(_added.fresh) AS fresh WHERE fresh)
        WHERE app = _app AND name = _fire.name;
        _woken := _woken || _added.sources;
    END LOOP;
    notification := json_build_object('sources', _woken);
END $$;

-- name: delete_schedules_v1
CREATE FUNCTION delete_schedules_v1(_request json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM schedule WHERE app = app_v1(_request ->> 'app')
        AND name IN (SELECT json_array_elements_text(_request -> 'names'));
END $$;

-- name: drop_retained_v1
-- Of tasks that ended together, the first ones; those that were revived since are not found.
CREATE FUNCTION drop_retained_v1(_retention retention, _most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _doomed bigint[];
    _gone bigint[];
BEGIN
    _doomed := ARRAY(SELECT seq FROM task WHERE seq = ANY (_retention.seqs) AND keep_until = _retention.until
        AND ended = _retention.ended ORDER BY seq FOR UPDATE SKIP LOCKED);
    _gone := _doomed[:_most];
    IF cardinality(_doomed) > _most THEN
        UPDATE retention SET seqs = _doomed[_most + 1:] WHERE number = _retention.number;
    ELSE
        DELETE FROM retention WHERE number = _retention.number;
    END IF;
    INSERT INTO tally SELECT _retention.app, source, state, -count(*) FROM task
    WHERE seq = ANY (_gone) GROUP BY source, state;
    DELETE FROM note WHERE seq = ANY (_gone);
    DELETE FROM task WHERE seq = ANY (_gone);
    RETURN cardinality(_gone);
END $$;

-- name: purge_leftovers_v1
-- What nobody needs any more: counts are added up; the log, dead names and full buckets go.
CREATE FUNCTION purge_leftovers_v1(_app integer, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH old AS (
        DELETE FROM tally WHERE ctid = ANY (ARRAY(SELECT ctid FROM tally WHERE app = _app FOR UPDATE SKIP LOCKED))
        RETURNING source, state, number
    )
    INSERT INTO tally SELECT _app, source, state, sum(number) FROM old GROUP BY source, state HAVING sum(number) <> 0;
    DELETE FROM change WHERE app = _app AND call <= (
        SELECT call FROM (
            SELECT call, sum(coalesce(cardinality(seqs), 1)) OVER (ORDER BY call DESC) AS moves FROM change
            WHERE app = _app
        ) AS log WHERE moves > 100000 ORDER BY call DESC LIMIT 1);
    DELETE FROM unique_key WHERE until <= floor(_now)::bigint;
    DELETE FROM dead_session WHERE app = _app AND number <= (SELECT max(number) FROM dead_session) - 10000;
    DELETE FROM token_bucket AS b USING (
        SELECT name, effective_limit_v1(_app, name) AS said FROM token_bucket WHERE app = _app AND refill_at IS NULL
    ) AS idle WHERE b.app = _app AND b.name = idle.name AND b.refill_at IS NULL AND coalesce(
        b.tokens + (idle.said).rate * (_now - b.at) / 1000 >= (idle.said).burst, _now - b.at > 3600000, true);
END $$;

-- name: purge_v1
-- First what is past its time, then what ended first, if there are too many.
CREATE FUNCTION purge_v1(_request json, OUT deleted bigint) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _limit bigint := (_request ->> 'limit')::bigint;
    _beyond bigint;
    _dropped bigint;
    _retention retention;
BEGIN
    deleted := 0;
    WHILE deleted < _limit LOOP
        SELECT * INTO _retention FROM retention WHERE app = _app AND what = 'task' AND until <= floor(_now)::bigint
        ORDER BY until, number LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        deleted := deleted + drop_retained_v1(_retention, _limit - deleted);
    END LOOP;
    SELECT coalesce(sum(number), 0) - (_request ->> 'most')::bigint INTO _beyond FROM tally
    WHERE app = _app AND state IN ('succeeded', 'failed', 'cancelled');
    WHILE deleted < _limit AND _beyond > 0 LOOP
        SELECT * INTO _retention FROM retention WHERE app = _app AND what = 'task'
        ORDER BY ended, number LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        _dropped := drop_retained_v1(_retention, least(_limit - deleted, _beyond));
        deleted := deleted + _dropped;
        _beyond := _beyond - _dropped;
    END LOOP;
    WITH old AS (
        DELETE FROM retention WHERE number = ANY (ARRAY(
            SELECT number FROM retention WHERE app = _app AND what = 'result' AND until <= floor(_now)::bigint
            ORDER BY until, number LIMIT _limit FOR UPDATE SKIP LOCKED)) RETURNING seqs
    )
    UPDATE task SET result = NULL FROM old, unnest(old.seqs) AS each (seq)
    WHERE task.seq = each.seq AND result_until <= _now;
    PERFORM lock_limits_v1(_app);
    PERFORM purge_leftovers_v1(_app, _now);
END $$;
