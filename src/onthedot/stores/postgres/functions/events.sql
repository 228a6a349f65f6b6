-- publish: keep events until a relay has sent them. Inserts only: an open transaction of a caller delays others only at
-- the same event id.

-- name: bucket_v1
-- The bucket of a key: its CRC-32, modulo 16. Servers before version 18 have no function for it.
CREATE FUNCTION bucket_v1(_key text) RETURNS smallint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    _table bigint[] := ARRAY[0, 498536548, 997073096, 651767980, 1994146192, 1802195444, 1303535960, 1342533948,
        3988292384, 4027552580, 3604390888, 3412177804, 2607071920, 2262029012, 2685067896, 3183342108];  -- per nibble
    _bytes bytea := convert_to(_key, 'UTF8');
    _crc bigint := 4294967295;
BEGIN
    FOR _nth IN 0 .. octet_length(_bytes) - 1 LOOP
        _crc := _crc # get_byte(_bytes, _nth);
        _crc := _crc >> 4 # _table[(_crc & 15) + 1];
        _crc := _crc >> 4 # _table[(_crc & 15) + 1];
    END LOOP;
    RETURN ~_crc & 15;
END $$;

-- name: event_problem_v1
-- The problem of an event that another program writes; null: there is none. verbs: actions in the past tense that do not
-- end in "ed".
CREATE FUNCTION event_problem_v1(_type text, _aggregate_id text, _key text, _topic text, _verbs text[]) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE
        WHEN _type IS NULL THEN 'an event has no type; write Domain.Aggregate.Action, as in Shop.Order.Placed'
        WHEN _type !~ '^[A-Z][A-Za-z0-9]*(\.[A-Z][A-Za-z0-9]*){2,3}$' THEN format(
            'event type %L does not have 3 or 4 segments in PascalCase, as in Shop.Order.Placed', _type)
        WHEN _type !~ ('(ed|' || array_to_string(_verbs, '|') || ')$') THEN format(
            'event type %L: its action is not in the past tense; it must end in "ed" or in one of %s; "verbs" adds others',
            _type, array_to_string(_verbs, ', '))
        WHEN coalesce(_aggregate_id, '') = '' THEN format('event of type %L has no aggregate_id', _type)
        WHEN _key = '' THEN format('event of type %L has an empty key', _type)
        WHEN _topic !~ '^[A-Za-z0-9._-]{1,249}$' THEN format(
            'event of type %L: topic %L is not a name for Kafka: 1 to 249 of A-Z a-z 0-9 . _ -', _type, _topic)
    END;
END $$;

-- name: complete_events_v1
-- Events as another program writes them (the form of `Event.to_dict`), with what can be derived, in the form that
-- `insert_events_v1` reads. The relay fills in the source of the app.
CREATE FUNCTION complete_events_v1(_events json, _verbs text[]) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    _known text[] := _verbs || '{Sent,Paid,Built,Made,Found,Lost,Sold,Bought,Begun,Withdrawn,Written}';
    _problem text := (
        SELECT event_problem_v1(g.type, g.aggregate_id, g.key, g.topic, _known)
        FROM json_to_recordset(_events) AS g (type text, aggregate_id text, key text, topic text)
        WHERE event_problem_v1(g.type, g.aggregate_id, g.key, g.topic, _known) IS NOT NULL LIMIT 1);
BEGIN
    IF _problem IS NOT NULL THEN
        RAISE EXCEPTION '%', _problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN (
        SELECT json_agg(json_build_object('id', g.id, 'type', g.type, 'topic', coalesce(
                g.topic, lower(split_part(g.type, '.', 1) || '.' || split_part(g.type, '.', 2)) || '.events'),
            'key', g.key, 'bucket', bucket_v1(g.key), 'version', g.version, 'retries', g.retries,
            'aggregate_id', g.aggregate_id, 'aggregate_type', coalesce(
                g.aggregate_type, split_part(g.type, '.', 1) || split_part(g.type, '.', 2)),
            'correlation_id', coalesce(g.correlation_id, g.id), 'causation_id', g.causation_id,
            'occurred_at', round(extract(epoch FROM coalesce(g.occurred_at, clock_timestamp())) * 1000)::bigint,
            'payload_text', coalesce(g.payload, 'null')::text, 'headers_text', (
                coalesce(g.headers, '{}') || jsonb_strip_nulls(jsonb_build_object('ce_priority', g.priority::text)))::text
            ) ORDER BY g.ordinality)
        FROM (
            SELECT coalesce(e.id, gen_random_uuid()::text) AS id, e.type, e.topic, e.version, e.retries, e.aggregate_id,
                e.aggregate_type, coalesce(e.key, e.aggregate_id) AS key, e.correlation_id, e.causation_id,
                e.occurred_at, e.payload, e.priority, e.headers, e.ordinality
            FROM ROWS FROM (json_to_recordset(_events) AS (
                id text, type text, topic text, version integer, retries integer, aggregate_id text,
                aggregate_type text, key text, correlation_id text, causation_id text, occurred_at timestamptz,
                payload json, priority integer, headers jsonb)) WITH ORDINALITY AS e
        ) AS g);
END $$;

-- name: insert_events_v1
-- Number and keep the events whose id is new; of each, whether it was. positions: of the outcomes whose events are kept;
-- null: all. Ids are inserted in order, so that no two callers wait for each other.
CREATE FUNCTION insert_events_v1(_app integer, _events json, _positions bigint[]) RETURNS boolean[]
LANGUAGE plpgsql AS $$
DECLARE
    _fresh boolean[];
BEGIN
    WITH given AS MATERIALIZED (
        SELECT nextval('event_seq') AS seq, g.* FROM json_to_recordset(_events) AS g (
            id text, topic text, key text, bucket smallint, type text, version integer, aggregate_type text,
            aggregate_id text, correlation_id text, causation_id text, retries integer, occurred_at bigint,
            payload_text text, raw text, headers_text text, outcome bigint)
        WHERE _positions IS NULL OR g.outcome = ANY (_positions)
    ), stored AS (
        INSERT INTO event_outbox (
            seq, app, bucket, id, topic, key, type, version, aggregate_type, aggregate_id, correlation_id, causation_id,
            retries, occurred_at, payload, raw, headers, size
        )
        SELECT seq, _app, bucket, id, topic, key, coalesce(type, ''), coalesce(version, 1),
            coalesce(aggregate_type, ''), coalesce(aggregate_id, ''), correlation_id, causation_id,
            coalesce(retries, 0), to_timestamp(coalesce(occurred_at, 0) / 1000.0), payload_text::json,
            decode(raw, 'base64'), headers_text::json, coalesce(octet_length(payload_text), 0)
            + coalesce(octet_length(decode(raw, 'base64')), 0) + coalesce(octet_length(headers_text), 0)
        FROM given ORDER BY id, seq ON CONFLICT (id, app) DO NOTHING
        RETURNING seq
    )
    SELECT array_agg(s.seq IS NOT NULL ORDER BY g.seq) INTO _fresh FROM given AS g LEFT JOIN stored AS s ON s.seq = g.seq;
    RETURN coalesce(_fresh, '{}');
END $$;

-- name: publish_v1
-- {"app", "events": […], "verbs", "complete", "notify"} → per event its id, and whether it is new. Any transaction of any
-- program may call it: SELECT onthedot.publish_v1('{"app": "shop", "events": [{"type": …, "aggregate_id": …,
-- "payload": …}]}'). complete: nothing is to be derived and checked; ids is null. notify: at the commit; the default.
CREATE FUNCTION publish_v1(_request json, OUT ids text[], OUT fresh boolean[]) LANGUAGE plpgsql AS $$
DECLARE
    _args record;
BEGIN
    SELECT * INTO _args FROM json_to_record(_request) AS r (
        app text, events json, verbs text[], complete boolean, notify boolean);
    IF NOT coalesce(_args.complete, false) THEN
        IF _args.app IS NULL OR coalesce(json_typeof(_args.events), '') <> 'array' THEN
            RAISE EXCEPTION 'publish_v1 takes {"app": "…", "events": [{…}]}' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        _args.events := coalesce(
            complete_events_v1(_args.events, coalesce(_args.verbs, '{}')), '[]');
        ids := ARRAY(SELECT e.value ->> 'id' FROM json_array_elements(_args.events) WITH ORDINALITY AS e
            ORDER BY e.ordinality);
    END IF;
    fresh := insert_events_v1(app_v1(_args.app), _args.events, NULL);
    IF true = ANY (fresh) AND coalesce(_args.notify, true) THEN
        PERFORM notify_v1(_args.app, '{"events": true}');
    END IF;
END $$;

-- name: free_keys_v1
-- Events that were set aside behind these failed ones, which are locked and get another status, can be sent again. Others
-- of the key may have failed, too: then a relay sets its events aside again.
CREATE FUNCTION free_keys_v1(_app integer, _failed bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE event_outbox SET blocked = false WHERE seq = ANY (ARRAY(
        SELECT e.seq FROM (SELECT DISTINCT topic, key FROM event_outbox WHERE seq = ANY (_failed)) AS k
        JOIN event_outbox AS e ON e.app = _app AND e.topic = k.topic AND e.key = k.key AND e.blocked
        ORDER BY e.seq FOR UPDATE OF e));
END $$;

-- name: amend_events_v1
-- {"app", "now", "ids", "action": "retry" or "discard", "reason"} → the ids of failed events that are pending again or
-- discarded. A reason replaces the error of those that are discarded.
CREATE FUNCTION amend_events_v1(_request json, OUT amended text[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _at bigint := floor(now_v1((_request ->> 'now')::double precision));
    _discards boolean := _request ->> 'action' = 'discard';
    _ids text[] := ARRAY(SELECT json_array_elements_text(_request -> 'ids'));
    _seqs bigint[] := ARRAY(SELECT seq FROM event_outbox WHERE id = ANY (_ids) AND app = _app AND status = 'failed'
        ORDER BY seq FOR UPDATE);
BEGIN
    PERFORM free_keys_v1(_app, _seqs);
    WITH changed AS (
        UPDATE event_outbox SET status = CASE WHEN _discards THEN 'discarded' ELSE 'pending' END,
            sent_at = CASE WHEN _discards THEN _at END,
            error = CASE WHEN _discards THEN coalesce(nullif(_request ->> 'reason', ''), error) ELSE '' END
        WHERE seq = ANY (_seqs) RETURNING id
    )
    SELECT coalesce(array_agg(id ORDER BY array_position(_ids, id::text)), '{}') INTO amended FROM changed;
    IF _seqs <> '{}' THEN
        notification := '{"events": true}';
        INSERT INTO retention (app, what, until, ended, seqs) SELECT _app, 'event', _at, _at, _seqs WHERE _discards;
    END IF;
END $$;
