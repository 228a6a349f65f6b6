-- Task rows: what they contain, and how they are returned.

-- name: expiry_v1
-- When a pending task expires; a task that has started once does not.
CREATE FUNCTION expiry_v1(_task task) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _task.started IS NULL THEN _task.due + _task.expires END
$$;

-- name: alarm_v1
-- The one time at which something happens by itself to a task in a place of this kind.
CREATE FUNCTION alarm_v1(_task task, _kind "char") RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE _kind WHEN 's' THEN _task.due WHEN 'w' THEN _task.wait_until
        WHEN 'p' THEN expiry_v1(_task) WHEN 'r' THEN expiry_v1(_task) END
$$;

-- name: is_suspect_v1
-- Whether the next crash of a task would be its last.
CREATE FUNCTION is_suspect_v1(_task task) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT _task.crashes + 1 >= _task.max_crashes
$$;

-- name: history_v1
-- The history of a task as JSON, without its result, which may be large. Null: nothing has happened to it.
CREATE FUNCTION history_v1(_task task) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN _task.reason = 'due' AND _task.settled_fence = 0 AND NOT _task.cancel_requested AND _task.crashes = 0
            AND _task.earlier = 0 AND _task.started IS NULL AND _task.session IS NULL AND _task.error IS NULL
            AND _task.wait_until IS NULL THEN NULL
        ELSE json_build_object(
            'reason', _task.reason, 'retries', _task.retries, 'crashes', _task.crashes, 'earlier', _task.earlier,
            'cancel_requested', _task.cancel_requested, 'settled_fence', _task.settled_fence,
            'session', _task.session, 'started', _task.started, 'ended', _task.ended,
            'keep_until', _task.keep_until, 'error', translate(encode(_task.error, 'base64'), E'\n', ''),
            'hops', _task.hops, 'revives', _task.revives, 'wait', _task.wait, 'wait_until', _task.wait_until)::text END
$$;

-- name: has_tag_v1
-- Whether a policy has a tag. A policy that cannot be read has none.
CREATE FUNCTION has_tag_v1(_policy text, _tag text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF strpos(_policy, '"tags"') = 0 THEN
        RETURN false;
    END IF;
    RETURN _policy::jsonb -> 'tags' ? _tag;
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$;

-- name: save_v1
-- Write back what changes when a task is requeued, ended or revived.
CREATE FUNCTION save_v1(_task task) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task SET due = _task.due, state = _task.state, reason = _task.reason, retries = _task.retries,
        crashes = _task.crashes, earlier = _task.earlier, revives = _task.revives, cancel_requested = _task.cancel_requested,
        settled_fence = _task.settled_fence, session = _task.session, started = _task.started, ended = _task.ended,
        keep_until = _task.keep_until, error = _task.error, result = _task.result, result_until = _task.result_until,
        wait = _task.wait, wait_until = _task.wait_until
    WHERE seq = _task.seq;
END $$;

-- name: records_v1
-- Tasks by seq, in the given order; one array per column, because the client decodes few arrays faster than many rows.
-- links: null if none of them has links.
CREATE FUNCTION records_v1(
    _seqs bigint[], OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[], OUT lanes text[],
    OUT unique_keys text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[], OUT states text[],
    OUT histories text[], OUT links json[]
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT array_agg(t.uuid), array_agg(t.source), array_agg(t.body), array_agg(t.policy), array_agg(t.lane),
        array_agg(t.unique_key), array_agg(t.due), array_agg(t.seq), array_agg(t.added), array_agg(t.state),
        array_agg(t.history), CASE WHEN count(t.links) > 0 THEN array_agg(t.links) END
    INTO uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories, links
    FROM (
        SELECT one.*, history_v1(one) AS history FROM unnest(_seqs) WITH ORDINALITY AS wanted (seq, nth)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE task.seq = wanted.seq OFFSET 0) AS one ORDER BY wanted.nth
    ) AS t;
END $$;
