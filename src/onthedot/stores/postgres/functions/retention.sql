-- Retention: how long ended tasks and their results are kept.

-- name: drop_retained_v1
-- Delete up to `most` tasks that ended together; tasks that were revived since are left out.
CREATE FUNCTION drop_retained_v1(_retention retention, _most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _retained bigint[];
    _deleted bigint[];
BEGIN
    _retained := ARRAY(SELECT seq FROM task WHERE seq = ANY (_retention.seqs) AND keep_until = _retention.until
        AND ended = _retention.ended ORDER BY seq FOR UPDATE SKIP LOCKED);
    _deleted := _retained[:_most];
    IF cardinality(_retained) > _most THEN
        UPDATE retention SET seqs = _retained[_most + 1:] WHERE number = _retention.number;
    ELSE
        DELETE FROM retention WHERE number = _retention.number;
    END IF;
    INSERT INTO tally SELECT _retention.app, source, state, -count(*) FROM task
    WHERE seq = ANY (_deleted) GROUP BY source, state;
    DELETE FROM note WHERE seq = ANY (_deleted);
    DELETE FROM task WHERE seq = ANY (_deleted);
    RETURN cardinality(_deleted);
END $$;

-- name: purge_leftovers_v1
-- Sum up tallies, and delete old changes, keys and recent uuids past their time, old names of dead sessions and full
-- token buckets.
CREATE FUNCTION purge_leftovers_v1(_app integer, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH old AS (
        DELETE FROM tally WHERE ctid = ANY (ARRAY(SELECT ctid FROM tally WHERE app = _app FOR UPDATE SKIP LOCKED))
        RETURNING source, state, number
    )
    INSERT INTO tally SELECT _app, source, state, sum(number) FROM old GROUP BY source, state HAVING sum(number) <> 0;
    DELETE FROM change WHERE app = _app AND call <= (
        SELECT call FROM (
            SELECT call, sum(coalesce(cardinality(seqs), 1)) OVER (ORDER BY call DESC) AS newer FROM change
            WHERE app = _app
        ) AS log WHERE newer > 100000 ORDER BY call DESC LIMIT 1);
    DELETE FROM unique_key WHERE until <= floor(_now)::bigint;
    DELETE FROM recent_uuid WHERE app = _app AND until <= floor(_now)::bigint;
    DELETE FROM dead_session WHERE app = _app AND number <= (SELECT max(number) FROM dead_session) - 10000;
    DELETE FROM token_bucket AS b USING (
        SELECT name, effective_limit_v1(_app, name) AS rule FROM token_bucket WHERE app = _app AND refill_at IS NULL
    ) AS idle WHERE b.app = _app AND b.name = idle.name AND b.refill_at IS NULL AND coalesce(
        b.tokens + (idle.rule).rate * (_now - b.at) / 1000 >= (idle.rule).burst, _now - b.at > 3600000, true);
END $$;

-- name: purge_v1
-- {"app", "now", "limit", "most"} → the number of ended tasks deleted: past their time, then the oldest beyond `most`.
CREATE FUNCTION purge_v1(_request json, OUT deleted bigint) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _limit bigint := (_request ->> 'limit')::bigint;
    _excess bigint;
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
    SELECT coalesce(sum(number), 0) - (_request ->> 'most')::bigint INTO _excess FROM tally
    WHERE app = _app AND state IN ('succeeded', 'failed', 'cancelled');
    WHILE deleted < _limit AND _excess > 0 LOOP
        SELECT * INTO _retention FROM retention WHERE app = _app AND what = 'task'
        ORDER BY ended, number LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        _dropped := drop_retained_v1(_retention, least(_limit - deleted, _excess));
        deleted := deleted + _dropped;
        _excess := _excess - _dropped;
    END LOOP;
    WITH old AS (
        DELETE FROM retention WHERE number = ANY (ARRAY(
            SELECT number FROM retention WHERE app = _app AND what = 'result' AND until <= floor(_now)::bigint
            ORDER BY until, number LIMIT _limit FOR UPDATE SKIP LOCKED)) RETURNING seqs
    )
    UPDATE task SET result = NULL FROM old, unnest(old.seqs) AS expired (seq)
    WHERE task.seq = expired.seq AND result_until <= _now;
    PERFORM lock_limits_v1(_app);
    PERFORM purge_leftovers_v1(_app, _now);
END $$;
