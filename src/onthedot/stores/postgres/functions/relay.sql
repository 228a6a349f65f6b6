-- relay: mark what was sent, and read what is to be sent next. Relays own buckets, not rows, so the events of a key are
-- sent in order. Locks are taken in one order: buckets of a group by number, then events by seq.

-- name: leave_groups_v1
-- End the memberships of a session that has ended: its buckets are free. Members are notified at the commit.
CREATE FUNCTION leave_groups_v1(_app integer, _session text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM event_member WHERE app = _app AND session = _session;
    IF FOUND THEN
        PERFORM notify_v1((SELECT name FROM app WHERE id = _app), '{"events": true}');
    END IF;
END $$;

-- name: join_group_v1
-- Let a session be a member of a group. False: the session is over. Only joining locks the session: it ends later then.
CREATE FUNCTION join_group_v1(_app integer, _group text, _session text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM event_member WHERE app = _app AND consumer_group = _group AND session = _session) THEN
        RETURN true;
    END IF;
    PERFORM FROM session WHERE app = _app AND name = _session AND role = 'worker' FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO event_member VALUES (_app, _group, _session) ON CONFLICT DO NOTHING;
    INSERT INTO event_bucket (app, consumer_group, bucket) SELECT _app, _group, generate_series(0, 15)
    ON CONFLICT DO NOTHING;
    RETURN true;
END $$;

-- name: lock_buckets_v1
-- Lock buckets of a group, in order, so that no two callers wait for each other.
CREATE FUNCTION lock_buckets_v1(_app integer, _group text, _buckets smallint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM event_bucket WHERE app = _app AND consumer_group = _group AND bucket = ANY (_buckets)
    ORDER BY bucket FOR NO KEY UPDATE;
END $$;

-- name: fair_share_v1
-- The buckets of a member now: those that it keeps, those above its share that are busy and that are not, and free ones
-- that it lacks. A bucket is free if its owner is no member.
CREATE FUNCTION fair_share_v1(
    _app integer, _group text, _session text, _busy smallint[],
    OUT kept smallint[], OUT draining smallint[], OUT surplus smallint[], OUT lacking smallint[]
) LANGUAGE plpgsql AS $$
DECLARE
    _most integer := (SELECT ceil(16.0 / count(*)) FROM event_member WHERE app = _app AND consumer_group = _group);
    _own smallint[];
BEGIN
    SELECT coalesce(array_agg(b.bucket ORDER BY b.bucket) FILTER (WHERE b.session = _session), '{}'),
        coalesce(array_agg(b.bucket ORDER BY b.bucket) FILTER (WHERE m.session IS NULL), '{}')
    INTO _own, lacking
    FROM event_bucket AS b LEFT JOIN event_member AS m
        ON m.app = _app AND m.consumer_group = _group AND m.session = b.session
    WHERE b.app = _app AND b.consumer_group = _group;
    kept := _own[:_most];
    surplus := ARRAY(SELECT b FROM unnest(_own[_most + 1:]) AS b WHERE b <> ALL (_busy));
    draining := ARRAY(SELECT b FROM unnest(_own[_most + 1:]) AS b WHERE b = ANY (_busy));
    lacking := lacking[:_most - cardinality(kept)];
END $$;

-- name: share_v1
-- Let a member take and give back buckets; released: it gave some back. Nothing is locked while nothing changes.
CREATE FUNCTION share_v1(
    _app integer, _group text, _session text, _busy smallint[],
    OUT kept smallint[], OUT draining smallint[], OUT released boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _share record;
BEGIN
    SELECT * INTO _share FROM fair_share_v1(_app, _group, _session, _busy);
    released := false;
    IF _share.surplus <> '{}' OR _share.lacking <> '{}' THEN
        PERFORM lock_buckets_v1(_app, _group, ARRAY(SELECT generate_series(0, 15)::smallint));
        SELECT * INTO _share FROM fair_share_v1(_app, _group, _session, _busy);
        UPDATE event_bucket SET session = CASE WHEN bucket = ANY (_share.lacking) THEN _session END
        WHERE app = _app AND consumer_group = _group AND bucket = ANY (_share.surplus || _share.lacking);
        released := _share.surplus <> '{}';
    END IF;
    kept := _share.kept || _share.lacking;
    draining := _share.draining;
END $$;

-- name: append_to_log_v1
-- Mark events as sent that were not, and give each the next position in the log of its bucket, in this order.
CREATE FUNCTION append_to_log_v1(_app integer, _seqs bigint[], _at bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    _marked bigint[];
BEGIN
    INSERT INTO event_bucket (app, consumer_group, bucket) SELECT _app, '', generate_series(0, 15)
    WHERE NOT EXISTS (SELECT FROM event_bucket WHERE app = _app AND consumer_group = '') ON CONFLICT DO NOTHING;
    PERFORM lock_buckets_v1(_app, '', ARRAY(
        SELECT DISTINCT bucket FROM event_outbox WHERE seq = ANY (_seqs) AND app = _app));
    WITH unsent AS MATERIALIZED (
        SELECT g.seq, e.bucket, row_number() OVER (PARTITION BY e.bucket ORDER BY g.nth) AS nth
        FROM (
            SELECT seq, min(nth) AS nth FROM unnest(_seqs) WITH ORDINALITY AS s (seq, nth) GROUP BY seq
        ) AS g CROSS JOIN LATERAL (SELECT bucket FROM event_outbox
            WHERE seq = g.seq AND app = _app AND status IN ('pending', 'failed') OFFSET 0) AS e
    ), ends AS (
        UPDATE event_bucket AS b SET position = b.position + n.number
        FROM (SELECT bucket, count(*) AS number FROM unsent GROUP BY bucket) AS n
        WHERE b.app = _app AND b.consumer_group = '' AND b.bucket = n.bucket
        RETURNING b.bucket, b.position - n.number AS position
    ), marked AS (
        UPDATE event_outbox AS e SET status = 'sent', blocked = false, sent_at = _at, position = b.position + u.nth
        FROM unsent AS u JOIN ends AS b ON b.bucket = u.bucket WHERE e.seq = ANY (_seqs) AND e.seq = u.seq
        RETURNING e.seq
    )
    SELECT array_agg(seq ORDER BY seq) INTO _marked FROM marked;
    RETURN _marked;
END $$;

-- name: mark_sent_v1
-- Mark pending and failed events as sent. An index scan meets them by seq, so no two callers wait for each other.
CREATE FUNCTION mark_sent_v1(_app integer, _seqs bigint[], _to_log boolean, _now double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _at bigint := floor(_now);
    _marked bigint[];
BEGIN
    IF EXISTS (SELECT FROM event_outbox WHERE app = _app AND status = 'failed') THEN
        PERFORM free_keys_v1(_app, ARRAY(SELECT seq FROM event_outbox
            WHERE seq = ANY (_seqs) AND app = _app AND status = 'failed' ORDER BY seq FOR UPDATE));
    END IF;
    IF _to_log THEN
        _marked := append_to_log_v1(_app, _seqs, _at);
    ELSE
        WITH marked AS (
            UPDATE event_outbox SET status = 'sent', blocked = false, sent_at = _at
            WHERE seq = ANY (_seqs) AND app = _app AND status IN ('pending', 'failed') RETURNING seq
        )
        SELECT array_agg(seq ORDER BY seq) INTO _marked FROM marked;
    END IF;
    INSERT INTO retention (app, what, until, ended, seqs)
    SELECT _app, 'event', _at, _at, _marked WHERE _marked IS NOT NULL;
END $$;

-- name: mark_failed_v1
-- {seq: error, …}: events that the bus refused. They block their key in their topic.
CREATE FUNCTION mark_failed_v1(_app integer, _refused json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE event_outbox AS e SET status = 'failed', blocked = false, error = r.value, attempts = e.attempts + 1
    FROM json_each_text(_refused) AS r WHERE e.seq = r.key::bigint AND e.app = _app AND e.status = 'pending'
        AND e.seq = ANY (ARRAY(SELECT json_object_keys(_refused)::bigint));
END $$;

-- name: pending_in_topic_v1
-- The first pending events of a topic in these buckets that are not set aside, by seq; behind: those whose key has a
-- failed event. One branch per bucket, because each is read in the order of the index and all are merged: no more rows
-- are read than returned. A plan that was made for an empty table would read and sort all of them.
CREATE FUNCTION pending_in_topic_v1(
    _app integer, _topic text, _buckets smallint[], _most bigint, _has_failed boolean,
    OUT seqs bigint[], OUT behind bigint[]
) LANGUAGE plpgsql SET enable_sort = off AS $$
BEGIN
    SELECT coalesce(array_agg(p.seq) FILTER (WHERE NOT p.is_behind), '{}'),
        coalesce(array_agg(p.seq) FILTER (WHERE p.is_behind), '{}')
    INTO seqs, behind FROM (SELECT e.seq, _has_failed AND EXISTS (SELECT FROM event_outbox AS f
        WHERE f.app = _app AND f.topic = _topic AND f.key = e.key AND f.status = 'failed' OFFSET 0) AS is_behind FROM (
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 0 AND status = 'pending'
            AND NOT blocked AND 0 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 1 AND status = 'pending'
            AND NOT blocked AND 1 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 2 AND status = 'pending'
            AND NOT blocked AND 2 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 3 AND status = 'pending'
            AND NOT blocked AND 3 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 4 AND status = 'pending'
            AND NOT blocked AND 4 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 5 AND status = 'pending'
            AND NOT blocked AND 5 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 6 AND status = 'pending'
            AND NOT blocked AND 6 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 7 AND status = 'pending'
            AND NOT blocked AND 7 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 8 AND status = 'pending'
            AND NOT blocked AND 8 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 9 AND status = 'pending'
            AND NOT blocked AND 9 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 10 AND status = 'pending'
            AND NOT blocked AND 10 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 11 AND status = 'pending'
            AND NOT blocked AND 11 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 12 AND status = 'pending'
            AND NOT blocked AND 12 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 13 AND status = 'pending'
            AND NOT blocked AND 13 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 14 AND status = 'pending'
            AND NOT blocked AND 14 = ANY (_buckets) ORDER BY seq) UNION ALL
        (SELECT seq, key FROM event_outbox WHERE app = _app AND topic = _topic AND bucket = 15 AND status = 'pending'
            AND NOT blocked AND 15 = ANY (_buckets) ORDER BY seq)
    ) AS e ORDER BY e.seq LIMIT _most) AS p;
END $$;

-- name: set_aside_v1
-- Set pending events of a topic aside whose key has a failed event; return their number. The failed ones stay locked: an
-- operator who amends one of them waits, and then frees these events, too. Nothing here waits.
CREATE FUNCTION set_aside_v1(_app integer, _topic text, _seqs bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _keys text[] := ARRAY(SELECT DISTINCT key::text FROM event_outbox WHERE seq = ANY (_seqs));
    _number bigint;
BEGIN
    _keys := ARRAY(SELECT key::text FROM event_outbox
        WHERE app = _app AND topic = _topic AND key = ANY (_keys) AND status = 'failed' FOR SHARE SKIP LOCKED);
    UPDATE event_outbox SET blocked = true WHERE seq = ANY (ARRAY(SELECT seq FROM event_outbox
        WHERE seq = ANY (_seqs) AND key = ANY (_keys) AND status = 'pending' ORDER BY seq FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS _number = ROW_COUNT;
    RETURN _number;
END $$;

-- name: pending_v1
-- The seqs of events that a relay with these buckets takes now; more: there may be further ones. Topics are visited one
-- by one, so that those that are skipped cost nothing, however many of their events wait. Events of blocked keys that are
-- met are set aside, up to 10000 in one call.
CREATE FUNCTION pending_v1(
    _app integer, _buckets smallint[], _in_flight bigint[], _skip_topics text[], _limit bigint,
    OUT seqs bigint[], OUT more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _has_failed boolean := EXISTS (SELECT FROM event_outbox WHERE app = _app AND status = 'failed');
    _most bigint := _limit + cardinality(_in_flight);
    _topic label := '';
    _page record;
    _number bigint;
    _set_aside bigint := 0;
BEGIN
    seqs := '{}';
    LOOP
        SELECT topic INTO _topic FROM event_outbox WHERE app = _app AND status = 'pending' AND NOT blocked
            AND topic > _topic ORDER BY topic LIMIT 1;
        EXIT WHEN NOT FOUND;
        CONTINUE WHEN _topic = ANY (_skip_topics);
        LOOP
            SELECT * INTO _page FROM pending_in_topic_v1(_app, _topic, _buckets, _most, _has_failed);
            EXIT WHEN _page.behind = '{}';
            _number := set_aside_v1(_app, _topic, _page.behind);
            _set_aside := _set_aside + _number;
            EXIT WHEN _number = 0 OR _set_aside >= 10000;
        END LOOP;
        seqs := seqs || _page.seqs;
    END LOOP;
    seqs := ARRAY(SELECT unnest(seqs) EXCEPT SELECT unnest(_in_flight) ORDER BY 1 LIMIT _limit);
    more := cardinality(seqs) = _limit OR _set_aside >= 10000;
END $$;

-- name: outbox_events_v1
-- Events by seq, in the given order, up to the one with which they have so many bytes; one array per column, as
-- `records_v1`.
CREATE FUNCTION outbox_events_v1(
    _seqs bigint[], _most bigint, OUT seqs bigint[], OUT ids text[], OUT topics text[], OUT keys text[], OUT buckets smallint[],
    OUT types text[], OUT versions integer[], OUT aggregate_types text[], OUT aggregate_ids text[],
    OUT correlation_ids text[], OUT causation_ids text[], OUT retries integer[], OUT occurred_ats bigint[],
    OUT payloads json[], OUT raws bytea[], OUT headers json[], OUT attempts integer[], OUT errors text[],
    OUT sent_ats bigint[], OUT positions bigint[]
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT array_agg(e.seq), array_agg(e.id), array_agg(e.topic), array_agg(e.key), array_agg(e.bucket),
        array_agg(e.type), array_agg(e.version), array_agg(e.aggregate_type), array_agg(e.aggregate_id),
        array_agg(e.correlation_id), array_agg(e.causation_id), array_agg(e.retries),
        array_agg((extract(epoch FROM e.occurred_at) * 1000)::bigint), array_agg(e.payload), array_agg(e.raw),
        array_agg(e.headers), array_agg(e.attempts), array_agg(e.error), array_agg(e.sent_at), array_agg(e.position)
    INTO seqs, ids, topics, keys, buckets, types, versions, aggregate_types, aggregate_ids, correlation_ids,
        causation_ids, retries, occurred_ats, payloads, raws, headers, attempts, errors, sent_ats, positions
    FROM (
        SELECT one.*, sum(one.size) OVER (ORDER BY wanted.nth ROWS UNBOUNDED PRECEDING) - one.size AS bytes_before
        FROM unnest(_seqs) WITH ORDINALITY AS wanted (seq, nth)
        CROSS JOIN LATERAL (SELECT * FROM event_outbox WHERE event_outbox.seq = wanted.seq OFFSET 0) AS one
        ORDER BY wanted.nth
    ) AS e WHERE e.bytes_before < _most;
END $$;

-- name: relay_v1
-- {"app", "now", "session", "sent": seqs in order, "refused": {seq: error}, "to_log"; to read also "limit", "most_bytes",
-- "in_flight", "busy", "skip_topics"} → whether the session lives; the buckets that it owns, and events: see `outbox_events_v1`.
CREATE FUNCTION relay_v1(
    _request json, OUT alive boolean, OUT owned smallint[], OUT more boolean, OUT seqs bigint[], OUT ids text[],
    OUT topics text[], OUT keys text[], OUT buckets smallint[], OUT types text[], OUT versions integer[],
    OUT aggregate_types text[], OUT aggregate_ids text[], OUT correlation_ids text[], OUT causation_ids text[],
    OUT retries integer[], OUT occurred_ats bigint[], OUT payloads json[], OUT raws bytea[], OUT headers json[],
    OUT attempts integer[], OUT errors text[], OUT sent_ats bigint[], OUT positions bigint[], OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _args record;
    _app integer;
    _now double precision;
    _reads boolean;
    _woken text[];
    _share record;
    _taken record;
BEGIN
    SELECT * INTO _args FROM json_to_record(_request) AS r (
        app text, now double precision, session text, sent bigint[], refused json, to_log boolean, "limit" bigint,
        most_bytes bigint, in_flight bigint[], busy smallint[], skip_topics text[]);
    _app := app_v1(_args.app);
    _now := now_v1(_args.now);
    _reads := _args."limit" IS NOT NULL;
    IF _reads THEN
        _woken := reap_overdue_v1(_app, _now);
    END IF;
    alive := EXISTS (SELECT FROM session WHERE app = _app AND name = _args.session AND role = 'worker');
    IF _reads AND alive THEN
        alive := join_group_v1(_app, '', _args.session);
    END IF;
    _reads := _reads AND alive;
    SELECT * INTO _share FROM share_v1(_app, '', _args.session, _args.busy) WHERE _reads;
    IF _args.sent <> '{}' THEN
        PERFORM mark_sent_v1(_app, _args.sent, _args.to_log, _now);
    END IF;
    IF _args.refused IS NOT NULL THEN
        PERFORM mark_failed_v1(_app, _args.refused);
    END IF;
    notification := json_strip_nulls(json_build_object('sources', _woken, 'events', nullif(
        coalesce(_share.released, false) OR _args.to_log AND _args.sent <> '{}', false)));
    IF NOT _reads THEN
        RETURN;
    END IF;
    SELECT * INTO _taken FROM pending_v1(_app, _share.kept, _args.in_flight, _args.skip_topics, _args."limit");
    SELECT _share.kept || _share.draining, _taken.more, e.* INTO owned, more, seqs, ids,
        topics, keys, buckets, types, versions, aggregate_types, aggregate_ids, correlation_ids, causation_ids, retries,
        occurred_ats, payloads, raws, headers, attempts, errors, sent_ats, positions
    FROM outbox_events_v1(_taken.seqs, _args.most_bytes) AS e;
    more := more OR coalesce(cardinality(seqs), 0) < cardinality(_taken.seqs);
END $$;
