-- Unique keys: at most one live task per source and key.

-- name: lock_keys_v1
-- Insert the keys of new tasks without a holder, in one order for all callers, so that no two wait for each other.
CREATE FUNCTION lock_keys_v1(_app integer, _tasks json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO unique_key SELECT DISTINCT _app, t.source, t.unique_key, '', NULL::bigint
    FROM json_to_recordset(_tasks) AS t (source text, unique_key text) WHERE t.unique_key IS NOT NULL ORDER BY 2, 3
    ON CONFLICT DO NOTHING;
END $$;

-- name: unlock_keys_v1
-- Delete the keys that still have no holder.
CREATE FUNCTION unlock_keys_v1(_app integer, _tasks json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM unique_key AS k USING json_to_recordset(_tasks) AS t (source text, unique_key text)
    WHERE k.app = _app AND k.source = t.source AND k.name = t.unique_key AND k.uuid = '';
END $$;

-- name: take_key_v1
-- The holder of a key: the new task, if the key was free or its time was over, otherwise a live task.
CREATE FUNCTION take_key_v1(_app integer, _new json, _added bigint, _now double precision) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    _key unique_key;
BEGIN
    FOR _ IN 1 .. 20 LOOP
        SELECT * INTO _key FROM unique_key AS k
        WHERE k.app = _app AND k.source = _new ->> 'source' AND k.name = _new ->> 'unique_key';
        IF NOT FOUND THEN  -- its holder has ended since the keys were locked
            INSERT INTO unique_key VALUES (_app, _new ->> 'source', _new ->> 'unique_key', '') ON CONFLICT DO NOTHING;
            CONTINUE;
        END IF;
        IF _key.uuid <> '' AND coalesce(_key.until > _now, true) THEN
            RETURN _key.uuid;
        END IF;
        UPDATE unique_key AS k SET uuid = _new ->> 'uuid', until = _added + (_new ->> 'unique_for')::bigint
        WHERE k.app = _app AND k.source = _key.source AND k.name = _key.name AND k.uuid = _key.uuid
            AND k.until IS NOT DISTINCT FROM _key.until;
        IF FOUND THEN
            RETURN _new ->> 'uuid';
        END IF;
    END LOOP;
    RAISE EXCEPTION 'the unique key % of % changed its holder 20 times meanwhile',
        _new ->> 'unique_key', _new ->> 'source' USING ERRCODE = 'lock_not_available';
END $$;

-- name: retake_key_v1
-- Whether a task that is revived may hold its key: no other live task does.
CREATE FUNCTION retake_key_v1(_task task, _now double precision) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF _task.unique_key IS NOT NULL AND _task.unique_for IS NULL THEN
        INSERT INTO unique_key VALUES (_task.app, _task.source, _task.unique_key, _task.uuid, NULL)
        ON CONFLICT (app, source, name) DO UPDATE SET uuid = excluded.uuid, until = NULL
        WHERE unique_key.uuid = excluded.uuid OR unique_key.until <= _now;
        RETURN FOUND;
    END IF;
    RETURN NOT EXISTS (SELECT FROM unique_key WHERE app = _task.app AND source = _task.source
        AND name = _task.unique_key AND uuid <> _task.uuid AND coalesce(until > _now, true));
END $$;
