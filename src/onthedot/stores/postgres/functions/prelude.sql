-- What all functions share: time, apps, notifications.
--
-- A statement is planned once per connection, because planning takes as long as running it. A plan that was made for an
-- empty table is then used for a full one. Therefore every table is entered by an index condition that holds for any
-- join order: = ANY of an array, or a lateral query that OFFSET 0 keeps apart.

-- name: now_v1
-- The time in ms. Tests pass their own; in production the argument is null.
CREATE FUNCTION now_v1(_given double precision) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce(_given, extract(epoch FROM clock_timestamp()) * 1000);
END $$;

-- name: due_v1
-- The due time of a delay: rounded up, but "now" is rounded down, so it is due at once.
CREATE FUNCTION due_v1(_after double precision, _now double precision) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _after > 0 THEN ceil(_now + _after) ELSE floor(_now) END::bigint
$$;

-- name: app_v1
-- The id of an app; a new name gets one.
CREATE FUNCTION app_v1(_name text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    _id integer := (SELECT id FROM app WHERE name = _name);
BEGIN
    IF _id IS NULL THEN
        INSERT INTO app (name) VALUES (_name) ON CONFLICT DO NOTHING;
        _id := (SELECT id FROM app WHERE name = _name);
    END IF;
    RETURN _id;
END $$;

-- name: identity_v1
-- The data set of an app and the last fence of the database: a lower one than before is an older state of the data.
CREATE FUNCTION identity_v1(_app integer, OUT data_set text, OUT last_fence bigint) LANGUAGE plpgsql AS $$
BEGIN
    SELECT a.data_set, CASE WHEN f.is_called THEN f.last_value ELSE 0 END INTO data_set, last_fence
    FROM app AS a CROSS JOIN fence AS f WHERE a.id = _app;
END $$;

-- name: last_fence_v1
-- {} → the last fence of the database. It is a verb, since a role that may only read tables cannot read the sequence.
CREATE FUNCTION last_fence_v1(_request json, OUT fence bigint) LANGUAGE plpgsql AS $$
BEGIN
    SELECT CASE WHEN f.is_called THEN f.last_value ELSE 0 END INTO fence FROM onthedot.fence AS f;
END $$;

-- name: notify_v1
-- Notify at the commit of this transaction. One that is too long for NOTIFY becomes {}: listeners check everything.
CREATE FUNCTION notify_v1(_app text, _notification json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('onthedot:' || md5(_app),
        CASE WHEN octet_length(_notification::text) < 7900 THEN _notification::text ELSE '{}' END);
END $$;
