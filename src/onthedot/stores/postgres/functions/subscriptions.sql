-- Subscriptions: sessions that get hints about the end and the new items of tasks. No call waits for the row of
-- another: a row that is locked is left to `purge`.

-- name: subscribers_v1
-- The subscribers of tasks as [[session, [uuid, …]], …]; null: there are none.
CREATE FUNCTION subscribers_v1(_app integer, _uuids text[]) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM subscription WHERE app = _app) THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT json_agg(json_build_array(of_one.session, of_one.uuids)) FROM (
        SELECT s.session, array_agg(u.uuid) AS uuids FROM (SELECT DISTINCT unnest(_uuids) AS uuid) AS u
        CROSS JOIN LATERAL (SELECT session FROM subscription WHERE app = _app AND uuid = u.uuid OFFSET 0) AS s
        GROUP BY s.session
    ) AS of_one);
END $$;

-- name: end_subscriptions_v1
-- Delete the subscriptions to tasks that have ended.
CREATE FUNCTION end_subscriptions_v1(_app integer, _uuids text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM subscription WHERE ctid = ANY (ARRAY(
        SELECT s.ctid FROM unnest(_uuids) AS u (uuid) CROSS JOIN LATERAL (SELECT ctid FROM subscription
            WHERE app = _app AND uuid = u.uuid FOR UPDATE SKIP LOCKED) AS s));
END $$;

-- name: end_subscriber_v1
-- Delete the subscriptions of a session that has ended.
CREATE FUNCTION end_subscriber_v1(_app integer, _session text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM subscription WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM subscription WHERE app = _app AND session = _session FOR UPDATE SKIP LOCKED));
END $$;

-- name: purge_subscriptions_v1
-- Delete the subscriptions that outlived their task or their session.
CREATE FUNCTION purge_subscriptions_v1(_app integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM subscription WHERE ctid = ANY (ARRAY(
        SELECT s.ctid FROM subscription AS s WHERE s.app = _app AND (
            NOT EXISTS (SELECT FROM session AS o WHERE o.app = _app AND o.name = s.session OFFSET 0)
            OR NOT EXISTS (
                SELECT FROM task AS t WHERE t.uuid = s.uuid AND t.app = _app AND t.ended IS NULL OFFSET 0))
        FOR UPDATE SKIP LOCKED));
END $$;
