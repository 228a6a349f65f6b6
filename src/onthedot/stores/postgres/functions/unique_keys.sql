-- Unique keys: at most one live task per source and key.

-- name: lock_keys_v1
-- Insert the keys of new tasks without a holder, in one order for all callers, so that no two wait for each other. False:
-- all of them existed.
CREATE FUNCTION lock_keys_v1(_app integer, _tasks json) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO unique_key SELECT DISTINCT _app, t.source, t.unique_key, '', NULL::bigint
    FROM json_to_recordset(_tasks) AS t (source text, unique_key text) WHERE t.unique_key IS NOT NULL ORDER BY 2, 3
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

-- name: unlock_keys_v1
-- Delete the keys that still have no holder.
CREATE FUNCTION unlock_keys_v1(_app integer, _tasks json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM unique_key AS k USING json_to_recordset(_tasks) AS t (source text, unique_key text)
    WHERE k.app = _app AND k.source = t.source AND k.name = t.unique_key AND k.uuid = '';
END $$;

-- name: take_keys_v1
-- Let new tasks hold their keys that are locked by this call, free, or past their time. known: uuids that take none.
CREATE FUNCTION take_keys_v1(_app integer, _tasks json, _known text[], _now double precision) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    FOR _ IN 1 .. 20 LOOP
        UPDATE unique_key AS k SET uuid = f.uuid, until = f.until FROM (
            SELECT found.ctid, t.uuid, coalesce(t.added, floor(_now)::bigint) + t.unique_for AS until
            FROM json_to_recordset(_tasks) AS t (
                uuid text, source text, unique_key text, unique_for bigint, added bigint)
            CROSS JOIN LATERAL (SELECT ctid FROM unique_key AS i
                WHERE i.app = _app AND i.source = t.source AND i.name = t.unique_key
                    AND (i.uuid = '' OR i.until <= _now) OFFSET 0) AS found
            WHERE t.unique_key IS NOT NULL AND t.uuid <> ALL (_known)
        ) AS f WHERE k.ctid = f.ctid AND (k.uuid = '' OR k.until <= _now);
        IF NOT lock_keys_v1(_app, _tasks) THEN
            RETURN;
        END IF;  -- the holder of a key has ended since the keys were locked
    END LOOP;
    RAISE EXCEPTION 'unique keys of these tasks changed their holders 20 times meanwhile'
        USING ERRCODE = 'lock_not_available';
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
