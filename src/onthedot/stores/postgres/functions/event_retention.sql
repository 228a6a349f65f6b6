-- How long sent events, resume handles and arrivals are kept.

-- name: purge_handles_v1
-- Expire handles past their time, and delete up to `limit` that ended at this time or before, each with its arrivals
-- unless another handle counts them. Return their number.
CREATE FUNCTION purge_handles_v1(_app integer, _limit bigint, _before bigint, _now double precision) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    _correlation_ids text[];
BEGIN
    UPDATE flow_resume_handles SET status = 'expired', ended = expires_at WHERE app = _app AND id = ANY (ARRAY(
        SELECT id FROM flow_resume_handles WHERE app = _app AND status = 'pending' AND expires_at <= floor(_now)::bigint
        ORDER BY expires_at LIMIT _limit FOR UPDATE SKIP LOCKED));
    WITH old AS (
        DELETE FROM flow_resume_handles WHERE app = _app AND id = ANY (ARRAY(
            SELECT id FROM flow_resume_handles WHERE app = _app AND ended <= _before
            ORDER BY ended, number LIMIT _limit FOR UPDATE SKIP LOCKED))
        RETURNING correlation_id
    )
    SELECT coalesce(array_agg(correlation_id::text), '{}') INTO _correlation_ids FROM old;
    DELETE FROM flow_resume_events WHERE app = _app AND correlation_id = ANY (ARRAY(
        SELECT c FROM unnest(_correlation_ids) AS c WHERE NOT EXISTS (
            SELECT FROM flow_resume_handles AS h WHERE h.app = _app AND h.correlation_id = c OFFSET 0)));
    RETURN cardinality(_correlation_ids);
END $$;

-- name: purge_arrivals_v1
-- Delete up to `limit` arrivals without a handle that came at this time or before; those with one are looked at once.
-- Return their number.
CREATE FUNCTION purge_arrivals_v1(_app integer, _limit bigint, _before bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _deleted bigint;
BEGIN
    UPDATE flow_resume_events AS a SET kept = true WHERE a.app = _app AND NOT a.kept AND a.at <= _before AND EXISTS (
        SELECT FROM flow_resume_handles AS h WHERE h.app = _app AND h.correlation_id = a.correlation_id OFFSET 0);
    WITH old AS (
        DELETE FROM flow_resume_events WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM flow_resume_events WHERE app = _app AND NOT kept AND at <= _before
            ORDER BY at, number LIMIT _limit FOR UPDATE SKIP LOCKED))
        RETURNING 1
    )
    SELECT count(*) INTO _deleted FROM old;
    RETURN _deleted;
END $$;

-- name: purge_sent_v1
-- Delete up to `limit` events that were sent or discarded at this time or before. Return their number.
CREATE FUNCTION purge_sent_v1(_app integer, _limit bigint, _before bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    _deleted bigint := 0;
    _retention retention;
BEGIN
    WHILE _deleted < _limit LOOP
        SELECT * INTO _retention FROM retention WHERE app = _app AND what = 'event' AND until <= _before
        ORDER BY until, number LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        DELETE FROM event_outbox WHERE seq = ANY (_retention.seqs[:_limit - _deleted]);
        IF cardinality(_retention.seqs) > _limit - _deleted THEN
            UPDATE retention SET seqs = seqs[_limit - _deleted + 1:] WHERE number = _retention.number;
        ELSE
            DELETE FROM retention WHERE number = _retention.number;
        END IF;
        _deleted := _deleted + least(_limit - _deleted, cardinality(_retention.seqs));
    END LOOP;
    RETURN _deleted;
END $$;

-- name: purge_events_v1
-- {"app", "now", "limit", "keep_sent", "keep_arrivals"} → the number of events, handles and arrivals without a handle that
-- were deleted, up to `limit` of each.
CREATE FUNCTION purge_events_v1(_request json, OUT deleted bigint) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _limit bigint := (_request ->> 'limit')::bigint;
    _sent_before bigint := floor(_now - (_request ->> 'keep_sent')::double precision);
    _arrived_before bigint := floor(_now - (_request ->> 'keep_arrivals')::double precision);
BEGIN
    deleted := purge_sent_v1(_app, _limit, _sent_before) + purge_handles_v1(_app, _limit, _sent_before, _now)
        + purge_arrivals_v1(_app, _limit, _arrived_before);
END $$;
