-- The log of the store as a bus: groups read it by bucket and position, and commit how far they are.

-- name: readable_v1
-- The part of the log of each bucket that one call reads: after `starts`, up to `ends`. after: {bucket: position}; other
-- buckets are read from the committed position. A call passes over at most 10,000 positions per bucket; after a purge
-- the log begins at its first event.
CREATE FUNCTION readable_v1(
    _app integer, _group text, _buckets smallint[], _after json,
    OUT buckets smallint[], OUT starts bigint[], OUT ends bigint[]
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT array_agg(l.bucket ORDER BY l.bucket), array_agg(l.start ORDER BY l.bucket),
        array_agg(greatest(l.start, least(l.log_end, l.start + 10000)) ORDER BY l.bucket)
    INTO buckets, starts, ends FROM (
        SELECT g.bucket, g.log_end, CASE WHEN g.log_end - g.start <= 10000 THEN g.start ELSE greatest(g.start, (
            SELECT min(e.position) - 1 FROM event_outbox AS e
            WHERE e.app = _app AND e.bucket = g.bucket AND e.position IS NOT NULL)) END AS start
        FROM (
            SELECT b.bucket, coalesce((_after ->> b.bucket::text)::bigint, b.position) AS start,
                coalesce(log.position, 0) AS log_end
            FROM event_bucket AS b LEFT JOIN event_bucket AS log
                ON log.app = _app AND log.consumer_group = '' AND log.bucket = b.bucket
            WHERE b.app = _app AND b.consumer_group = _group AND b.bucket = ANY (_buckets)
        ) AS g
    ) AS l;
END $$;

-- name: find_in_log_v1
-- Up to `most` events of the topics per bucket, by position, and the positions up to which the log was read; bytes: the
-- event that reaches so many is the last of its bucket. Where the log ends is read first: all that is before it is visible
-- to the next statement.
CREATE FUNCTION find_in_log_v1(
    _app integer, _group text, _buckets smallint[], _after json, _topics text[], _most bigint, _bytes bigint,
    OUT buckets smallint[], OUT reached bigint[], OUT seqs bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    _parts record;
BEGIN
    SELECT * INTO _parts FROM readable_v1(_app, _group, _buckets, _after);
    WITH found_in AS MATERIALIZED (
        SELECT p.bucket, p.until, e.seq, e.position, e.size
        FROM unnest(_parts.buckets, _parts.starts, _parts.ends) AS p (bucket, start, until)
        LEFT JOIN LATERAL (
            SELECT s.seq, s.position, s.size FROM (
                SELECT o.seq, o.position, o.size,
                    sum(o.size) OVER (ORDER BY o.position ROWS UNBOUNDED PRECEDING) - o.size AS bytes_before
                FROM event_outbox AS o WHERE o.app = _app AND o.bucket = p.bucket
                    AND o.position > p.start AND o.position <= p.until AND o.topic = ANY (_topics)
                ORDER BY o.position LIMIT _most
            ) AS s WHERE s.bytes_before < _bytes
        ) AS e ON true
    )
    SELECT array_agg(r.bucket), array_agg(r.reached),
        ARRAY(SELECT seq FROM found_in WHERE seq IS NOT NULL ORDER BY bucket, position)
    INTO buckets, reached, seqs FROM (
        SELECT bucket, CASE WHEN count(seq) = _most OR sum(size) >= _bytes THEN max(position) ELSE until END AS reached
        FROM found_in GROUP BY bucket, until
    ) AS r;
END $$;

-- name: read_log_v1
-- {"app", "now", "group", "session", "topics", "after": {bucket: position}, "limit", "most_bytes"} → whether the session lives; the
-- buckets that it owns and the positions up to which it has read; events: see `outbox_events_v1`. Every bucket may fill
-- an equal part of the limit. Buckets above its share are given back when `after` does not name them.
CREATE FUNCTION read_log_v1(
    _request json, OUT alive boolean, OUT owned smallint[], OUT reached bigint[], OUT seqs bigint[], OUT ids text[],
    OUT topics text[], OUT keys text[], OUT buckets smallint[], OUT types text[], OUT versions integer[],
    OUT aggregate_types text[], OUT aggregate_ids text[], OUT correlation_ids text[], OUT causation_ids text[],
    OUT retries integer[], OUT occurred_ats bigint[], OUT payloads json[], OUT raws bytea[], OUT headers json[],
    OUT attempts integer[], OUT errors text[], OUT sent_ats bigint[], OUT positions bigint[], OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _args record;
    _app integer;
    _woken text[];
    _share record;
    _read record;
BEGIN
    SELECT * INTO _args FROM json_to_record(_request) AS r (
        app text, now double precision, "group" text, session text, topics text[], after json, "limit" bigint,
        most_bytes bigint);
    _app := app_v1(_args.app);
    _woken := reap_overdue_v1(_app, now_v1(_args.now));
    alive := EXISTS (SELECT FROM session WHERE app = _app AND name = _args.session AND role = 'worker')
        AND join_group_v1(_app, _args."group", _args.session);
    SELECT * INTO _share FROM share_v1(_app, _args."group", _args.session,
        ARRAY(SELECT json_object_keys(_args.after)::smallint)) WHERE alive;
    notification := json_strip_nulls(
        json_build_object('sources', _woken, 'events', nullif(coalesce(_share.released, false), false)));
    IF NOT alive THEN
        RETURN;
    END IF;
    SELECT * INTO _read FROM find_in_log_v1(_app, _args."group", _share.kept, _args.after, _args.topics,
        greatest(1, _args."limit" / greatest(1, cardinality(_share.kept))),
        _args.most_bytes / greatest(1, cardinality(_share.kept)));
    SELECT _read.buckets, _read.reached, e.* INTO owned, reached, seqs, ids, topics, keys, buckets, types, versions,
        aggregate_types, aggregate_ids, correlation_ids, causation_ids, retries, occurred_ats, payloads, raws, headers,
        attempts, errors, sent_ats, positions
    FROM outbox_events_v1(_read.seqs, 9223372036854775807) AS e;
END $$;

-- name: commit_positions_v1
-- {"app", "group", "session", "positions": {bucket: position}}: of buckets that the session owns, forwards only.
CREATE FUNCTION commit_positions_v1(_request json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _group text := _request ->> 'group';
    _session text := _request ->> 'session';
    _positions json := _request -> 'positions';
BEGIN
    IF NOT EXISTS (SELECT FROM event_member WHERE app = _app AND consumer_group = _group AND session = _session) THEN
        RETURN;
    END IF;
    PERFORM lock_buckets_v1(_app, _group, ARRAY(SELECT json_object_keys(_positions)::smallint));
    UPDATE event_bucket SET position = (_positions ->> bucket::text)::bigint
    WHERE app = _app AND consumer_group = _group AND session = _session
        AND position < (_positions ->> bucket::text)::bigint;
END $$;
