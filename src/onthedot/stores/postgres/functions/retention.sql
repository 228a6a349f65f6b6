-- Retention: how long ended tasks and their results are kept.

-- name: drop_retained_v1
-- Delete up to `most` tasks that ended together; tasks that were revived since are left out. Members of a flow whose
-- last task lives are kept, and looked at again a day later. Tasks that others have locked stay for the next purge.
CREATE FUNCTION drop_retained_v1(_retention retention, _most bigint, _now double precision) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    _retained bigint[];
    _left bigint[];
    _deleted bigint[];
    _kept bigint[];
    _next_day bigint := floor(_now) + 86400000;
BEGIN
    _retained := ARRAY(SELECT seq FROM task WHERE seq = ANY (_retention.seqs) AND keep_until = _retention.until
        AND ended = _retention.ended ORDER BY seq FOR UPDATE SKIP LOCKED);
    _left := ARRAY(SELECT seq FROM task WHERE seq = ANY (_retention.seqs) AND keep_until = _retention.until
        AND ended = _retention.ended AND seq <> ALL (_retained));
    _kept := ARRAY(SELECT t.seq FROM task AS t WHERE t.seq = ANY (_retained) AND t.flow IS NOT NULL AND EXISTS (
        SELECT FROM task AS last WHERE last.uuid = t.flow AND last.app = t.app AND last.ended IS NULL OFFSET 0));
    IF _kept <> '{}' THEN
        UPDATE task SET keep_until = _next_day WHERE seq = ANY (_kept);
        INSERT INTO retention (app, what, until, ended, seqs, source, state)
        VALUES (_retention.app, 'task', _next_day, _retention.ended, _kept, _retention.source, _retention.state);
        _retained := ARRAY(SELECT seq FROM unnest(_retained) AS seq WHERE seq <> ALL (_kept));
    END IF;
    _deleted := _retained[:_most];
    _left := _retained[_most + 1:] || _left;
    IF _left = '{}' THEN
        DELETE FROM retention WHERE number = _retention.number;
    ELSE
        UPDATE retention SET seqs = _left WHERE number = _retention.number;
    END IF;
    INSERT INTO tally SELECT _retention.app, source, state, -count(*) FROM task
    WHERE seq = ANY (_deleted) GROUP BY source, state;
    DELETE FROM note WHERE seq = ANY (_deleted);
    DELETE FROM task WHERE seq = ANY (_deleted);
    RETURN cardinality(_deleted);
END $$;

-- name: purge_leftovers_v1
-- Sum up tallies, and delete old changes, keys and recent uuids past their time, old names of dead sessions, full token
-- buckets and subscriptions that are over.
CREATE FUNCTION purge_leftovers_v1(_app integer, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH old AS (
        DELETE FROM tally WHERE ctid = ANY (ARRAY(SELECT ctid FROM tally WHERE app = _app FOR UPDATE SKIP LOCKED))
        RETURNING source, state, number
    )
    INSERT INTO tally SELECT _app, source, state, sum(number) FROM old GROUP BY source, state HAVING sum(number) <> 0;
    WITH dropped AS (
        DELETE FROM change WHERE app = _app AND call <= (
            SELECT call FROM (
                SELECT call, sum(number) OVER (ORDER BY call DESC GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                    AS newer FROM change WHERE app = _app
            ) AS log WHERE newer >= 100000 ORDER BY call DESC LIMIT 1)  -- MAX_TRANSITIONS
        RETURNING call
    )
    UPDATE app SET changes_after = last.call FROM (SELECT max(call) AS call FROM dropped) AS last
    WHERE id = _app AND last.call IS NOT NULL;
    DELETE FROM unique_key WHERE until <= floor(_now)::bigint;
    DELETE FROM recent_uuid WHERE app = _app AND until <= floor(_now)::bigint;
    DELETE FROM dead_session WHERE app = _app AND number <= (SELECT max(number) FROM dead_session) - 10000;
    DELETE FROM token_bucket AS b USING (
        SELECT name, effective_limit_v1(_app, name) AS rule FROM token_bucket WHERE app = _app AND refill_at IS NULL
    ) AS idle WHERE b.app = _app AND b.name = idle.name AND b.refill_at IS NULL AND coalesce(
        b.tokens + (idle.rule).rate * (_now - b.at) / 1000 >= (idle.rule).burst, _now - b.at > 3600000, true);
    PERFORM purge_subscriptions_v1(_app);
END $$;

-- name: purge_counters_v1
-- Add deltas up, since no turn may have done it, and delete up to `limit` counters past their time; one that a task
-- waits for is kept for as long again. Those whose stripe is busy or that still have deltas are left out.
CREATE FUNCTION purge_counters_v1(_app integer, _limit bigint, _now double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _names text[];
BEGIN
    IF EXISTS (SELECT FROM counter_delta WHERE app = _app) THEN
        _names := (collect_deltas_v1(_app)).names;
        PERFORM mark_dirty_v1(_app, _names, _now);
    END IF;
    _names := ARRAY(SELECT old.name FROM (
            SELECT name FROM counter WHERE app = _app AND until <= floor(_now)::bigint ORDER BY until LIMIT _limit
        ) AS old WHERE pg_try_advisory_xact_lock(1869897846, _app * 64 + stripe_v1(old.name)));
    _names := ARRAY(SELECT n.name FROM unnest(_names) AS n (name) WHERE NOT EXISTS (SELECT FROM counter_delta AS d
        WHERE d.app = _app AND d.stripe = stripe_v1(n.name) AND d.name = n.name OFFSET 0));
    UPDATE counter AS c SET until = floor(_now) + 2592000000
    WHERE c.app = _app AND c.name = ANY (_names) AND EXISTS (
        SELECT FROM waiter AS w WHERE w.app = _app AND w.name = c.name OFFSET 0);
    DELETE FROM counter WHERE app = _app AND name = ANY (_names) AND until <= floor(_now)::bigint;
END $$;

-- name: purge_signals_v1
-- Delete up to `limit` signals past their time.
CREATE FUNCTION purge_signals_v1(_app integer, _limit bigint, _now double precision) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM signal WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM signal WHERE app = _app AND until <= floor(_now)::bigint ORDER BY until LIMIT _limit
        FOR UPDATE SKIP LOCKED));
END $$;

-- name: purge_v1
-- {"app", "now", "limit", "most", "series": [{"name", "keep", "most"}]} → the number of ended tasks deleted: past their time, then the oldest beyond `most`.
CREATE FUNCTION purge_v1(_request json, OUT deleted bigint) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _limit bigint := (_request ->> 'limit')::bigint;
    _excess bigint;
    _dropped bigint;
    _retention retention;
    _last bigint := (SELECT max(number) FROM retention);  -- those behind it are of members that this call keeps
    _seen bigint[] := '{}';  -- rows that this call has left, since others have locked their tasks
BEGIN
    deleted := 0;
    WHILE deleted < _limit LOOP
        SELECT * INTO _retention FROM retention WHERE app = _app AND what = 'task' AND until <= floor(_now)::bigint
            AND number <> ALL (_seen) ORDER BY until, number LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        deleted := deleted + drop_retained_v1(_retention, _limit - deleted, _now);
        IF EXISTS (SELECT FROM retention WHERE number = _retention.number) THEN
            _seen := _seen || _retention.number;
        END IF;
    END LOOP;
    SELECT coalesce(sum(number), 0) - (_request ->> 'most')::bigint INTO _excess FROM tally
    WHERE app = _app AND state IN ('succeeded', 'failed', 'cancelled');
    WHILE deleted < _limit AND _excess > 0 LOOP
        SELECT * INTO _retention FROM retention WHERE app = _app AND what = 'task' AND number <= _last
            AND number <> ALL (_seen) ORDER BY ended, number LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        _dropped := drop_retained_v1(_retention, least(_limit - deleted, _excess), _now);
        deleted := deleted + _dropped;
        _excess := _excess - _dropped;
        IF EXISTS (SELECT FROM retention WHERE number = _retention.number) THEN
            _seen := _seen || _retention.number;
        END IF;
    END LOOP;
    WITH old AS (
        DELETE FROM retention WHERE number = ANY (ARRAY(
            SELECT number FROM retention WHERE app = _app AND what = 'result' AND until <= floor(_now)::bigint
            ORDER BY until, number LIMIT _limit FOR UPDATE SKIP LOCKED)) RETURNING seqs
    )
    UPDATE task SET result = NULL FROM old, unnest(old.seqs) AS expired (seq)
    WHERE task.seq = expired.seq AND result_until <= _now;
    PERFORM purge_signals_v1(_app, _limit, _now);
    PERFORM purge_series_v1(_app, _request -> 'series', _limit, _now);
    PERFORM lock_limits_v1(_app);
    PERFORM purge_counters_v1(_app, _limit, _now);
    PERFORM purge_leftovers_v1(_app, _now);
END $$;
