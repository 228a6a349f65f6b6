-- The schema of version 3, without comments: the last before events. Upgrades are tested from here.
CREATE SCHEMA onthedot;
SET LOCAL search_path = onthedot;
CREATE DOMAIN label AS text COLLATE "C";
CREATE TABLE version (number integer NOT NULL);
INSERT INTO version VALUES (3);
CREATE TABLE app (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name label NOT NULL UNIQUE,
    data_set uuid NOT NULL DEFAULT gen_random_uuid()
);
CREATE SEQUENCE seq;
CREATE SEQUENCE fence;
CREATE SEQUENCE chore;
CREATE TABLE task (
    seq bigint PRIMARY KEY, app integer NOT NULL, uuid label NOT NULL, source label NOT NULL, lane label,
    unique_key label, due bigint NOT NULL, added bigint NOT NULL, boost bigint NOT NULL, cost double precision NOT NULL,
    expires bigint, max_crashes integer NOT NULL, unique_for bigint, reply_to text, policy text NOT NULL,
    body bytea NOT NULL,
    state text,
    reason text NOT NULL DEFAULT 'due', retries integer NOT NULL DEFAULT 0, crashes integer NOT NULL DEFAULT 0,
    earlier integer NOT NULL DEFAULT 0, cancel_requested boolean NOT NULL DEFAULT false,
    settled_fence bigint NOT NULL DEFAULT 0, session label, started bigint, ended bigint, keep_until bigint,
    hops integer NOT NULL DEFAULT 0, error bytea, result bytea, result_until bigint,
    links json, flow label, increments text[],
    wait json, wait_until bigint
) WITH (fillfactor = 40);
CREATE UNIQUE INDEX task_uuid ON task (uuid, app);
CREATE INDEX task_flow ON task (app, flow, seq) WHERE flow IS NOT NULL;
CREATE INDEX task_last_of_flow ON task (app, seq) WHERE flow = uuid;
CREATE TABLE place (
    seq bigint PRIMARY KEY, app integer NOT NULL, kind "char" NOT NULL, source label NOT NULL, suspect boolean NOT NULL,
    rank bigint NOT NULL, lane label, cost double precision NOT NULL, expires_at bigint, alarm bigint
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX place_ready ON place (app, source, suspect, rank, seq) WHERE kind = 'r';
CREATE INDEX place_suspect ON place (app, source) WHERE kind = 'r' AND suspect;
CREATE INDEX place_admitted ON place (app, lane) WHERE kind = 'r' AND lane IS NOT NULL;
CREATE INDEX place_parked ON place (app, lane, rank, seq) WHERE kind = 'p';
CREATE INDEX place_laned ON place (app) WHERE lane IS NOT NULL;
CREATE INDEX place_chore ON place (app, rank) WHERE kind = 'c';
CREATE INDEX place_alarm ON place (app, alarm, seq) WHERE alarm IS NOT NULL;
CREATE TABLE claim (
    fence bigint NOT NULL, app integer NOT NULL, session label NOT NULL, number bigint NOT NULL, source label NOT NULL,
    lane label, chore boolean NOT NULL, at bigint NOT NULL, seqs bigint[] NOT NULL
);
CREATE INDEX claim_fence ON claim (fence);
CREATE INDEX claim_session ON claim (app, session);
CREATE INDEX claim_source ON claim (app, source);
CREATE INDEX claim_lane ON claim (app, lane) WHERE lane IS NOT NULL;
CREATE TABLE session (
    app integer, name label,
    role text NOT NULL,
    info bytea NOT NULL, until double precision NOT NULL,
    claim_number bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (app, name)
) WITH (fillfactor = 50);
CREATE TABLE dead_session (
    number bigint GENERATED ALWAYS AS IDENTITY, app integer, name label, PRIMARY KEY (app, name)
);
CREATE TABLE recent_uuid (
    uuid label, app integer, until bigint NOT NULL, PRIMARY KEY (uuid, app)
);
CREATE INDEX recent_uuid_until ON recent_uuid (until);
CREATE TABLE unique_key (
    app integer, source label, name label, uuid label NOT NULL, until bigint, PRIMARY KEY (app, source, name)
);
CREATE INDEX unique_key_until ON unique_key (until) WHERE until IS NOT NULL;
CREATE TABLE limit_rule (
    app integer, name label, owner label, cap integer, rate double precision, burst double precision NOT NULL,
    paused boolean NOT NULL, reason text NOT NULL, paused_since bigint, lane_rule bytea, mode text NOT NULL,
    PRIMARY KEY (app, name, owner)
);
CREATE TABLE token_bucket (
    app integer, name label, tokens double precision, at double precision, refill_at double precision,
    PRIMARY KEY (app, name)
) WITH (fillfactor = 50);
CREATE INDEX token_bucket_refill ON token_bucket (app, refill_at) WHERE refill_at IS NOT NULL;
CREATE TABLE lane_check (app integer NOT NULL, lane label NOT NULL);
CREATE TABLE schedule (
    app integer, name label, rule bytea NOT NULL, definition_digest text NOT NULL, next_at bigint, rev integer NOT NULL,
    paused boolean NOT NULL, last_at bigint, runs integer NOT NULL, incoming boolean NOT NULL, PRIMARY KEY (app, name)
);
CREATE INDEX schedule_next ON schedule (app, next_at) WHERE next_at IS NOT NULL AND NOT paused;
CREATE TABLE counter (
    app integer, name label, value bigint NOT NULL, failed bigint NOT NULL, until bigint NOT NULL,
    PRIMARY KEY (app, name)
) WITH (fillfactor = 50);
CREATE INDEX counter_until ON counter (app, until);
CREATE TABLE counter_delta (
    app integer NOT NULL, stripe integer NOT NULL, name label NOT NULL, ended bigint NOT NULL, failed bigint NOT NULL,
    at bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX counter_delta_name ON counter_delta (app, stripe, name);
CREATE TABLE waiter (
    app integer, name label, value bigint, seq bigint, PRIMARY KEY (app, name, value, seq)
);
CREATE INDEX waiter_seq ON waiter (seq);
CREATE TABLE signal (
    app integer, name label, number bigint, id label NOT NULL, payload bytea NOT NULL, until bigint NOT NULL,
    PRIMARY KEY (app, name, number), UNIQUE (app, name, id)
);
CREATE INDEX signal_until ON signal (app, until);
CREATE TABLE subscription (app integer, uuid label, session label, PRIMARY KEY (app, uuid, session));
CREATE INDEX subscription_session ON subscription (app, session);
CREATE TABLE note (
    number bigint GENERATED ALWAYS AS IDENTITY, seq bigint, kind text, name label, data bytea NOT NULL,
    fence bigint NOT NULL, session label NOT NULL, PRIMARY KEY (seq, kind, name)
);
CREATE TABLE retention (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, app integer NOT NULL, what text NOT NULL,
    until bigint NOT NULL, ended bigint NOT NULL, seqs bigint[] NOT NULL
);
CREATE INDEX retention_until ON retention (app, what, until, number);
CREATE INDEX retention_ended ON retention (app, what, ended, number);
CREATE TABLE tally (app integer NOT NULL, source label NOT NULL, state label NOT NULL, number bigint NOT NULL);
CREATE TABLE change (
    app integer NOT NULL, call bigint NOT NULL, at bigint NOT NULL, state label NOT NULL, seqs bigint[], deleted json
);
CREATE INDEX change_call ON change (app, call);
CREATE FUNCTION now_v1(_given double precision) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce(_given, extract(epoch FROM clock_timestamp()) * 1000);
END $$;
CREATE FUNCTION due_v1(_after double precision, _now double precision) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _after > 0 THEN ceil(_now + _after) ELSE floor(_now) END::bigint
$$;
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
CREATE FUNCTION identity_v1(_app integer, OUT data_set text, OUT last_fence bigint) LANGUAGE plpgsql AS $$
BEGIN
    SELECT a.data_set, CASE WHEN f.is_called THEN f.last_value ELSE 0 END INTO data_set, last_fence
    FROM app AS a CROSS JOIN fence AS f WHERE a.id = _app;
END $$;
CREATE FUNCTION notify_v1(_app text, _notification json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('onthedot:' || md5(_app),
        CASE WHEN octet_length(_notification::text) < 7900 THEN _notification::text ELSE '{}' END);
END $$;
CREATE FUNCTION count_v1(_app integer, _source text, _state text, _by bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tally VALUES (_app, _source, _state, _by);
END $$;
CREATE FUNCTION log_transitions_v1(_app integer, _now double precision, _state text, _seqs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO change VALUES (_app, pg_current_xact_id()::text::bigint, floor(_now), _state, _seqs);
END $$;
CREATE FUNCTION expiry_v1(_task task) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _task.started IS NULL THEN _task.due + _task.expires END
$$;
CREATE FUNCTION alarm_v1(_task task, _kind "char") RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE _kind WHEN 's' THEN _task.due WHEN 'w' THEN _task.wait_until
        WHEN 'p' THEN expiry_v1(_task) WHEN 'r' THEN expiry_v1(_task) END
$$;
CREATE FUNCTION is_suspect_v1(_task task) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT _task.crashes + 1 >= _task.max_crashes
$$;
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
            'hops', _task.hops, 'wait', _task.wait, 'wait_until', _task.wait_until)::text END
$$;
CREATE FUNCTION has_tag_v1(_policy text, _tag text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF strpos(_policy, '"tags"') = 0 THEN
        RETURN false;
    END IF;
    RETURN _policy::jsonb -> 'tags' ? _tag;
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$;
CREATE FUNCTION save_v1(_task task) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE task SET due = _task.due, state = _task.state, reason = _task.reason, retries = _task.retries,
        crashes = _task.crashes, earlier = _task.earlier, cancel_requested = _task.cancel_requested,
        settled_fence = _task.settled_fence, session = _task.session, started = _task.started, ended = _task.ended,
        keep_until = _task.keep_until, error = _task.error, result = _task.result, result_until = _task.result_until,
        wait = _task.wait, wait_until = _task.wait_until
    WHERE seq = _task.seq;
END $$;
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
CREATE FUNCTION state_v1(_kind "char") RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE _kind WHEN 's' THEN 'scheduled' WHEN 'p' THEN 'parked' WHEN 'r' THEN 'ready' WHEN 'w' THEN 'waiting' END
$$;
CREATE FUNCTION next_place_v1(
    _reason text, _cancel_requested boolean, _due bigint, _lane text, _now double precision, _reads_lanes boolean,
    _has_wait boolean DEFAULT false
) RETURNS "char" LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN _cancel_requested OR _reason IN ('cancel', 'expired', 'crashed', 'upstream') THEN 'c'
        WHEN _reason = 'lifted' THEN 'l'
        WHEN _has_wait THEN 'w'
        WHEN _due > _now OR (_lane IS NOT NULL AND NOT _reads_lanes) THEN 's'
        WHEN _lane IS NOT NULL THEN 'p'
        ELSE 'r' END::"char"
$$;
CREATE FUNCTION enter_v1(_task task, _kind "char", _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _state text := coalesce(state_v1(_kind), _task.state);
BEGIN
    _task.state := CASE WHEN _kind IN ('c', 'l') THEN _state END;
    PERFORM save_v1(_task);
    INSERT INTO place VALUES (
        _task.seq, _task.app, _kind, _task.source, is_suspect_v1(_task),
        CASE WHEN _kind = 'c' THEN nextval('chore') ELSE _task.due - _task.boost END,
        CASE WHEN _kind <> 'w' THEN _task.lane END, _task.cost, expiry_v1(_task), alarm_v1(_task, _kind));
    PERFORM count_v1(_task.app, _task.source, _state, 1);
    PERFORM log_transitions_v1(_task.app, _now, _state, ARRAY[_task.seq]);
    RETURN CASE _kind WHEN 'r' THEN ARRAY[_task.source] ELSE '{}'::text[] END;
END $$;
CREATE FUNCTION park_v1(_app integer, _seq bigint, _source text, _state text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE place SET kind = 'p', alarm = expires_at WHERE seq = _seq;
    PERFORM count_v1(_app, _source, _state, -1);
    PERFORM count_v1(_app, _source, 'parked', 1);
END $$;
CREATE FUNCTION queue_chore_v1(_task task, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF _task.reason = 'lifted' AND _task.cancel_requested THEN
        _task.reason := 'cancel';
    END IF;
    PERFORM enter_v1(_task, next_place_v1(
        _task.reason, _task.cancel_requested, _task.due, _task.lane, _now, true), _now);
END $$;
CREATE FUNCTION requeue_v1(_task task, _after bigint, _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _due bigint := CASE WHEN _after IS NULL THEN _task.due ELSE due_v1(_after, _now) END;
    _kind "char" := next_place_v1(_task.reason, _task.cancel_requested, _due, _task.lane, _now, true);
BEGIN
    IF _kind = 'c' THEN
        _task.state := 'ready';
        _task.reason := CASE WHEN _task.cancel_requested THEN 'cancel' ELSE _task.reason END;
    ELSE
        _task.due := _due;
    END IF;
    RETURN enter_v1(_task, _kind, _now);
END $$;
CREATE FUNCTION end_as_chore_v1(_seq bigint, _reason text, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _place place;
BEGIN
    SELECT * INTO _place FROM place WHERE seq = _seq;
    UPDATE place SET kind = CASE _reason WHEN 'lifted' THEN 'l' ELSE 'c' END, rank = nextval('chore'), alarm = NULL
    WHERE seq = _seq;
    UPDATE task SET reason = _reason, state = state_v1(_place.kind) WHERE seq = _seq;
    PERFORM log_transitions_v1(_place.app, _now, state_v1(_place.kind), ARRAY[_seq]);
END $$;
CREATE FUNCTION lock_limits_v1(_app integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1869897844, _app);
END $$;
CREATE FUNCTION keep_limits_v1(_app integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1869897845, _app);
END $$;
CREATE FUNCTION effective_limit_v1(
    _app integer, _name text, OUT is_set boolean, OUT cap integer, OUT rate double precision,
    OUT burst double precision, OUT paused boolean
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT count(*) > 0, (array_agg(r.cap ORDER BY r.precedence) FILTER (WHERE r.cap IS NOT NULL))[1],
        (array_agg(r.rate ORDER BY r.precedence) FILTER (WHERE r.rate IS NOT NULL))[1],
        (array_agg(r.burst ORDER BY r.precedence) FILTER (WHERE r.rate IS NOT NULL))[1],
        coalesce(bool_or(r.paused), false)
    INTO is_set, cap, rate, burst, paused
    FROM (
        SELECT *, (name <> _name, owner <> 'operator') AS precedence FROM limit_rule
        WHERE app = _app AND (
            name = _name OR name = split_part(_name, '/', 1) || '/*' AND position('/' IN _name) > 0)
    ) AS r;
END $$;
CREATE FUNCTION level_v1(
    _app integer, _name text, _rate double precision, _burst double precision, _now double precision
) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
    _bucket token_bucket;
BEGIN
    SELECT * INTO _bucket FROM token_bucket WHERE app = _app AND name = _name;
    IF _bucket.at > _now + 2000 THEN
        UPDATE token_bucket SET at = _now WHERE app = _app AND name = _name;
        _bucket.at := _now;
    END IF;
    RETURN coalesce(least(_burst, _bucket.tokens + _rate * greatest(_now - _bucket.at, 0) / 1000), _burst);
END $$;
CREATE FUNCTION spend_v1(
    _app integer, _name text, _rate double precision, _burst double precision, _cost double precision,
    _now double precision
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _left double precision := level_v1(_app, _name, _rate, _burst, _now) - _cost;
BEGIN
    INSERT INTO token_bucket (app, name, tokens, at) VALUES (_app, _name, _left, _now)
    ON CONFLICT (app, name) DO UPDATE SET tokens = _left, at = greatest(token_bucket.at, _now);
END $$;
CREATE FUNCTION running_v1(_app integer, _source text, _lane text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF _lane IS NOT NULL THEN
        RETURN (SELECT count(*) FROM onthedot.claim AS c CROSS JOIN unnest(c.seqs) AS leased (seq)
            CROSS JOIN LATERAL (SELECT settled_fence FROM onthedot.task WHERE seq = leased.seq OFFSET 0) AS t
            WHERE c.app = _app AND c.lane = _lane AND NOT c.chore AND t.settled_fence < c.fence);
    END IF;
    RETURN (SELECT count(*) FROM onthedot.claim AS c CROSS JOIN unnest(c.seqs) AS leased (seq)
        CROSS JOIN LATERAL (SELECT settled_fence FROM onthedot.task WHERE seq = leased.seq OFFSET 0) AS t
        WHERE c.app = _app AND c.source = _source AND NOT c.chore AND t.settled_fence < c.fence);
END $$;
CREATE FUNCTION source_capacity_v1(
    _app integer, _source text, _now double precision, OUT free integer, OUT wait double precision
) LANGUAGE plpgsql AS $$
DECLARE
    _limit record := effective_limit_v1(_app, _source);
    _tokens double precision;
BEGIN
    free := 1000000;
    IF _limit.paused THEN
        free := 0;
    ELSIF _limit.cap IS NOT NULL THEN
        free := greatest(0, _limit.cap - running_v1(_app, _source, NULL));
    END IF;
    IF _limit.rate IS NOT NULL AND free > 0 THEN
        _tokens := level_v1(_app, _source, _limit.rate, _limit.burst, _now);
        free := least(free, floor(_tokens + _limit.rate * 1e-6));
        IF free < 1 THEN
            free := 0;
            wait := (1 - _tokens) / _limit.rate * 1000;
        END IF;
    END IF;
END $$;
CREATE FUNCTION put_limits_v1(_request json, OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _limit record;
    _woken text[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock(1869897845, _app);
    FOR _limit IN SELECT * FROM json_to_recordset(_request -> 'limits') AS l (
        name text, owner text, cap integer, rate double precision, burst double precision, paused boolean, reason text,
        paused_since bigint, lane_rule text, mode text)
    LOOP
        INSERT INTO limit_rule VALUES (_app, _limit.name, _limit.owner, _limit.cap, _limit.rate, _limit.burst,
            _limit.paused, _limit.reason, _limit.paused_since, decode(_limit.lane_rule, 'base64'), _limit.mode)
        ON CONFLICT (app, name, owner) DO UPDATE SET cap = excluded.cap, rate = excluded.rate, burst = excluded.burst,
            paused = excluded.paused, reason = excluded.reason, paused_since = excluded.paused_since,
            lane_rule = excluded.lane_rule, mode = excluded.mode;
        INSERT INTO lane_check SELECT DISTINCT _app, lane FROM place WHERE app = _app AND kind = 'p' AND (
            lane = _limit.name OR split_part(lane, '/', 1) || '/*' = _limit.name);
        _woken := _woken || split_part(_limit.name, '/', 1);
    END LOOP;
    notification := json_build_object('sources', _woken);
END $$;
CREATE FUNCTION set_refill_v1(_app integer, _lane text, _at double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_bucket (app, name, refill_at) VALUES (_app, _lane, _at)
    ON CONFLICT (app, name) DO UPDATE SET refill_at = least(token_bucket.refill_at, _at)
    WHERE token_bucket.refill_at IS NULL OR token_bucket.refill_at > _at;
END $$;
CREATE FUNCTION admit_in_lane_v1(_app integer, _lane text, _now double precision, _newcomers bigint[])
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _limit record := effective_limit_v1(_app, _lane);
    _slots bigint;
    _reserved double precision;
    _tokens double precision;
    _cost double precision;
    _missing double precision;
    _next place;
    _seqs bigint[] := '{}';
    _sources text[] := '{}';
BEGIN
    SELECT count(*), coalesce(sum(cost), 0) INTO _slots, _reserved FROM place
    WHERE app = _app AND lane = _lane AND kind = 'r' AND _limit.is_set;
    _slots := _slots + CASE WHEN _limit.cap IS NULL THEN 0 ELSE running_v1(_app, NULL, _lane) END;
    _tokens := CASE WHEN _limit.rate IS NULL THEN 0 ELSE level_v1(_app, _lane, _limit.rate, _limit.burst, _now) END;
    FOR _ IN 0 .. 1000 LOOP
        SELECT * INTO _next FROM place WHERE app = _app AND lane = _lane AND kind = 'p'
        ORDER BY rank, seq LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        LOOP
            _cost := least(_next.cost, _limit.burst);
            _missing := CASE WHEN _limit.rate IS NULL THEN 0 ELSE _cost - (_tokens - _reserved) END;
            EXIT WHEN NOT _limit.paused AND coalesce(_slots < _limit.cap, true)
                AND coalesce(_missing <= _limit.rate * 1e-6, true);
            IF NOT _limit.paused AND coalesce(_slots < _limit.cap, true) AND _reserved + _cost <= _limit.burst THEN
                PERFORM set_refill_v1(_app, _lane, _now + _missing / _limit.rate * 1000);
            END IF;
            SELECT * INTO _next FROM place WHERE seq = ANY (_newcomers) AND lane = _lane AND kind = 'p'
            ORDER BY rank, seq LIMIT 1 FOR UPDATE SKIP LOCKED;
            EXIT WHEN NOT FOUND;
            _newcomers := array_remove(_newcomers, _next.seq);
        END LOOP;
        EXIT WHEN _next.seq IS NULL;
        IF cardinality(_seqs) = 1000 THEN
            PERFORM set_refill_v1(_app, _lane, _now);
            EXIT;
        END IF;
        UPDATE place SET kind = 'r' WHERE seq = _next.seq;
        _seqs := _seqs || _next.seq;
        _sources := _sources || _next.source;
        _slots := _slots + 1;
        _reserved := _reserved + _next.cost;
    END LOOP;
    IF _seqs <> '{}' THEN
        INSERT INTO tally SELECT _app, source, state, sum(sign) FROM unnest(_sources) AS source
            CROSS JOIN (VALUES ('parked', -1), ('ready', 1)) AS deltas (state, sign) GROUP BY source, state;
        PERFORM log_transitions_v1(_app, _now, 'ready', _seqs);
    END IF;
    RETURN _sources;
END $$;
CREATE FUNCTION admit_v1(_app integer, _lanes text[], _now double precision, _newcomers bigint[] DEFAULT NULL)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _lane text;
    _sources text[] := '{}';
BEGIN
    FOR _lane IN SELECT l.lane FROM unnest(_lanes) AS l (lane)
        WHERE EXISTS (SELECT FROM place AS p WHERE p.app = _app AND p.lane = l.lane AND p.kind = 'p' OFFSET 0)
    LOOP
        _sources := _sources || admit_in_lane_v1(_app, _lane, _now, _newcomers);
    END LOOP;
    RETURN _sources;
END $$;
CREATE FUNCTION may_start_v1(_app integer, _lane text, _cost double precision, _starting integer, _now double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _limit record := effective_limit_v1(_app, _lane);
    _missing double precision;
BEGIN
    IF _limit.paused OR coalesce(running_v1(_app, NULL, _lane) + _starting >= _limit.cap, false) THEN
        RETURN false;
    END IF;
    IF _limit.rate IS NOT NULL THEN
        _cost := least(_cost, _limit.burst);
        _missing := _cost - level_v1(_app, _lane, _limit.rate, _limit.burst, _now);
        IF _missing > _limit.rate * 1e-6 THEN
            PERFORM set_refill_v1(_app, _lane, _now);
            RETURN false;
        END IF;
        PERFORM spend_v1(_app, _lane, _limit.rate, _limit.burst, _cost, _now);
    END IF;
    RETURN true;
END $$;
CREATE FUNCTION take_lane_checks_v1(_app integer) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY DELETE FROM lane_check WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM lane_check WHERE app = _app LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING lane::text;
END $$;
CREATE FUNCTION refill_lanes_v1(_app integer, _now double precision, OUT woken text[], OUT more boolean)
LANGUAGE plpgsql AS $$
DECLARE
    _lane text;
    _done integer := 0;
    _admitted text[];
BEGIN
    woken := '{}';
    INSERT INTO token_bucket (app, name, refill_at)
    SELECT DISTINCT _app, checked.lane, _now FROM take_lane_checks_v1(_app) AS checked (lane)
    ON CONFLICT (app, name) DO UPDATE SET refill_at = _now;
    WHILE _done < 1000 LOOP
        UPDATE token_bucket SET refill_at = NULL WHERE app = _app AND name = (
            SELECT name FROM (
                SELECT * FROM token_bucket WHERE app = _app AND refill_at IS NOT NULL ORDER BY refill_at LIMIT 1
            ) AS first WHERE refill_at <= _now + 1e-3 OR at > _now + 2000
        ) RETURNING name INTO _lane;
        EXIT WHEN _lane IS NULL;
        _admitted := admit_v1(_app, ARRAY[_lane], _now);
        woken := woken || _admitted;
        _done := _done + 1 + cardinality(_admitted);
    END LOOP;
    more := _done >= 1000;
END $$;
CREATE FUNCTION stripe_v1(_name text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtext(_name) & 63
$$;
CREATE FUNCTION counter_v1(_app integer, _name text, _stripe integer, OUT value bigint, OUT failed bigint)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(part.value), 0)::bigint, coalesce(sum(part.failed), 0)::bigint FROM (
        SELECT c.value, c.failed FROM onthedot.counter AS c WHERE c.app = _app AND c.name = _name
        UNION ALL
        SELECT d.ended, d.failed FROM onthedot.counter_delta AS d
        WHERE d.app = _app AND d.stripe = _stripe AND d.name = _name
    ) AS part
$$;
CREATE FUNCTION is_wait_over_v1(_app integer, _names text[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM unnest(_names) AS n (name) CROSS JOIN LATERAL (
            SELECT value FROM waiter WHERE app = _app AND name = n.name ORDER BY value LIMIT 1) AS first
        WHERE first.value <= (counter_v1(_app, n.name, stripe_v1(n.name))).value);
END $$;
CREATE FUNCTION take_stripes_v1(_app integer, OUT stripes integer[], OUT is_busy boolean) LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(array_agg(tried.stripe) FILTER (WHERE tried.is_taken), '{}'), NOT bool_and(tried.is_taken)
    INTO stripes, is_busy
    FROM (
        SELECT dirty.stripe, pg_try_advisory_xact_lock(1869897846, _app * 64 + dirty.stripe) AS is_taken FROM (
            SELECT all_of.stripe FROM generate_series(0, 63) AS all_of (stripe) WHERE EXISTS (
                SELECT FROM counter_delta AS d WHERE d.app = _app AND d.stripe = all_of.stripe OFFSET 0) OFFSET 0
        ) AS dirty OFFSET 0
    ) AS tried;
END $$;
CREATE FUNCTION add_deltas_v1(_app integer, _names text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH taken AS (
        DELETE FROM counter_delta WHERE ctid = ANY (ARRAY(
            SELECT d.ctid FROM unnest(_names) AS n (name) CROSS JOIN LATERAL (SELECT ctid FROM counter_delta
                WHERE app = _app AND stripe = stripe_v1(n.name) AND name = n.name OFFSET 0) AS d))
        RETURNING name, ended, failed, at
    )
    INSERT INTO counter AS c
    SELECT _app, name, sum(ended), sum(failed), max(at) + 2592000000 FROM taken WHERE ended <> 0 GROUP BY name
    ON CONFLICT (app, name) DO UPDATE SET value = c.value + excluded.value, failed = c.failed + excluded.failed,
        until = greatest(c.until, excluded.until);
END $$;
CREATE FUNCTION reached_v1(_app integer, _names text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT w.seq FROM unnest(_names) AS n (name)
        LEFT JOIN LATERAL (SELECT value FROM counter WHERE app = _app AND name = n.name OFFSET 0) AS c ON true
        CROSS JOIN LATERAL (SELECT seq FROM waiter
            WHERE app = _app AND name = n.name AND value <= coalesce(c.value, 0) ORDER BY value, seq LIMIT 1000) AS w
        ORDER BY w.seq LIMIT 1000);
END $$;
CREATE FUNCTION mark_dirty_v1(_app integer, _names text[], _now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO counter_delta SELECT _app, stripe_v1(n.name), n.name, 0, 0, floor(_now) FROM unnest(_names) AS n (name)
    LEFT JOIN LATERAL (SELECT value FROM counter WHERE app = _app AND name = n.name OFFSET 0) AS c ON true
    WHERE EXISTS (SELECT FROM waiter AS w
        WHERE w.app = _app AND w.name = n.name AND w.value <= coalesce(c.value, 0) OFFSET 0);
END $$;
CREATE FUNCTION collect_deltas_v1(_app integer, OUT names text[], OUT is_left boolean) LANGUAGE plpgsql AS $$
DECLARE
    _taken record;
BEGIN
    SELECT * INTO _taken FROM take_stripes_v1(_app);
    names := ARRAY(SELECT DISTINCT name FROM counter_delta WHERE app = _app AND stripe = ANY (_taken.stripes)
        LIMIT 1000);
    is_left := coalesce(_taken.is_busy, false) OR cardinality(names) = 1000;
    IF names <> '{}' THEN
        PERFORM add_deltas_v1(_app, names);
    END IF;
END $$;
CREATE FUNCTION fold_counters_v1(
    _app integer, _now double precision, INOUT limits_locked boolean, OUT woken text[], OUT more boolean,
    OUT is_left boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _collected record;
    _reached bigint[];
    _over record;
    _resumed record;
BEGIN
    woken := '{}';
    more := false;
    SELECT * INTO _collected FROM collect_deltas_v1(_app);
    is_left := _collected.is_left;
    _reached := reached_v1(_app, _collected.names);
    IF _reached = '{}' THEN
        RETURN;
    END IF;
    SELECT * INTO _over FROM judge_waits_v1(_app, _reached, _now);
    more := cardinality(_over.seqs) = 1000;
    SELECT * INTO _resumed FROM resume_v1(_app, _over.seqs, _over.reasons, _over.dues, _now, limits_locked);
    woken := _resumed.woken;
    limits_locked := _resumed.limits_locked;
    IF more OR cardinality(_over.seqs) < cardinality(_reached) THEN
        PERFORM mark_dirty_v1(_app, _collected.names, _now);
        is_left := true;
    END IF;
END $$;
CREATE FUNCTION awaited_v1(_wait json) RETURNS TABLE (name text, value bigint, nth bigint) LANGUAGE sql IMMUTABLE AS $$
    SELECT c.value ->> 0, (c.value ->> 1)::bigint, c.ordinality
    FROM json_array_elements(_wait -> 'counters') WITH ORDINALITY AS c
$$;
CREATE FUNCTION increments_v1(_links json) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN _links -> 'increments' IS NOT NULL
        THEN ARRAY(SELECT json_array_elements_text(_links -> 'increments')) END
$$;
CREATE FUNCTION current_wait_v1(_wait json, _links json) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(_wait, _links -> 'waits')
$$;
CREATE FUNCTION times_out_v1(_wait json, _now double precision) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ceil(_now + (_wait ->> 'timeout')::bigint)::bigint
$$;
CREATE FUNCTION begin_waits_v1(_app integer, _seqs bigint[], _now double precision) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    _names text[];
BEGIN
    WITH begun AS (
        INSERT INTO waiter SELECT DISTINCT _app, a.name, a.value, s.seq FROM unnest(_seqs) AS s (seq)
        CROSS JOIN LATERAL (SELECT current_wait_v1(wait, links) AS wait FROM task WHERE seq = s.seq OFFSET 0) AS t
        CROSS JOIN LATERAL awaited_v1(t.wait) AS a RETURNING name
    ), dirty AS (
        INSERT INTO counter_delta SELECT DISTINCT _app, stripe_v1(name), name, 0, 0, floor(_now)::bigint FROM begun
        RETURNING name
    )
    SELECT array_agg(name::text) INTO _names FROM dirty;
    RETURN _names;
END $$;
CREATE FUNCTION judge_waits_v1(
    _app integer, _reached bigint[], _now double precision, OUT seqs bigint[], OUT reasons text[], OUT dues bigint[]
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(array_agg(seq ORDER BY seq), '{}'),
        array_agg(CASE WHEN is_met THEN 'due' ELSE 'upstream' END ORDER BY seq),
        array_agg(CASE WHEN is_met THEN greatest(due, due_v1(delay, _now)) ELSE due END ORDER BY seq)
    INTO seqs, reasons, dues
    FROM (
        SELECT w.seq, w.due, coalesce((w.wait ->> 'delay')::double precision, 0) AS delay,
            CASE w.wait ->> 'requires' WHEN 'success' THEN first.failed = 0 WHEN 'failure' THEN first.failed > 0
                ELSE true END AS is_met
        FROM (
            SELECT t.seq, t.due, current_wait_v1(t.wait, t.links) AS wait FROM unnest(_reached) AS r (seq)
            CROSS JOIN LATERAL (SELECT seq FROM place WHERE seq = r.seq AND kind = 'w' FOR UPDATE SKIP LOCKED) AS p
            CROSS JOIN LATERAL (SELECT seq, due, wait, links FROM task WHERE seq = p.seq
                FOR NO KEY UPDATE SKIP LOCKED) AS t
        ) AS w
        CROSS JOIN LATERAL (
            SELECT coalesce(c.failed, 0) AS failed FROM awaited_v1(w.wait) AS a
            LEFT JOIN LATERAL (SELECT value, failed FROM counter WHERE app = _app AND name = a.name OFFSET 0) AS c
                ON true
            WHERE coalesce(c.value, 0) >= a.value ORDER BY a.nth LIMIT 1
        ) AS first
    ) AS judged;
END $$;
CREATE FUNCTION end_waits_v1(_app integer, _seqs bigint[], _reasons text[], _dues bigint[], _now double precision)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _call bigint := pg_current_xact_id()::text::bigint;
    _woken text[];
BEGIN
    DELETE FROM waiter WHERE seq = ANY (_seqs);
    WITH given AS MATERIALIZED (
        SELECT g.*, t.ctid AS task_ctid, p.ctid AS place_ctid,
            next_place_v1(g.reason, false, g.due, t.lane, _now, true) AS kind
        FROM unnest(_seqs, _reasons, _dues) WITH ORDINALITY AS g (seq, reason, due, nth)
        CROSS JOIN LATERAL (SELECT ctid, lane FROM task WHERE seq = g.seq OFFSET 0) AS t
        CROSS JOIN LATERAL (SELECT ctid FROM place WHERE seq = g.seq OFFSET 0) AS p
    ), saved AS (
        UPDATE task AS t SET reason = g.reason, due = g.due, state = CASE WHEN g.kind = 'c' THEN 'ready' END,
            wait = NULL, wait_until = NULL
        FROM given AS g WHERE t.ctid = g.task_ctid
        RETURNING g.nth, g.place_ctid, g.kind, coalesce(state_v1(g.kind), t.state) AS state, t.seq, t.source, t.lane,
            t.due - t.boost AS rank, expiry_v1(t) AS expires_at, alarm_v1(t, g.kind) AS alarm
    ), placed AS (
        UPDATE place AS p SET kind = s.kind, rank = s.next_rank, lane = s.lane, expires_at = s.expires_at,
            alarm = s.alarm
        FROM (
            SELECT *, CASE WHEN kind = 'c' THEN nextval('chore') ELSE rank END AS next_rank
            FROM (SELECT * FROM saved ORDER BY nth) AS ordered
        ) AS s WHERE p.ctid = s.place_ctid
    ), counted AS (
        INSERT INTO tally SELECT _app, source, 'waiting', -count(*) FROM saved GROUP BY source
        UNION ALL SELECT _app, source, state, count(*) FROM saved GROUP BY source, state
    ), logged AS (
        INSERT INTO change SELECT _app, _call, floor(_now), state, array_agg(seq ORDER BY nth) FROM saved GROUP BY state
    )
    SELECT coalesce(array_agg(DISTINCT source::text) FILTER (WHERE kind = 'r'), '{}') INTO _woken FROM saved;
    RETURN _woken;
END $$;
CREATE FUNCTION resume_v1(
    _app integer, _seqs bigint[], _reasons text[], _dues bigint[], _now double precision,
    INOUT limits_locked boolean, OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _split record;
    _next record;
    _lane text;
BEGIN
    SELECT coalesce(array_agg(g.seq ORDER BY g.nth) FILTER (WHERE NOT is_laned), '{}') AS seqs,
        array_agg(g.reason ORDER BY g.nth) FILTER (WHERE NOT is_laned) AS reasons,
        array_agg(g.due ORDER BY g.nth) FILTER (WHERE NOT is_laned) AS dues,
        array_agg(g.nth ORDER BY g.nth) FILTER (WHERE is_laned) AS laned
    INTO _split FROM (
        SELECT u.*, t.lane IS NOT NULL AND u.reason = 'due' AND u.due <= _now AS is_laned
        FROM unnest(_seqs, _reasons, _dues) WITH ORDINALITY AS u (seq, reason, due, nth)
        CROSS JOIN LATERAL (SELECT lane FROM task WHERE seq = u.seq OFFSET 0) AS t
    ) AS g;
    woken := '{}';
    IF _split.seqs <> '{}' THEN
        woken := end_waits_v1(_app, _split.seqs, _split.reasons, _split.dues, _now);
    END IF;
    IF _split.laned IS NULL THEN
        RETURN;
    END IF;
    IF NOT limits_locked THEN
        PERFORM lock_limits_v1(_app);
        limits_locked := true;
    END IF;
    FOR _next IN SELECT _seqs[l.nth] AS seq, _dues[l.nth] AS due FROM unnest(_split.laned) AS l (nth) LOOP
        PERFORM end_waits_v1(_app, ARRAY[_next.seq], ARRAY['due'], ARRAY[_next.due], _now);
        SELECT lane INTO _lane FROM place WHERE seq = _next.seq;
        woken := woken || admit_v1(_app, ARRAY[_lane], _now, ARRAY[_next.seq]);
    END LOOP;
END $$;
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
CREATE FUNCTION end_subscriptions_v1(_app integer, _uuids text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM subscription WHERE ctid = ANY (ARRAY(
        SELECT s.ctid FROM unnest(_uuids) AS u (uuid) CROSS JOIN LATERAL (SELECT ctid FROM subscription
            WHERE app = _app AND uuid = u.uuid FOR UPDATE SKIP LOCKED) AS s));
END $$;
CREATE FUNCTION end_subscriber_v1(_app integer, _session text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM subscription WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM subscription WHERE app = _app AND session = _session FOR UPDATE SKIP LOCKED));
END $$;
CREATE FUNCTION purge_subscriptions_v1(_app integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM subscription WHERE ctid = ANY (ARRAY(
        SELECT s.ctid FROM subscription AS s WHERE s.app = _app AND (
            NOT EXISTS (SELECT FROM session AS o WHERE o.app = _app AND o.name = s.session OFFSET 0)
            OR NOT EXISTS (
                SELECT FROM task AS t WHERE t.uuid = s.uuid AND t.app = _app AND t.ended IS NULL OFFSET 0))
        FOR UPDATE SKIP LOCKED));
END $$;
CREATE FUNCTION lock_keys_v1(_app integer, _tasks json) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO unique_key SELECT DISTINCT _app, t.source, t.unique_key, '', NULL::bigint
    FROM json_to_recordset(_tasks) AS t (source text, unique_key text) WHERE t.unique_key IS NOT NULL ORDER BY 2, 3
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
CREATE FUNCTION unlock_keys_v1(_app integer, _tasks json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM unique_key AS k USING json_to_recordset(_tasks) AS t (source text, unique_key text)
    WHERE k.app = _app AND k.source = t.source AND k.name = t.unique_key AND k.uuid = '';
END $$;
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
        END IF;
    END LOOP;
    RAISE EXCEPTION 'unique keys of these tasks changed their holders 20 times meanwhile'
        USING ERRCODE = 'lock_not_available';
END $$;
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
CREATE FUNCTION known_v1(_app integer, _tasks json, _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT g.uuid FROM json_to_recordset(_tasks) AS g (uuid text)
        WHERE EXISTS (SELECT FROM task AS t WHERE t.uuid = g.uuid AND t.app = _app OFFSET 0) OR EXISTS (
            SELECT FROM recent_uuid AS r WHERE r.uuid = g.uuid AND r.app = _app AND r.until > _now OFFSET 0));
END $$;
CREATE FUNCTION insert_v1(_app integer, _tasks json, _now double precision, OUT uuids text[], OUT sources text[])
LANGUAGE plpgsql AS $$
DECLARE
    _waiting bigint[];
BEGIN
    WITH given AS (
        SELECT nextval('seq') AS seq, g.* FROM json_to_recordset(_tasks) AS g (
            uuid text, source text, lane text, unique_key text, at bigint, after double precision, boost bigint,
            cost double precision, expires bigint, max_crashes integer, unique_for bigint, reply_to text, policy text,
            body text, links json)
        WHERE (SELECT t.seq FROM task AS t WHERE t.app = _app AND t.uuid = g.uuid) IS NULL
            AND (NOT (SELECT EXISTS (SELECT FROM recent_uuid AS r WHERE r.until > _now)) OR (
                SELECT r.until FROM recent_uuid AS r WHERE r.app = _app AND r.uuid = g.uuid AND r.until > _now) IS NULL)
            AND (g.unique_key IS NULL OR g.uuid = (SELECT k.uuid FROM unique_key AS k
                WHERE k.app = _app AND k.source = g.source AND k.name = g.unique_key))
    ), fresh AS (
        INSERT INTO task (
            seq, app, uuid, source, lane, unique_key, due, added, boost, cost, expires, max_crashes, unique_for,
            reply_to, policy, body, links, flow, increments, wait_until
        )
        SELECT seq, _app, uuid, source, lane, unique_key, coalesce(at, due_v1(coalesce(after, 0), _now)), floor(_now),
            coalesce(boost, 0), coalesce(cost, 1), expires, coalesce(max_crashes, 3), unique_for, reply_to,
            coalesce(policy, '{}'), decode(body, 'base64'), links, links ->> 'flow',
            increments_v1(links), times_out_v1(links -> 'waits', _now)
        FROM given ON CONFLICT (uuid, app) DO NOTHING
        RETURNING seq, uuid, source, lane, due, boost, cost, expires, max_crashes, wait_until,
            links -> 'waits' IS NOT NULL AS has_wait
    ), placed AS (
        INSERT INTO place
        SELECT seq, _app, kind, source, max_crashes <= 1, due - boost, CASE WHEN kind <> 'w' THEN lane END, cost,
            due + expires, CASE kind WHEN 's' THEN due WHEN 'w' THEN wait_until ELSE due + expires END
        FROM (SELECT *, next_place_v1('due', false, due, lane, _now, false, has_wait) AS kind FROM fresh) AS entering
        RETURNING seq, source, kind
    ), counted AS (
        INSERT INTO tally SELECT _app, source, state_v1(kind), count(*) FROM placed GROUP BY source, kind
    ), logged AS (
        INSERT INTO change
        SELECT _app, pg_current_xact_id()::text::bigint, floor(_now), state_v1(kind), array_agg(seq ORDER BY seq)
        FROM placed GROUP BY kind
    )
    SELECT coalesce(array_agg(uuid), '{}'), coalesce(array_agg(DISTINCT source), '{}'),
        array_agg(seq) FILTER (WHERE has_wait)
    INTO uuids, sources, _waiting FROM fresh;
    IF _waiting IS NOT NULL THEN
        PERFORM begin_waits_v1(_app, _waiting, _now);
    END IF;
END $$;
CREATE FUNCTION replace_v1(_app integer, _uuid text, _new json, _now double precision) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    _task task;
    _place place;
BEGIN
    SELECT p.* INTO _place FROM task AS t JOIN place AS p ON p.seq = t.seq
    WHERE t.app = _app AND t.uuid = _uuid AND t.links IS NULL AND p.kind <> 'w' FOR UPDATE OF p;
    IF NOT FOUND OR _place.kind IN ('c', 'l') THEN
        RETURN NULL;
    END IF;
    UPDATE task SET body = decode(_new ->> 'body', 'base64'), policy = coalesce(_new ->> 'policy', '{}'),
        lane = _new ->> 'lane', reply_to = _new ->> 'reply_to', boost = coalesce((_new ->> 'boost')::bigint, 0),
        cost = coalesce((_new ->> 'cost')::double precision, 1), expires = (_new ->> 'expires')::bigint,
        max_crashes = coalesce((_new ->> 'max_crashes')::integer, 3), unique_for = (_new ->> 'unique_for')::bigint,
        due = coalesce(
            (_new ->> 'at')::bigint, due_v1(coalesce((_new ->> 'after')::double precision, 0), _now))
    WHERE seq = _place.seq RETURNING * INTO _task;
    UPDATE unique_key SET until = _task.added + _task.unique_for WHERE app = _app AND source = _task.source
        AND name = _task.unique_key AND until IS DISTINCT FROM _task.added + _task.unique_for;
    DELETE FROM place WHERE seq = _place.seq;
    PERFORM count_v1(_app, _task.source, state_v1(_place.kind), -1);
    PERFORM enter_v1(_task, next_place_v1('due', false, _task.due, _task.lane, _now, false), _now);
    RETURN CASE WHEN _place.kind <> 's' THEN _place.lane END;
END $$;
CREATE FUNCTION add_keyed_v1(
    _app integer, _tasks json, _now double precision,
    OUT uuids text[], OUT fresh boolean[], OUT sources text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _known text[] := known_v1(_app, _tasks, _now);
    _inserted text[];
    _conflict record;
BEGIN
    PERFORM take_keys_v1(_app, _tasks, _known, _now);
    SELECT i.uuids, i.sources INTO _inserted, sources FROM insert_v1(_app, _tasks, _now) AS i;
    SELECT array_agg(t.uuid ORDER BY t.ordinality), array_agg(t.uuid = ANY (_inserted) ORDER BY t.ordinality)
    INTO uuids, fresh FROM ROWS FROM (json_to_recordset(_tasks) AS (uuid text)) WITH ORDINALITY AS t;
    IF cardinality(_inserted) = cardinality(uuids) THEN
        RETURN;
    END IF;
    FOR _conflict IN
        SELECT t.value AS task, t.ordinality, t.value ->> 'source' AS source, k.uuid AS holder
        FROM json_array_elements(_tasks) WITH ORDINALITY AS t
        CROSS JOIN LATERAL (SELECT k.uuid FROM unique_key AS k WHERE k.app = _app
            AND k.source = t.value ->> 'source' AND k.name = t.value ->> 'unique_key' OFFSET 0) AS k
        WHERE k.uuid <> t.value ->> 'uuid' AND t.value ->> 'uuid' <> ALL (_known) ORDER BY t.ordinality
    LOOP
        uuids[_conflict.ordinality] := _conflict.holder;
        sources := sources || _conflict.source;
        IF _conflict.task ->> 'on_conflict' = 'replace' THEN
            lanes := lanes || replace_v1(_app, _conflict.holder, _conflict.task, _now);
        END IF;
    END LOOP;
END $$;
CREATE FUNCTION add_in_parts_v1(
    _app integer, _tasks json, _now double precision,
    OUT uuids text[], OUT fresh boolean[], OUT sources text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _cut record;
    _start bigint := 1;
    _part record;
BEGIN
    FOR _cut IN
        SELECT t.ordinality, t.earlier FROM (
            SELECT g.ordinality, greatest(lag(g.ordinality) OVER (PARTITION BY g.uuid ORDER BY g.ordinality),
                CASE WHEN g.unique_key IS NOT NULL THEN
                    lag(g.ordinality) OVER (PARTITION BY g.source, g.unique_key ORDER BY g.ordinality) END) AS earlier
            FROM ROWS FROM (json_to_recordset(_tasks) AS (uuid text, source text, unique_key text))
                WITH ORDINALITY AS g
        ) AS t WHERE t.earlier IS NOT NULL
        UNION ALL SELECT json_array_length(_tasks) + 1, json_array_length(_tasks) ORDER BY 1
    LOOP
        CONTINUE WHEN _cut.earlier < _start;
        SELECT a.* INTO _part FROM add_keyed_v1(_app, CASE
            WHEN _start = 1 AND _cut.ordinality > json_array_length(_tasks) THEN _tasks
            ELSE (SELECT json_agg(t.value ORDER BY t.ordinality) FROM json_array_elements(_tasks) WITH ORDINALITY AS t
                WHERE t.ordinality >= _start AND t.ordinality < _cut.ordinality) END, _now) AS a;
        uuids := uuids || _part.uuids;
        fresh := fresh || _part.fresh;
        sources := sources || _part.sources;
        lanes := lanes || _part.lanes;
        _start := _cut.ordinality;
    END LOOP;
END $$;
CREATE FUNCTION add_tasks_v1(
    _app integer, _tasks json, _number integer, _in_parts boolean, _now double precision, _in_transaction boolean,
    OUT uuids text[], OUT fresh boolean[], OUT sources text[], OUT added bigint
) LANGUAGE plpgsql AS $$
DECLARE
    _inserted text[];
    _lanes text[];
BEGIN
    IF NOT _in_parts THEN
        SELECT i.uuids, i.sources, cardinality(i.uuids) INTO _inserted, sources, added
        FROM insert_v1(_app, _tasks, _now) AS i;
        IF added < _number THEN
            SELECT array_agg(t.uuid ORDER BY t.ordinality), array_agg(t.uuid = ANY (_inserted) ORDER BY t.ordinality)
            INTO uuids, fresh FROM ROWS FROM (json_to_recordset(_tasks) AS (uuid text)) WITH ORDINALITY AS t;
        END IF;
        RETURN;
    END IF;
    PERFORM lock_keys_v1(_app, _tasks);
    SELECT a.uuids, a.fresh, a.sources, array_remove(a.lanes, NULL) INTO uuids, fresh, sources, _lanes
    FROM add_in_parts_v1(_app, _tasks, _now) AS a;
    added := cardinality(array_positions(fresh, true));
    PERFORM unlock_keys_v1(_app, _tasks);
    IF _in_transaction THEN
        INSERT INTO lane_check SELECT _app, unnest(_lanes);
    ELSIF _lanes <> '{}' THEN
        PERFORM lock_limits_v1(_app);
        sources := sources || admit_v1(_app, _lanes, _now);
    END IF;
END $$;
CREATE FUNCTION pending_sources_v1(_app integer, _uuids text[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT DISTINCT p.source::text FROM unnest(_uuids) AS given (uuid)
        CROSS JOIN LATERAL (SELECT seq FROM task WHERE uuid = given.uuid AND app = _app OFFSET 0) AS t
        CROSS JOIN LATERAL (SELECT source FROM place WHERE seq = t.seq AND kind IN ('r', 's', 'w') OFFSET 0) AS p);
END $$;
CREATE FUNCTION refuse_late_v1(_now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the add arrived after its deadline' USING ERRCODE = 'OTD01', DETAIL = _now;
END $$;
CREATE FUNCTION add_v1(
    _request json, _tasks json, OUT uuids text[], OUT fresh boolean[], OUT sources text[], OUT moment double precision
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _given double precision := (_request ->> 'now')::double precision;
    _now double precision := now_v1(_given);
    _deadline double precision := (_request ->> 'deadline')::double precision;
BEGIN
    IF _now > _deadline THEN
        PERFORM refuse_late_v1(_now);
    END IF;
    SELECT a.uuids, a.fresh, a.sources INTO uuids, fresh, sources
    FROM add_tasks_v1(_app, _tasks, (_request ->> 'number')::integer, (_request ->> 'in_parts')::boolean, _now, false) AS a;
    IF false = ANY (fresh) THEN
        sources := sources || pending_sources_v1(_app, uuids);
    END IF;
    moment := now_v1(_given);
    IF moment > _deadline THEN
        PERFORM refuse_late_v1(moment);
    END IF;
END $$;
CREATE FUNCTION add_in_v1(_request json, OUT uuids text[], OUT fresh boolean[]) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _sources text[];
BEGIN
    SELECT a.uuids, a.fresh, a.sources INTO uuids, fresh, _sources
    FROM add_tasks_v1(_app, _request -> 'tasks', json_array_length(_request -> 'tasks'),
        (_request ->> 'in_parts')::boolean, now_v1((_request ->> 'now')::double precision), true) AS a;
    IF false = ANY (fresh) THEN
        _sources := _sources || pending_sources_v1(_app, uuids);
    END IF;
    IF _sources <> '{}' THEN
        PERFORM notify_v1(_request ->> 'app', json_build_object('sources', _sources));
    END IF;
END $$;
CREATE TYPE settlement AS (
    positions bigint[], sources text[], lanes text[], newcomers bigint[], woken text[], suspect boolean, chore boolean,
    missed boolean, ended json, raised text[], waiting bigint[], dropped bigint[]
);
CREATE FUNCTION leased_outcomes_v1(_app integer, _outcomes json, _sessions text[], _final boolean) RETURNS TABLE (
    "position" bigint, fence bigint, session text, outcome text, keep bigint, data bytea, keep_result bigint,
    after bigint, counted boolean, reset_crashes boolean, wait json, task_ctid tid, seq bigint, at bigint,
    chore boolean, was text, due bigint, lane label, reason text, cancel_requested boolean, started bigint
) LANGUAGE sql STABLE AS $$
    SELECT o.ordinality, o.fence, o.session, o.outcome, o.keep, decode(o.data, 'base64'),
        CASE WHEN o.data <> '' AND o.keep_result IS NOT NULL THEN least(o.keep, o.keep_result) END,
        (o.requeue ->> 'after')::bigint, (o.requeue ->> 'counted')::boolean,
        (o.requeue ->> 'reset_crashes')::boolean, o.requeue -> 'wait', o.ctid, o.seq, c.at, c.chore,
        CASE WHEN c.chore THEN o.state ELSE 'running' END, o.due, o.lane, o.reason, o.cancel_requested, o.started
    FROM (
        SELECT g.ordinality, g.fence, coalesce(g.session, _sessions[1]) AS session,
            coalesce(g.state, 'succeeded') AS outcome, coalesce(g.keep, 604800000) AS keep,
            coalesce(g.data, '') AS data, g.keep_result, g.requeue, g.requeue IS NULL AS final, t.*
        FROM ROWS FROM (json_to_recordset(_outcomes) AS (
            uuid text, fence bigint, session text, state text, data text, keep bigint, keep_result bigint,
            requeue json)) WITH ORDINALITY AS g
        CROSS JOIN LATERAL (
            SELECT ctid, seq, settled_fence, state, due, lane, reason, cancel_requested, started
            FROM task WHERE task.uuid = g.uuid AND task.app = _app OFFSET 0) AS t
        OFFSET 0
    ) AS o JOIN (
        SELECT claim.fence, claim.session, claim.at, claim.chore, unnest(claim.seqs) AS seq FROM claim
        WHERE claim.app = _app AND claim.session = ANY (_sessions) OFFSET 0
    ) AS c ON c.seq = o.seq AND c.fence = o.fence AND c.session = o.session AND c.fence > o.settled_fence
    WHERE o.final = _final
$$;
CREATE FUNCTION raise_counters_v1(_app integer, _seqs bigint[], _now double precision) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    _names text[];
BEGIN
    WITH raised AS (
        INSERT INTO counter_delta
        SELECT _app, stripe_v1(one.name), one.name, count(*), count(*) FILTER (WHERE one.state <> 'succeeded'),
            floor(_now)
        FROM (
            SELECT t.state, unnest(t.increments) AS name FROM unnest(_seqs) AS s (seq)
            CROSS JOIN LATERAL (SELECT state, increments FROM task WHERE seq = s.seq OFFSET 0) AS t
        ) AS one GROUP BY one.name RETURNING name
    )
    SELECT array_agg(name::text) INTO _names FROM raised;
    RETURN _names;
END $$;
CREATE FUNCTION finish_kept_v1(
    _app integer, _outcomes json, _sessions text[], _now double precision,
    OUT settled settlement, OUT keyed bigint[], OUT linked bigint[], OUT unkept bigint
) LANGUAGE plpgsql AS $$
DECLARE
    _at bigint := floor(_now);
    _call bigint := pg_current_xact_id()::text::bigint;
BEGIN
    WITH leased AS MATERIALIZED (
        SELECT position, fence, session, outcome, keep, data, keep_result, task_ctid, at, chore, was
        FROM leased_outcomes_v1(_app, _outcomes, _sessions, true)
    ), finished AS (
        UPDATE task AS t SET state = h.outcome, settled_fence = h.fence, session = h.session, ended = _at,
            started = CASE WHEN h.chore THEN t.started ELSE h.at END, keep_until = _at + h.keep,
            result = CASE h.outcome WHEN 'succeeded' THEN h.data END, result_until = _at + h.keep_result,
            error = CASE h.outcome WHEN 'succeeded' THEN t.error ELSE h.data END
        FROM leased AS h WHERE t.ctid = h.task_ctid AND t.settled_fence < h.fence AND h.keep > 0
        RETURNING h.position, h.outcome, h.keep, h.keep_result, h.was, h.chore, t.seq, t.uuid, t.source, t.lane,
            t.unique_key IS NOT NULL AND t.unique_for IS NULL AS keyed, t.increments IS NOT NULL AS linked, t.reply_to,
            is_suspect_v1(t) AS suspect
    ), retentions AS (
        INSERT INTO retention (app, what, until, ended, seqs)
        SELECT _app, 'task', _at + keep, _at, array_agg(seq ORDER BY seq) FROM finished GROUP BY keep
        UNION ALL
        SELECT _app, 'result', _at + keep_result, _at, array_agg(seq) FROM finished WHERE keep_result < keep
        GROUP BY keep_result
    ), counted AS (
        INSERT INTO tally SELECT _app, source, was, -count(*) FROM finished GROUP BY source, was
        UNION ALL SELECT _app, source, outcome, count(*) FROM finished GROUP BY source, outcome
    ), logged AS (
        INSERT INTO change SELECT _app, _call, _at, outcome, array_agg(seq) FROM finished GROUP BY outcome
    )
    SELECT coalesce(array_agg(f.position), '{}'), coalesce(array_agg(DISTINCT f.source::text), '{}'),
        array_agg(DISTINCT f.lane::text) FILTER (WHERE f.lane IS NOT NULL), bool_or(f.suspect), bool_or(f.chore),
        count(*) < (SELECT count(*) FROM leased WHERE keep > 0), (
            SELECT json_agg(json_build_array(w.reply_to, w.uuids)) FROM (
                SELECT reply_to, array_agg(uuid) AS uuids FROM finished WHERE reply_to IS NOT NULL GROUP BY reply_to
            ) AS w),
        array_agg(f.seq) FILTER (WHERE f.keyed), array_agg(f.seq) FILTER (WHERE f.linked),
        (SELECT count(*) FROM leased WHERE keep <= 0)
    INTO settled.positions, settled.sources, settled.lanes, settled.suspect, settled.chore, settled.missed,
        settled.ended, keyed, linked, unkept
    FROM finished AS f;
END $$;
CREATE FUNCTION finish_unkept_v1(_app integer, _outcomes json, _sessions text[], _now double precision)
RETURNS settlement LANGUAGE plpgsql AS $$
DECLARE
    _at bigint := floor(_now);
    _call bigint := pg_current_xact_id()::text::bigint;
    _settled settlement;
BEGIN
    WITH leased AS MATERIALIZED (
        SELECT position, fence, outcome, task_ctid, chore, was
        FROM leased_outcomes_v1(_app, _outcomes, _sessions, true) WHERE keep <= 0
    ), finished AS (
        DELETE FROM task AS t USING leased AS h WHERE t.ctid = h.task_ctid AND t.settled_fence < h.fence
        RETURNING h.position, h.outcome, h.was, h.chore, t.seq, t.uuid, t.source, t.lane, t.unique_key, t.unique_for,
            t.added, t.reply_to, t.increments, is_suspect_v1(t) AS suspect
    ), raised AS (
        INSERT INTO counter_delta
        SELECT _app, stripe_v1(name), name, count(*), count(*) FILTER (WHERE outcome <> 'succeeded'), _at
        FROM (SELECT outcome, unnest(increments) AS name FROM finished) AS one GROUP BY name RETURNING name
    ), freed AS (
        DELETE FROM unique_key WHERE ctid = ANY (ARRAY(
            SELECT k.ctid FROM finished AS f CROSS JOIN LATERAL (SELECT ctid FROM unique_key
                WHERE app = _app AND source = f.source AND name = f.unique_key AND uuid = f.uuid OFFSET 0) AS k
            WHERE f.unique_key IS NOT NULL AND f.unique_for IS NULL))
    ), remembered AS (
        INSERT INTO recent_uuid SELECT uuid, _app, added + 10000 FROM finished WHERE added + 10000 > _at
        ON CONFLICT (uuid, app) DO UPDATE SET until = excluded.until
    ), counted AS (
        INSERT INTO tally SELECT _app, source, was, -count(*) FROM finished GROUP BY source, was
    ), logged AS (
        INSERT INTO change
        SELECT _app, _call, _at, outcome, NULL, json_agg(json_build_array(uuid, source)) FROM finished GROUP BY outcome
    )
    SELECT coalesce(array_agg(f.position), '{}'), coalesce(array_agg(DISTINCT f.source::text), '{}'),
        array_agg(DISTINCT f.lane::text) FILTER (WHERE f.lane IS NOT NULL), NULL, NULL, bool_or(f.suspect),
        bool_or(f.chore), count(*) < (SELECT count(*) FROM leased), (
            SELECT json_agg(json_build_array(w.reply_to, w.uuids)) FROM (
                SELECT reply_to, array_agg(uuid) AS uuids FROM finished WHERE reply_to IS NOT NULL GROUP BY reply_to
            ) AS w), (SELECT array_agg(name::text) FROM raised), NULL, array_agg(f.seq)
    INTO _settled FROM finished AS f;
    RETURN _settled;
END $$;
CREATE FUNCTION together_v1(_one settlement, _other settlement) RETURNS settlement LANGUAGE plpgsql AS $$
BEGIN
    _one.positions := _one.positions || _other.positions;
    _one.sources := _one.sources || _other.sources;
    _one.lanes := nullif(ARRAY(SELECT DISTINCT lane FROM unnest(_one.lanes || _other.lanes) AS lane), '{}');
    _one.newcomers := _one.newcomers || _other.newcomers;
    _one.woken := _one.woken || _other.woken;
    _one.raised := _one.raised || _other.raised;
    _one.waiting := _one.waiting || _other.waiting;
    _one.dropped := _one.dropped || _other.dropped;
    _one.suspect := coalesce(_one.suspect, false) OR coalesce(_other.suspect, false);
    _one.chore := coalesce(_one.chore, false) OR coalesce(_other.chore, false);
    IF _other.ended IS NOT NULL THEN
        _one.ended := coalesce(_one.ended, '[]')::jsonb || _other.ended::jsonb;
    END IF;
    RETURN _one;
END $$;
CREATE FUNCTION finish_v1(_app integer, _outcomes json, _sessions text[], _now double precision)
RETURNS settlement LANGUAGE plpgsql AS $$
DECLARE
    _kept record;
    _settled settlement;
BEGIN
    SELECT * INTO _kept FROM finish_kept_v1(_app, _outcomes, _sessions, _now);
    _settled := _kept.settled;
    IF _kept.keyed IS NOT NULL THEN
        DELETE FROM unique_key WHERE ctid = ANY (ARRAY(
            SELECT k.ctid FROM unnest(_kept.keyed) AS f (seq)
            CROSS JOIN LATERAL (SELECT source, unique_key, uuid FROM task WHERE seq = f.seq OFFSET 0) AS t
            CROSS JOIN LATERAL (SELECT ctid FROM unique_key
                WHERE app = _app AND source = t.source AND name = t.unique_key AND uuid = t.uuid OFFSET 0) AS k));
    END IF;
    IF _kept.linked IS NOT NULL THEN
        _settled.raised := raise_counters_v1(_app, _kept.linked, _now);
    END IF;
    IF _kept.unkept > 0 THEN
        _settled := together_v1(_settled, finish_unkept_v1(_app, _outcomes, _sessions, _now));
    END IF;
    RETURN _settled;
END $$;
CREATE FUNCTION requeue_outcomes_v1(_app integer, _outcomes json, _sessions text[], _now double precision)
RETURNS settlement LANGUAGE plpgsql AS $$
DECLARE
    _call bigint := pg_current_xact_id()::text::bigint;
    _settled settlement;
BEGIN
    WITH leased AS MATERIALIZED (
        SELECT *, chore AND (reason <> 'lifted' OR wait IS NOT NULL) AS stays,
            CASE WHEN chore AND reason <> 'lifted' OR after IS NULL THEN due ELSE due_v1(after, _now) END AS next_due,
            (coalesce(reset_crashes, false) OR wait IS NOT NULL)
                AND NOT (chore AND (reason <> 'lifted' OR wait IS NOT NULL)) AS resets
        FROM leased_outcomes_v1(_app, _outcomes, _sessions, false)
    ), decided AS MATERIALIZED (
        SELECT *, next_place_v1(CASE WHEN stays THEN reason ELSE 'due' END, cancel_requested, next_due, lane, _now,
            true, wait IS NOT NULL) AS kind
        FROM leased
    ), saved AS (
        UPDATE task AS t SET settled_fence = d.fence, session = d.session,
            due = CASE WHEN d.kind = 'c' THEN t.due ELSE d.next_due END,
            state = CASE WHEN d.stays THEN t.state WHEN d.kind = 'c' THEN 'ready' END,
            reason = CASE WHEN d.stays AND d.reason <> 'lifted' THEN t.reason WHEN t.cancel_requested THEN 'cancel'
                WHEN d.stays THEN t.reason ELSE 'due' END,
            retries = t.retries + (d.counted AND NOT d.stays)::integer,
            crashes = CASE WHEN d.resets THEN 0 ELSE t.crashes END,
            earlier = t.earlier + CASE WHEN d.resets THEN t.crashes ELSE 0 END,
            wait = CASE WHEN d.kind = 'w' THEN d.wait END,
            wait_until = CASE WHEN d.kind = 'w' THEN times_out_v1(d.wait, _now) END,
            started = CASE WHEN d.chore OR d.after IS NULL AND d.wait IS NULL THEN t.started ELSE d.at END,
            error = CASE WHEN d.data <> '' AND NOT d.stays THEN d.data ELSE t.error END
        FROM decided AS d WHERE t.ctid = d.task_ctid
        RETURNING d.position, d.was, d.chore, d.kind, d.stays, d.data, d.fence, d.session, d.counted,
            coalesce(state_v1(d.kind), t.state) AS state, expiry_v1(t) AS expires_at, is_suspect_v1(t) AS suspect,
            t.earlier + t.retries + t.crashes + (NOT d.counted)::integer AS attempt, t.seq, t.source, t.lane,
            t.due - t.boost AS rank, t.cost, alarm_v1(t, d.kind) AS alarm
    ), placed AS (
        INSERT INTO place
        SELECT seq, _app, kind, source, suspect, CASE WHEN kind = 'c' THEN nextval('chore') ELSE rank END,
            CASE WHEN kind <> 'w' THEN lane END, cost, expires_at, alarm
        FROM saved ORDER BY position
    ), noted AS (
        INSERT INTO note (seq, kind, name, data, fence, session)
        SELECT seq, 'error', attempt, data, fence, session FROM saved WHERE data <> '' AND NOT stays
        ORDER BY position ON CONFLICT DO NOTHING
    ), counted AS (
        INSERT INTO tally SELECT _app, source, was, -count(*) FROM saved GROUP BY source, was
        UNION ALL SELECT _app, source, state, count(*) FROM saved GROUP BY source, state
    ), logged AS (
        INSERT INTO change SELECT _app, _call, floor(_now), state, array_agg(seq ORDER BY position) FROM saved
        GROUP BY state
    )
    SELECT coalesce(array_agg(position), '{}'), coalesce(array_agg(DISTINCT source::text), '{}'),
        array_agg(DISTINCT lane::text) FILTER (WHERE lane IS NOT NULL),
        array_agg(seq ORDER BY rank, seq) FILTER (WHERE kind = 'p'),
        array_agg(DISTINCT source::text) FILTER (WHERE kind = 'r'), bool_or(suspect), bool_or(chore), false, NULL,
        NULL, array_agg(seq ORDER BY seq) FILTER (WHERE kind = 'w'), NULL
    INTO _settled FROM saved;
    RETURN _settled;
END $$;
CREATE FUNCTION verdicts_v1(_app integer, _outcomes json, _sessions text[], _positions bigint[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT CASE
            WHEN o.ordinality = ANY (_positions) THEN 'ok'
            WHEN (SELECT (t.settled_fence, t.session) = (o.fence, coalesce(o.session, _sessions[1]))
                FROM task AS t WHERE t.app = _app AND t.uuid = o.uuid) THEN 'repeat'
            ELSE 'lost' END
        FROM ROWS FROM (json_to_recordset(_outcomes) AS (uuid text, fence bigint, session text))
            WITH ORDINALITY AS o ORDER BY o.ordinality);
END $$;
CREATE FUNCTION release_capacity_v1(_app integer, _settled settlement, _now double precision, _in_transaction boolean)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _woken text[] := coalesce(_settled.woken, '{}') || ARRAY(SELECT s.source FROM unnest(_settled.sources) AS s (source)
        WHERE EXISTS (SELECT FROM limit_rule AS r WHERE r.app = _app AND r.name = s.source));
BEGIN
    IF _settled.suspect THEN
        _woken := _woken || ARRAY(SELECT DISTINCT source FROM place WHERE app = _app AND kind = 'r' AND suspect);
    END IF;
    IF _settled.lanes IS NULL THEN
        RETURN _woken;
    END IF;
    IF _in_transaction THEN
        INSERT INTO lane_check SELECT _app, unnest(_settled.lanes);
        RETURN _woken || _settled.sources;
    END IF;
    PERFORM lock_limits_v1(_app);
    RETURN _woken || admit_v1(_app, _settled.lanes, _now, _settled.newcomers);
END $$;
CREATE FUNCTION drop_claims_of_chores_v1(_app integer, _outcomes json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM claim AS c WHERE c.app = _app AND c.chore
        AND c.fence = ANY (ARRAY(SELECT DISTINCT o.fence FROM json_to_recordset(_outcomes) AS o (fence bigint)))
        AND NOT EXISTS (SELECT FROM task AS t WHERE t.seq = ANY (c.seqs) AND t.settled_fence < c.fence OFFSET 0);
END $$;
CREATE FUNCTION ended_v1(_app integer, _outcomes json, _settled settlement, _in_transaction boolean) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    _uuids text[];
    _subscribers json;
BEGIN
    _uuids := ARRAY(SELECT o.uuid FROM ROWS FROM (json_to_recordset(_outcomes) AS (uuid text, requeue json))
        WITH ORDINALITY AS o WHERE o.requeue IS NULL AND o.ordinality = ANY (_settled.positions));
    _subscribers := subscribers_v1(_app, _uuids);
    IF _subscribers IS NULL THEN
        RETURN _settled.ended;
    END IF;
    IF NOT _in_transaction THEN
        PERFORM end_subscriptions_v1(_app, _uuids);
    END IF;
    RETURN coalesce(_settled.ended, '[]')::jsonb || _subscribers::jsonb;
END $$;
CREATE FUNCTION settle_together_v1(
    _app integer, _outcomes json, _number integer, _tasks json, _in_parts boolean, _sessions text[],
    _now double precision, _in_transaction boolean, OUT verdicts text[], OUT woken text[], OUT ended json,
    OUT raised text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _settled settlement := finish_v1(_app, _outcomes, _sessions, _now);
BEGIN
    verdicts := array_fill('ok'::text, ARRAY[_number]);
    IF cardinality(_settled.positions) < _number THEN
        PERFORM FROM task WHERE app = _app AND uuid = ANY (ARRAY(
            SELECT o.uuid FROM json_to_recordset(_outcomes) AS o (uuid text))) ORDER BY seq FOR NO KEY UPDATE;
        IF _settled.missed THEN
            _settled := together_v1(_settled, finish_v1(_app, _outcomes, _sessions, _now));
        END IF;
        _settled := together_v1(_settled, requeue_outcomes_v1(_app, _outcomes, _sessions, _now));
        verdicts := verdicts_v1(_app, _outcomes, _sessions, _settled.positions);
    END IF;
    ended := _settled.ended;
    IF EXISTS (SELECT FROM subscription WHERE app = _app) THEN
        ended := ended_v1(_app, _outcomes, _settled, _in_transaction);
    END IF;
    raised := _settled.raised;
    IF _settled.dropped IS NOT NULL THEN
        DELETE FROM note WHERE seq = ANY (_settled.dropped);
    END IF;
    IF _settled.waiting IS NOT NULL THEN
        raised := raised || begin_waits_v1(_app, _settled.waiting, _now);
    END IF;
    woken := release_capacity_v1(_app, _settled, _now, _in_transaction);
    IF _settled.chore THEN
        PERFORM drop_claims_of_chores_v1(_app, _outcomes);
    END IF;
    IF _tasks IS NOT NULL AND cardinality(_settled.positions) < _number THEN
        _tasks := (SELECT json_agg(t.value ORDER BY t.ordinality) FROM json_array_elements(_tasks) WITH ORDINALITY AS t
            WHERE (t.value ->> 'outcome')::bigint = ANY (_settled.positions));
    END IF;
    IF _tasks IS NOT NULL THEN
        woken := woken || (SELECT a.sources
            FROM add_tasks_v1(_app, _tasks, json_array_length(_tasks), _in_parts, _now, _in_transaction) AS a);
    END IF;
END $$;
CREATE FUNCTION depends_v1(_app integer, _outcomes json, _tasks json) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM json_to_recordset(_tasks) AS n (source text, unique_key text, outcome bigint)
        CROSS JOIN LATERAL (SELECT k.uuid FROM unique_key AS k
            WHERE k.app = _app AND k.source = n.source AND k.name = n.unique_key OFFSET 0) AS holder
        JOIN ROWS FROM (json_to_recordset(_outcomes) AS (uuid text)) WITH ORDINALITY AS o
            ON o.uuid = holder.uuid AND o.ordinality > n.outcome
    ) OR EXISTS (
        SELECT FROM json_to_recordset(_outcomes) AS o (uuid text, requeue json)
        CROSS JOIN LATERAL (SELECT lane, reason FROM task WHERE uuid = o.uuid AND app = _app OFFSET 0) AS t
        WHERE t.lane IS NOT NULL GROUP BY t.lane
        HAVING count(*) > 1 AND bool_or(o.requeue IS NOT NULL AND coalesce((o.requeue ->> 'after')::bigint, 0) <= 0) AND (
            bool_or(t.reason = 'lifted') OR (SELECT (effective_limit_v1(_app, t.lane)).rate) IS NOT NULL));
END $$;
CREATE FUNCTION settle_v1(
    _app integer, _outcomes json, _number integer, _tasks json, _in_parts boolean, _sessions text[], _order text,
    _now double precision, _in_transaction boolean, OUT verdicts text[], OUT woken text[], OUT ended json,
    OUT raised text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _next record;
    _one record;
BEGIN
    PERFORM FROM session WHERE app = _app AND name = ANY (_sessions) ORDER BY name FOR KEY SHARE;
    IF _order = 'any' OR _order = 'check' AND NOT depends_v1(_app, _outcomes, _tasks) THEN
        SELECT t.verdicts, t.woken, t.ended, t.raised INTO verdicts, woken, ended, raised
        FROM settle_together_v1(_app, _outcomes, _number, _tasks, _in_parts, _sessions, _now, _in_transaction) AS t;
        RETURN;
    END IF;
    woken := '{}';
    FOR _next IN SELECT o.value, o.ordinality FROM json_array_elements(_outcomes) WITH ORDINALITY AS o
        ORDER BY o.ordinality
    LOOP
        SELECT * INTO _one FROM settle_together_v1(_app, json_build_array(_next.value), 1, (
            SELECT json_agg(t.value ORDER BY t.ordinality) FROM json_array_elements(_tasks) WITH ORDINALITY AS t
            WHERE (t.value ->> 'outcome')::bigint = _next.ordinality), _in_parts, _sessions, _now, _in_transaction);
        verdicts := verdicts || _one.verdicts;
        woken := woken || _one.woken;
        raised := raised || _one.raised;
        IF _one.ended IS NOT NULL THEN
            ended := coalesce(ended, '[]')::jsonb || _one.ended::jsonb;
        END IF;
    END LOOP;
END $$;
CREATE FUNCTION settle_in_v1(_request json, OUT verdict text) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _settled record;
BEGIN
    SELECT * INTO _settled FROM settle_v1(
        _app, _request -> 'outcomes', 1, nullif(_request ->> 'tasks', '[]')::json,
        (_request ->> 'in_parts')::boolean, ARRAY[_request ->> 'session'], 'any', _now, true);
    verdict := _settled.verdicts[1];
    IF verdict = 'ok' THEN
        PERFORM notify_v1(_request ->> 'app', json_strip_nulls(
            json_build_object('sources', _settled.woken, 'ended', _settled.ended, 'recheck', nullif(EXISTS (
                SELECT FROM unnest(_settled.raised) AS n (name) WHERE EXISTS (
                    SELECT FROM waiter AS w WHERE w.app = _app AND w.name = n.name OFFSET 0)), false))));
    END IF;
END $$;
CREATE FUNCTION time_out_v1(
    _app integer, _seqs bigint[], _now double precision, INOUT limits_locked boolean, OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _over record;
BEGIN
    SELECT array_agg(t.seq ORDER BY s.nth) AS seqs,
        array_agg(CASE WHEN t.started IS NULL THEN 'expired' ELSE 'due' END ORDER BY s.nth) AS reasons,
        array_agg(CASE WHEN t.started IS NULL THEN t.due ELSE greatest(t.due, floor(_now)::bigint) END ORDER BY s.nth)
            AS dues
    INTO _over FROM unnest(_seqs) WITH ORDINALITY AS s (seq, nth)
    CROSS JOIN LATERAL (SELECT seq, due, started FROM task WHERE seq = s.seq OFFSET 0) AS t;
    SELECT r.woken, r.limits_locked INTO woken, limits_locked
    FROM resume_v1(_app, _over.seqs, _over.reasons, _over.dues, _now, limits_locked) AS r;
END $$;
CREATE FUNCTION arrive_in_order_v1(
    _app integer, _due bigint[], _now double precision, INOUT limits_locked boolean, OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _place place;
    _timed_out record;
BEGIN
    woken := '{}';
    FOR _place IN
        SELECT p.* FROM unnest(_due) WITH ORDINALITY AS d (seq, nth)
        JOIN place AS p ON p.seq = ANY (_due) AND p.seq = d.seq
        WHERE p.kind = 'w' OR p.kind <> 'c' AND (p.lane IS NOT NULL OR p.expires_at <= _now) ORDER BY d.nth
    LOOP
        IF _place.kind = 'w' THEN
            SELECT * INTO _timed_out FROM time_out_v1(_app, ARRAY[_place.seq], _now, limits_locked);
            woken := woken || _timed_out.woken;
            limits_locked := _timed_out.limits_locked;
            CONTINUE;
        END IF;
        IF _place.expires_at <= _now THEN
            PERFORM end_as_chore_v1(_place.seq, 'expired', _now);
        ELSE
            PERFORM park_v1(_app, _place.seq, _place.source, 'scheduled');
            PERFORM log_transitions_v1(_app, _now, 'parked', ARRAY[_place.seq]);
        END IF;
        IF _place.lane IS NOT NULL THEN
            woken := woken || admit_v1(_app, ARRAY[_place.lane::text], _now, ARRAY[_place.seq]);
        END IF;
    END LOOP;
END $$;
CREATE FUNCTION promote_v1(
    _app integer, _now double precision, INOUT limits_locked boolean, OUT woken text[], OUT more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _due bigint[];
    _ready bigint[];
    _waiting bigint[];
    _step record;
BEGIN
    SELECT coalesce(array_agg(seq ORDER BY alarm, seq), '{}'),
        array_agg(seq ORDER BY alarm, seq) FILTER (WHERE kind = 'w')
    INTO _due, _waiting FROM (
        SELECT seq, alarm, kind FROM place
        WHERE app = _app AND alarm <= floor(_now)::bigint AND (limits_locked OR lane IS NULL)
        ORDER BY alarm, seq LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS due;
    more := cardinality(_due) = 1000;
    woken := '{}';
    IF _due = '{}' THEN
        RETURN;
    END IF;
    WITH promoted AS (
        UPDATE place SET kind = next_place_v1('due', false, alarm, lane, _now, true), alarm = expires_at
        WHERE seq = ANY (_due) AND kind <> 'w' AND lane IS NULL AND coalesce(expires_at > _now, true)
        RETURNING seq, source
    ), counted AS (
        INSERT INTO tally SELECT _app, source, state, count(*) * sign FROM promoted
        CROSS JOIN (VALUES ('scheduled', -1), ('ready', 1)) AS deltas (state, sign) GROUP BY source, state, sign
    )
    SELECT coalesce(array_agg(DISTINCT source), '{}'), array_agg(seq) INTO woken, _ready FROM promoted;
    IF _ready IS NOT NULL THEN
        PERFORM log_transitions_v1(_app, _now, 'ready', _ready);
    END IF;
    IF cardinality(_ready) = cardinality(_due) THEN
        RETURN;
    END IF;
    IF _waiting IS NOT NULL THEN
        SELECT * INTO _step FROM time_out_v1(_app, ARRAY(
            SELECT w.seq FROM unnest(_waiting) WITH ORDINALITY AS w (seq, nth)
            CROSS JOIN LATERAL (SELECT lane FROM task WHERE seq = w.seq OFFSET 0) AS t
            WHERE t.lane IS NULL ORDER BY w.nth), _now, limits_locked);
        woken := woken || _step.woken;
    END IF;
    SELECT * INTO _step FROM arrive_in_order_v1(_app, _due, _now, limits_locked);
    woken := woken || _step.woken;
    limits_locked := _step.limits_locked;
END $$;
CREATE FUNCTION due_schedules_v1(_app integer, _now double precision) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT json_agg(json_build_object(
        'name', name, 'rule', translate(encode(rule, 'base64'), E'\n', ''), 'definition_digest', definition_digest,
        'next_at', next_at, 'rev', rev, 'paused', paused, 'last_at', last_at, 'runs', runs, 'incoming', incoming))
    FROM schedule WHERE app = _app AND next_at <= floor(_now)::bigint AND NOT paused);
END $$;
CREATE FUNCTION put_schedule_v1(_app integer, _given json) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _new schedule;
BEGIN
    SELECT _app, s.name, decode(s.rule, 'base64'), s.definition_digest, s.next_at, s.rev, s.paused, s.last_at, s.runs,
        s.incoming INTO _new
    FROM json_to_record(_given) AS s (
        name text, rule text, definition_digest text, next_at bigint, rev integer, paused boolean, last_at bigint,
        runs integer, incoming boolean);
    IF _new.rev > 0 THEN
        UPDATE schedule SET rule = _new.rule, definition_digest = _new.definition_digest, next_at = _new.next_at,
            rev = _new.rev + 1, paused = _new.paused, last_at = _new.last_at, runs = _new.runs,
            incoming = _new.incoming
        WHERE app = _app AND name = _new.name AND rev = _new.rev;
        RETURN FOUND;
    END IF;
    _new.rev := 1;
    INSERT INTO schedule AS old SELECT _new.*
    ON CONFLICT (app, name) DO UPDATE SET rule = excluded.rule, definition_digest = excluded.definition_digest,
        next_at = excluded.next_at, rev = old.rev + 1
    WHERE excluded.definition_digest = '' OR excluded.definition_digest <> old.definition_digest;
    RETURN true;
END $$;
CREATE FUNCTION put_schedules_v1(_request json, OUT answers boolean[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _new json;
BEGIN
    answers := '{}';
    FOR _new IN SELECT value FROM json_array_elements(_request -> 'schedules') LOOP
        answers := answers || put_schedule_v1(_app, _new);
    END LOOP;
    IF answers <> '{}' THEN
        notification := json_build_object('recheck', true);
    END IF;
END $$;
CREATE FUNCTION fire_v1(_request json, OUT answers boolean[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _fire record;
    _added record;
    _woken text[] := '{}';
BEGIN
    answers := '{}';
    FOR _fire IN SELECT * FROM json_to_recordset(_request -> 'fires') AS f (
        name text, rev integer, tasks json, in_parts boolean, next_at bigint, last_at bigint)
    LOOP
        PERFORM FROM schedule WHERE app = _app AND name = _fire.name AND rev = _fire.rev AND NOT paused FOR UPDATE;
        answers := answers || FOUND;
        CONTINUE WHEN NOT FOUND;
        SELECT * INTO _added FROM add_tasks_v1(
            _app, _fire.tasks, json_array_length(_fire.tasks), _fire.in_parts, _now, false);
        UPDATE schedule SET next_at = _fire.next_at, rev = rev + 1, last_at = coalesce(_fire.last_at, last_at),
            runs = runs + _added.added
        WHERE app = _app AND name = _fire.name;
        _woken := _woken || _added.sources;
    END LOOP;
    notification := json_build_object('sources', _woken);
END $$;
CREATE FUNCTION delete_schedules_v1(_request json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM schedule WHERE app = app_v1(_request ->> 'app')
        AND name IN (SELECT json_array_elements_text(_request -> 'names'));
END $$;
CREATE FUNCTION take_chores_v1(_app integer, OUT seqs bigint[], OUT sources text[]) LANGUAGE plpgsql AS $$
BEGIN
    WITH taken AS (
        DELETE FROM place WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM place WHERE app = _app AND kind = 'c' ORDER BY rank LIMIT 100 FOR UPDATE SKIP LOCKED
        )) RETURNING seq, source, rank
    )
    SELECT coalesce(array_agg(seq ORDER BY rank), '{}'), array_agg(source::text ORDER BY rank) INTO seqs, sources
    FROM taken;
END $$;
CREATE FUNCTION find_ready_v1(
    _app integer, _sources text[], _capacity integer[], _parked integer[], _total integer, _with_suspects boolean,
    _limits_locked boolean, OUT most integer[], OUT ctids tid[], OUT seqs bigint[], OUT sources text[],
    OUT lanes text[], OUT nths bigint[], OUT costs double precision[], OUT suspects boolean[], OUT is_plain boolean
) LANGUAGE plpgsql AS $$
BEGIN
    most := ARRAY(
        SELECT CASE WHEN least(q.free, _total) > 0 THEN least(q.free, _total) + q.parked ELSE 0 END
        FROM unnest(_capacity, _parked) WITH ORDINALITY AS q (free, parked, nth) ORDER BY q.nth
    );
    SELECT array_agg(f.ctid), array_agg(f.seq), array_agg(f.source::text), array_agg(f.lane::text), array_agg(f.nth),
        array_agg(f.cost), array_agg(f.suspect), bool_and(NOT f.suspect AND f.lane IS NULL)
    INTO ctids, seqs, sources, lanes, nths, costs, suspects, is_plain
    FROM (
        SELECT q.nth, found.* FROM unnest(_sources, most) WITH ORDINALITY AS q (source, limited, nth)
        CROSS JOIN (VALUES (false), (true)) AS kinds (suspect)
        CROSS JOIN LATERAL (
            SELECT ctid, seq, rank, suspect, lane, cost, source FROM place
            WHERE app = _app AND kind = 'r' AND source = q.source AND suspect = kinds.suspect
                AND (_with_suspects OR NOT kinds.suspect) AND (_limits_locked OR lane IS NULL)
            ORDER BY rank, seq LIMIT q.limited FOR UPDATE SKIP LOCKED
        ) AS found ORDER BY found.rank, found.seq
    ) AS f;
END $$;
CREATE FUNCTION pick_from_pool_v1(
    _app integer, _sources text[], _capacity integer[], _total integer, _limits_locked boolean, _now double precision,
    INOUT free_suspects integer, OUT seqs bigint[], OUT sources text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _found record;
    _next record;
    _taken tid[];
    _parked bigint[];
    _parked_of integer[] := array_fill(0, ARRAY[cardinality(_sources)]);
    _parked_count integer := 0;
BEGIN
    seqs := '{}';
    sources := '{}';
    lanes := '{}';
    LOOP
        _taken := '{}';
        _parked := '{}';
        SELECT * INTO _found FROM find_ready_v1(
            _app, _sources, _capacity, _parked_of, _total, free_suspects > 0, _limits_locked);
        IF _found.is_plain AND _parked_count = 0 THEN
            seqs := _found.seqs[:_total];
            sources := _found.sources[:_total];
            lanes := _found.lanes[:_total];
            DELETE FROM place WHERE ctid = ANY (_found.ctids[:_total]);
            RETURN;
        END IF;
        FOR _next IN SELECT *, row_number() OVER (PARTITION BY nth, suspect ORDER BY pos) AS read_count
            FROM unnest(_found.ctids, _found.seqs, _found.sources, _found.lanes, _found.nths, _found.costs,
                _found.suspects) WITH ORDINALITY AS f (ctid, seq, source, lane, nth, cost, suspect, pos) ORDER BY pos
        LOOP
            EXIT WHEN cardinality(_taken) >= _total OR _parked_count >= 1000;
            CONTINUE WHEN _capacity[_next.nth] <= 0 OR _next.suspect AND free_suspects <= 0;
            IF _next.lane IS NOT NULL AND NOT may_start_v1(
                _app, _next.lane, _next.cost, cardinality(array_positions(lanes, _next.lane)), _now
            ) THEN
                PERFORM park_v1(_app, _next.seq, _next.source, 'ready');
                _parked := _parked || _next.seq;
                _parked_count := _parked_count + 1;
                _parked_of[_next.nth] := _parked_of[_next.nth] + 1;
            ELSE
                _taken := _taken || _next.ctid;
                seqs := seqs || _next.seq;
                sources := sources || _next.source;
                lanes := lanes || _next.lane;
                _capacity[_next.nth] := _capacity[_next.nth] - 1;
                free_suspects := free_suspects - _next.suspect::integer;
            END IF;
            EXIT WHEN _capacity[_next.nth] > 0 AND _next.read_count = _found.most[_next.nth];
        END LOOP;
        DELETE FROM place WHERE ctid = ANY (_taken);
        EXIT WHEN _parked = '{}';
        PERFORM log_transitions_v1(_app, _now, 'parked', _parked);
        EXIT WHEN _parked_count >= 1000;
        _total := _total - cardinality(_taken);
    END LOOP;
END $$;
CREATE FUNCTION pick_v1(
    _app integer, _pools json, _limits_locked boolean, _now double precision, INOUT free_suspects integer,
    OUT seqs bigint[], OUT sources text[], OUT lanes text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _pool json;
    _offered record;
    _picked record;
    _started record;
    _limit record;
BEGIN
    seqs := '{}';
    sources := '{}';
    lanes := '{}';
    FOR _pool IN SELECT value FROM json_array_elements(_pools) LOOP
        SELECT array_agg(q.key ORDER BY q.nth) AS sources, array_agg(least(q.value::integer, CASE
            WHEN EXISTS (SELECT FROM limit_rule AS r WHERE r.app = _app AND r.name = q.key)
            THEN (source_capacity_v1(_app, q.key, _now)).free END) ORDER BY q.nth) AS capacity
        INTO _offered
        FROM json_each_text(_pool -> 'capacity') WITH ORDINALITY AS q (key, value, nth) WHERE q.value::integer > 0;
        CONTINUE WHEN _offered.sources IS NULL OR (_pool ->> 'total')::integer <= 0;
        SELECT * INTO _picked FROM pick_from_pool_v1(_app, _offered.sources, _offered.capacity,
            (_pool ->> 'total')::integer, _limits_locked, _now, free_suspects);
        free_suspects := _picked.free_suspects;
        seqs := seqs || _picked.seqs;
        sources := sources || _picked.sources;
        lanes := lanes || _picked.lanes;
        CONTINUE WHEN NOT _limits_locked;
        FOR _started IN
            SELECT t.source, count(*) AS number FROM unnest(_picked.sources) AS t (source) WHERE EXISTS (
                SELECT FROM limit_rule AS r WHERE r.app = _app AND r.name = t.source AND r.rate IS NOT NULL)
            GROUP BY t.source
        LOOP
            _limit := effective_limit_v1(_app, _started.source);
            PERFORM spend_v1(_app, _started.source, _limit.rate, _limit.burst, _started.number, _now);
        END LOOP;
    END LOOP;
END $$;
CREATE FUNCTION lease_v1(
    _app integer, _session text, _number bigint, _fence bigint, _seqs bigint[], _sources text[], _lanes text[],
    _chore boolean, _now double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH leased AS (
        INSERT INTO claim
        SELECT _fence, _app, _session, _number, t.source, t.lane, _chore, floor(_now), array_agg(t.seq)
        FROM unnest(_seqs, _sources, _lanes) AS t (seq, source, lane) GROUP BY t.source, t.lane
        RETURNING source, cardinality(seqs) AS number
    )
    INSERT INTO tally SELECT _app, source, state, sum(number) * sign FROM leased
    CROSS JOIN (VALUES ('ready', -1), ('running', 1)) AS deltas (state, sign)
    WHERE NOT _chore GROUP BY source, state, sign;
    IF NOT _chore THEN
        PERFORM log_transitions_v1(_app, _now, 'running', _seqs);
    END IF;
END $$;
CREATE FUNCTION lease_pending_v1(
    _app integer, _session text, _pending bigint[], _uuids text[], _reason text, _now double precision,
    OUT fence bigint, OUT seqs bigint[], OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _place place;
    _sources text[] := '{}';
    _waiting record;
BEGIN
    fence := 0;
    woken := '{}';
    IF EXISTS (SELECT FROM place WHERE seq = ANY (_pending) AND lane IS NOT NULL) THEN
        PERFORM lock_limits_v1(_app);
    END IF;
    SELECT array_agg(seq) AS seqs, array_agg(_reason) AS reasons, array_agg(due) AS dues INTO _waiting FROM task
    WHERE seq = ANY (ARRAY(SELECT seq FROM place WHERE seq = ANY (_pending) AND kind = 'w'));
    IF _waiting.seqs IS NOT NULL THEN
        PERFORM end_waits_v1(_app, _waiting.seqs, _waiting.reasons, _waiting.dues, _now);
    END IF;
    seqs := ARRAY(
        SELECT t.seq FROM unnest(_uuids) WITH ORDINALITY AS u (uuid, nth)
        JOIN task AS t ON t.seq = ANY (_pending) AND t.uuid = u.uuid GROUP BY t.seq ORDER BY min(u.nth));
    IF seqs = '{}' THEN
        RETURN;
    END IF;
    FOR _place IN SELECT p.* FROM unnest(seqs) WITH ORDINALITY AS u (seq, nth)
        JOIN place AS p ON p.seq = ANY (seqs) AND p.seq = u.seq ORDER BY u.nth
    LOOP
        IF _place.kind NOT IN ('c', 'l') THEN
            PERFORM end_as_chore_v1(_place.seq, _reason, _now);
        END IF;
        IF _reason = 'cancel' THEN
            UPDATE task SET cancel_requested = true, reason = 'cancel' WHERE seq = _place.seq;
        END IF;
        DELETE FROM place WHERE seq = _place.seq;
        _sources := _sources || _place.source::text;
        IF _place.lane IS NOT NULL AND _place.kind IN ('r', 'p') THEN
            woken := woken || admit_v1(_app, ARRAY[_place.lane::text], _now);
        END IF;
    END LOOP;
    fence := nextval('fence');
    PERFORM lease_v1(_app, _session, 0, fence, seqs, _sources, NULL, true, _now);
END $$;
CREATE FUNCTION free_suspects_v1(_app integer, _session text, _max_suspects integer) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM place WHERE app = _app AND kind = 'r' AND suspect) THEN
        RETURN _max_suspects;
    END IF;
    RETURN _max_suspects - (SELECT count(*) FROM claim AS c CROSS JOIN unnest(c.seqs) AS leased (seq)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE seq = leased.seq OFFSET 0) AS t
        WHERE c.app = _app AND c.session = _session AND NOT c.chore AND t.settled_fence < c.fence
            AND t.crashes + 1 >= t.max_crashes);
END $$;
CREATE FUNCTION new_claim_v1(
    _app integer, _session text, _claim_request json, _limits_locked boolean, _now double precision,
    INOUT free_suspects integer, OUT fence bigint, OUT tasks bigint[], OUT chores bigint[], OUT woken text[]
) LANGUAGE plpgsql AS $$
DECLARE
    _number bigint := (_claim_request ->> 'number')::bigint;
    _sources_of_chores text[];
    _sources text[];
    _lanes text[];
BEGIN
    fence := 0;
    woken := '{}';
    chores := '{}';
    IF EXISTS (SELECT FROM place WHERE app = _app AND kind = 'c') THEN
        SELECT c.seqs, c.sources INTO chores, _sources_of_chores FROM take_chores_v1(_app) AS c;
    END IF;
    SELECT p.seqs, p.sources, p.lanes, p.free_suspects INTO tasks, _sources, _lanes, free_suspects
    FROM pick_v1(_app, _claim_request -> 'pools', _limits_locked, _now, free_suspects) AS p;
    IF chores = '{}' AND tasks = '{}' THEN
        RETURN;
    END IF;
    fence := nextval('fence');
    IF chores <> '{}' THEN
        PERFORM lease_v1(_app, _session, _number, fence, chores, _sources_of_chores, NULL, true, _now);
    END IF;
    IF tasks <> '{}' THEN
        PERFORM lease_v1(_app, _session, _number, fence, tasks, _sources, _lanes, false, _now);
    END IF;
    IF _limits_locked THEN
        woken := admit_v1(_app, ARRAY(SELECT DISTINCT lane FROM unnest(_lanes) AS lane WHERE lane IS NOT NULL), _now);
    END IF;
END $$;
CREATE FUNCTION repeat_claim_v1(_fence bigint, _pools json, OUT tasks bigint[], OUT chores bigint[])
LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(array_agg(t.seq ORDER BY p.pool, t.due - t.boost, t.seq) FILTER (WHERE NOT c.chore), '{}'),
        coalesce(array_agg(t.seq ORDER BY t.seq) FILTER (WHERE c.chore), '{}')
    INTO tasks, chores
    FROM claim AS c CROSS JOIN unnest(c.seqs) AS leased (seq)
    CROSS JOIN LATERAL (SELECT * FROM task WHERE task.seq = leased.seq OFFSET 0) AS t
    LEFT JOIN LATERAL (
        SELECT min(pool.nth) AS pool FROM json_array_elements(_pools) WITH ORDINALITY AS pool (value, nth)
        WHERE pool.value -> 'capacity' -> t.source IS NOT NULL
    ) AS p ON true
    WHERE c.fence = _fence AND t.settled_fence < c.fence;
END $$;
CREATE FUNCTION renew_leases_v1(
    _app integer, _session text, _number bigint, _now double precision, OUT fence bigint
) LANGUAGE plpgsql AS $$
DECLARE
    _new_fence bigint := nextval('fence');
BEGIN
    UPDATE claim AS c SET fence = _new_fence, number = _number, at = floor(_now), seqs = ARRAY(
        SELECT leased.seq FROM unnest(c.seqs) WITH ORDINALITY AS leased (seq, nth)
        CROSS JOIN LATERAL (SELECT * FROM task WHERE task.seq = leased.seq OFFSET 0) AS t
        WHERE t.settled_fence < c.fence ORDER BY leased.nth)
    WHERE c.app = _app AND c.session = _session;
    DELETE FROM claim AS c WHERE c.app = _app AND c.session = _session AND c.seqs = '{}';
    SELECT max(c.fence) INTO fence FROM claim AS c WHERE c.app = _app AND c.session = _session;
END $$;
CREATE FUNCTION idle_sources_v1(_app integer, _pools json, _with_suspects boolean, _now double precision) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    _source text;
    _capacity record;
    _idle jsonb := '{}';
BEGIN
    FOR _source IN
        SELECT q.key FROM json_array_elements(_pools) AS pool CROSS JOIN json_each_text(pool -> 'capacity') AS q
        WHERE q.value::integer > 0
    LOOP
        IF NOT EXISTS (SELECT FROM place WHERE app = _app AND kind = 'r' AND source = _source AND NOT suspect)
            AND NOT (_with_suspects AND EXISTS (
                SELECT FROM place WHERE app = _app AND kind = 'r' AND source = _source AND suspect))
        THEN
            _idle := _idle || jsonb_build_object(_source, NULL);
        ELSIF EXISTS (SELECT FROM limit_rule WHERE app = _app AND name = _source) THEN
            SELECT * INTO _capacity FROM source_capacity_v1(_app, _source, _now);
            IF _capacity.free <= 0 THEN
                _idle := _idle || jsonb_build_object(_source, _capacity.wait);
            END IF;
        END IF;
    END LOOP;
    RETURN _idle;
END $$;
CREATE FUNCTION next_in_v1(_app integer, _idle json, _now double precision) RETURNS double precision
LANGUAGE plpgsql AS $$
BEGIN
    RETURN least(
        (SELECT min(value::double precision) FROM json_each_text(_idle)),
        (SELECT min(CASE WHEN at > _now THEN at - _now ELSE 100 END) FROM (VALUES
            ((SELECT min(alarm) FROM place WHERE app = _app AND alarm IS NOT NULL)),
            ((SELECT min(refill_at) FROM token_bucket WHERE app = _app AND refill_at IS NOT NULL)),
            ((SELECT min(until) FROM session WHERE app = _app)),
            ((SELECT min(next_at) FROM schedule WHERE app = _app AND next_at > floor(_now)::bigint AND NOT paused))
        ) AS next (at) WHERE at IS NOT NULL));
END $$;
CREATE FUNCTION claim_v1(
    _app integer, _session text, _claim_request json, _last_number bigint, _now double precision,
    OUT fence bigint, OUT tasks bigint[], OUT chores bigint[], OUT schedules json, OUT idle json, OUT woken text[],
    OUT next_in double precision, OUT more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _pools json := _claim_request -> 'pools';
    _number bigint := (_claim_request ->> 'number')::bigint;
    _limits_locked boolean := EXISTS (SELECT FROM place WHERE app = _app AND lane IS NOT NULL) OR EXISTS (
        SELECT FROM json_array_elements(_pools) AS pool CROSS JOIN json_object_keys(pool -> 'capacity') AS source
        JOIN limit_rule AS r ON r.app = _app AND r.name = source);
    _step record;
    _folded record;
    _free_suspects integer;
BEGIN
    DELETE FROM claim AS c WHERE c.app = _app AND c.session = _session AND NOT EXISTS (
        SELECT FROM task AS t WHERE t.seq = ANY (c.seqs) AND t.settled_fence < c.fence OFFSET 0);
    woken := '{}';
    more := _number > _last_number + 1;
    IF _limits_locked THEN
        PERFORM lock_limits_v1(_app);
        SELECT * INTO _step FROM refill_lanes_v1(_app, _now);
        woken := _step.woken;
        more := more OR _step.more;
    END IF;
    SELECT * INTO _folded FROM fold_counters_v1(_app, _now, _limits_locked)
    WHERE EXISTS (SELECT FROM counter_delta WHERE app = _app);
    SELECT * INTO _step FROM promote_v1(_app, _now, coalesce(_folded.limits_locked, _limits_locked));
    _limits_locked := _step.limits_locked;
    woken := woken || _folded.woken || _step.woken;
    more := more OR coalesce(_folded.more, false) OR _step.more;
    _free_suspects := free_suspects_v1(_app, _session, (_claim_request ->> 'max_suspects')::integer);
    tasks := '{}';
    chores := '{}';
    IF _number > _last_number + 1 THEN
        fence := renew_leases_v1(_app, _session, _number, _now);
    ELSIF _number = _last_number THEN
        SELECT max(c.fence) INTO fence FROM claim AS c
        WHERE c.app = _app AND c.session = _session AND c.number = _number;
    END IF;
    IF fence IS NOT NULL THEN
        SELECT r.tasks, r.chores INTO tasks, chores FROM repeat_claim_v1(fence, _pools) AS r;
    ELSIF _number > _last_number THEN
        SELECT * INTO _step FROM new_claim_v1(_app, _session, _claim_request, _limits_locked, _now, _free_suspects);
        fence := _step.fence;
        tasks := _step.tasks;
        chores := _step.chores;
        woken := woken || _step.woken;
        _free_suspects := _step.free_suspects;
    END IF;
    fence := CASE WHEN tasks = '{}' AND chores = '{}' THEN 0 ELSE fence END;
    more := more OR cardinality(chores) >= 100 OR _number < _last_number;
    schedules := due_schedules_v1(_app, _now);
    idle := idle_sources_v1(_app, _pools, _free_suspects > 0, _now);
    next_in := next_in_v1(_app, idle, _now);
    IF _folded.is_left THEN
        next_in := least(next_in, 2);
    END IF;
END $$;
CREATE FUNCTION leased_v1(_app integer, _session text)
RETURNS TABLE (task task, fence bigint, at bigint, chore boolean) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT one.t, c.fence, c.at, c.chore
    FROM claim AS c CROSS JOIN unnest(c.seqs) AS leased (seq)
    CROSS JOIN LATERAL (SELECT it FROM task AS it WHERE it.seq = leased.seq OFFSET 0) AS one (t)
    WHERE c.app = _app AND c.session = _session AND (one.t).settled_fence < c.fence
    ORDER BY c.fence, c.chore, (one.t).due - (one.t).boost, leased.seq;
END $$;
CREATE FUNCTION release_session_v1(_app integer, _session text, _died boolean, _now double precision) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    _leased record;
    _task task;
    _released settlement;
    _woken text[] := '{}';
    _had_suspects boolean := EXISTS (
        SELECT FROM leased_v1(_app, _session) AS h WHERE NOT h.chore AND is_suspect_v1(h.task));
BEGIN
    PERFORM FROM task WHERE seq = ANY (ARRAY(SELECT (h.task).seq FROM leased_v1(_app, _session) AS h))
    ORDER BY seq FOR NO KEY UPDATE;
    FOR _leased IN SELECT * FROM leased_v1(_app, _session) LOOP
        _task := _leased.task;
        _released.sources := _released.sources || _task.source::text;
        _released.lanes := _released.lanes || _task.lane::text;
        _released.newcomers := _released.newcomers || _task.seq;
        _released.suspect := coalesce(_released.suspect, false) OR is_suspect_v1(_task);
        PERFORM count_v1(_app, _task.source, CASE WHEN _leased.chore THEN _task.state ELSE 'running' END, -1);
        IF _leased.chore THEN
            PERFORM queue_chore_v1(_task, _now);
            CONTINUE;
        END IF;
        IF _died THEN
            _task.crashes := _task.crashes + (NOT _had_suspects OR is_suspect_v1(_task))::integer;
            _task.reason := CASE WHEN _task.crashes >= _task.max_crashes AND NOT _task.cancel_requested
                THEN 'crashed' ELSE 'crash' END;
            _task.started := _leased.at;
        END IF;
        _woken := _woken || requeue_v1(_task, NULL, _now);
    END LOOP;
    DELETE FROM claim WHERE app = _app AND session = _session;
    DELETE FROM session WHERE app = _app AND name = _session;
    PERFORM end_subscriber_v1(_app, _session);
    _released.lanes := nullif(array_remove(ARRAY(SELECT DISTINCT unnest(_released.lanes)), NULL), '{}');
    RETURN _woken || release_capacity_v1(_app, _released, _now, false);
END $$;
CREATE FUNCTION reap_session_v1(_app integer, _session text, _now double precision) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dead_session (app, name) VALUES (_app, _session) ON CONFLICT DO NOTHING;
    RETURN release_session_v1(_app, _session, true, _now);
END $$;
CREATE FUNCTION reap_overdue_v1(_app integer, _now double precision) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    _name text;
    _seqs bigint[];
    _woken text[] := '{}';
BEGIN
    FOR _name IN
        SELECT name FROM session WHERE app = _app AND until <= _now ORDER BY name FOR UPDATE SKIP LOCKED
    LOOP
        _seqs := ARRAY(SELECT (h.task).seq FROM leased_v1(_app, _name) AS h);
        IF (SELECT count(*) FROM (
            SELECT FROM task WHERE seq = ANY (_seqs) ORDER BY seq FOR NO KEY UPDATE SKIP LOCKED
        ) AS free) = cardinality(_seqs) THEN
            _woken := _woken || reap_session_v1(_app, _name, _now);
        END IF;
    END LOOP;
    RETURN _woken;
END $$;
CREATE FUNCTION open_session_v1(_app integer, _session text, _info bytea, _until double precision, _renew_info boolean)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    _written boolean;
BEGIN
    INSERT INTO session AS s
    SELECT _app, _session, 'worker', _info, _until
    WHERE NOT EXISTS (SELECT FROM dead_session WHERE app = _app AND name = _session)
    ON CONFLICT (app, name) DO UPDATE SET until = excluded.until,
        role = CASE WHEN _renew_info THEN excluded.role ELSE s.role END,
        info = CASE WHEN _renew_info THEN excluded.info ELSE s.info END;
    _written := FOUND;
    IF NOT EXISTS (SELECT FROM dead_session WHERE app = _app AND name = _session) THEN
        RETURN true;
    END IF;
    IF _written THEN
        DELETE FROM session WHERE app = _app AND name = _session;
    END IF;
    RETURN false;
END $$;
CREATE FUNCTION open_client_v1(_app integer, _session text, _now double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session VALUES (_app, _session, 'client', '', _now + 10000)
    ON CONFLICT (app, name) DO UPDATE SET until = excluded.until WHERE session.role = 'client';
END $$;
CREATE FUNCTION subscribe_v1(_request json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _session text := _request ->> 'session';
BEGIN
    PERFORM open_client_v1(_app, _session, now_v1((_request ->> 'now')::double precision));
    INSERT INTO subscription
    SELECT _app, live.uuid, _session FROM (
        SELECT u.uuid FROM (SELECT DISTINCT json_array_elements_text(_request -> 'uuids') AS uuid) AS u
        WHERE EXISTS (
            SELECT FROM task AS t WHERE t.uuid = u.uuid AND t.app = _app AND t.ended IS NULL OFFSET 0
        ) AND NOT EXISTS (
            SELECT FROM subscription AS s WHERE s.app = _app AND s.uuid = u.uuid AND s.session = _session OFFSET 0)
        LIMIT greatest(0, 10000 - (SELECT count(*) FROM subscription WHERE app = _app AND session = _session))
    ) AS live ORDER BY live.uuid ON CONFLICT DO NOTHING;
END $$;
CREATE FUNCTION heartbeat_v1(_request json, OUT alive boolean, OUT cancel_requests json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _until double precision := _now + (_request ->> 'lease')::double precision;
BEGIN
    alive := open_session_v1(_app, _session, decode(_request ->> 'info', 'base64'), _until, true);
    IF alive THEN
        SELECT json_agg(json_build_array((h.task).uuid, h.fence)) INTO cancel_requests
        FROM leased_v1(_app, _session) AS h WHERE NOT h.chore AND (h.task).cancel_requested;
    END IF;
END $$;
CREATE FUNCTION close_session_v1(_request json, OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _woken text[];
BEGIN
    IF (_request ->> 'crashed')::boolean THEN
        IF NOT open_session_v1(_app, _session, '', _now, false) THEN
            RETURN;
        END IF;
        PERFORM FROM session WHERE app = _app AND name = _session FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            INSERT INTO dead_session (app, name) VALUES (_app, _session) ON CONFLICT DO NOTHING;
            RETURN;
        END IF;
        _woken := reap_session_v1(_app, _session, _now);
    ELSE
        PERFORM FROM session WHERE app = _app AND name = _session FOR UPDATE;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        _woken := release_session_v1(_app, _session, false, _now);
    END IF;
    notification := json_build_object('sources', _woken, 'recheck', true);
END $$;
CREATE FUNCTION turn_v1(
    _request json, _outcomes json, _tasks json, OUT verdicts text[], OUT alive boolean, OUT fence bigint,
    OUT number integer, OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[], OUT lanes text[],
    OUT unique_keys text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[], OUT states text[],
    OUT histories text[], OUT links json[], OUT schedules json, OUT idle json, OUT woken text[],
    OUT next_in double precision, OUT more boolean, OUT moment double precision, OUT data_set text,
    OUT last_fence bigint, OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _claim_request json := CASE WHEN json_typeof(_request -> 'claim') = 'object' THEN _request -> 'claim' END;
    _settled record;
    _last_number bigint;
    _claimed record;
    _recheck boolean;
BEGIN
    moment := _now;
    IF _claim_request IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(_session, _app));
        PERFORM keep_limits_v1(_app);
    END IF;
    PERFORM FROM session WHERE app = _app AND name = _session FOR KEY SHARE;
    SELECT * INTO _settled FROM settle_v1(
        _app, _outcomes, (_request ->> 'number')::integer, _tasks, (_request ->> 'in_parts')::boolean,
        ARRAY(SELECT json_array_elements_text(_request -> 'sessions')), _request ->> 'order', _now, false)
    WHERE _outcomes IS NOT NULL;
    verdicts := _settled.verdicts;
    woken := coalesce(_settled.woken, '{}');
    IF _claim_request IS NOT NULL THEN
        woken := woken || reap_overdue_v1(_app, _now);
    END IF;
    SELECT s.claim_number INTO _last_number FROM session AS s
    WHERE s.app = _app AND s.name = _session AND s.role = 'worker';
    alive := FOUND;
    IF alive AND _claim_request IS NOT NULL THEN
        SELECT * INTO _claimed FROM claim_v1(_app, _session, _claim_request, _last_number, _now);
        fence := _claimed.fence;
        number := cardinality(_claimed.tasks);
        schedules := _claimed.schedules;
        idle := _claimed.idle;
        next_in := _claimed.next_in;
        more := _claimed.more;
        woken := woken || _claimed.woken;
        SELECT r.uuids, r.sources, r.bodies, r.policies, r.lanes, r.unique_keys, r.dues, r.seqs, r.addeds, r.states,
            r.histories, r.links
        INTO uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories, links
        FROM records_v1(_claimed.tasks || _claimed.chores) AS r;
        SELECT i.data_set, i.last_fence INTO data_set, last_fence FROM identity_v1(_app) AS i;
        UPDATE session AS s SET claim_number = (_claim_request ->> 'number')::bigint
        WHERE s.app = _app AND s.name = _session AND s.claim_number < (_claim_request ->> 'number')::bigint;
    ELSIF _settled.raised IS NOT NULL THEN
        _recheck := nullif(is_wait_over_v1(_app, _settled.raised), false);
    END IF;
    woken := ARRAY(SELECT DISTINCT source FROM unnest(woken) AS source);
    notification := json_strip_nulls(json_build_object('sources', woken, 'ended', _settled.ended, 'recheck', _recheck));
END $$;
CREATE FUNCTION mark_cancelled_v1(_app integer, _uuid text, OUT seq bigint, OUT holder text) LANGUAGE plpgsql AS $$
DECLARE
    _task task;
BEGIN
    FOR _ IN 1 .. 20 LOOP
        SELECT p.seq INTO seq FROM task AS t JOIN place AS p ON p.seq = t.seq
        WHERE t.app = _app AND t.uuid = _uuid FOR UPDATE OF p;
        EXIT WHEN FOUND;
        UPDATE task AS t SET cancel_requested = true WHERE t.app = _app AND t.uuid = _uuid AND t.ended IS NULL
        RETURNING * INTO _task;
        EXIT WHEN NOT FOUND;
        SELECT c.session INTO holder FROM claim AS c WHERE c.app = _app AND c.source = _task.source
            AND c.fence > _task.settled_fence AND _task.seq = ANY (c.seqs);
        EXIT WHEN FOUND;
    END LOOP;
END $$;
CREATE FUNCTION cancel_v1(
    _request json, OUT fence bigint, OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[],
    OUT lanes text[], OUT unique_keys text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[],
    OUT states text[], OUT histories text[], OUT links json[], OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _uuids text[] := ARRAY(SELECT json_array_elements_text(_request -> 'uuids'));
    _uuid text;
    _marked record;
    _pending bigint[] := '{}';
    _holders json[] := '{}';
    _woken text[];
BEGIN
    PERFORM open_client_v1(_app, _session, _now);
    PERFORM FROM session WHERE app = _app AND name = _session FOR KEY SHARE;
    FOR _uuid IN SELECT DISTINCT uuid FROM unnest(_uuids) AS uuid ORDER BY uuid LOOP
        SELECT * INTO _marked FROM mark_cancelled_v1(_app, _uuid);
        _pending := _pending || _marked.seq;
        IF _marked.holder IS NOT NULL THEN
            _holders := _holders || json_build_array(_marked.holder, _uuid);
        END IF;
    END LOOP;
    SELECT p.fence, p.woken, r.uuids, r.sources, r.bodies, r.policies, r.lanes, r.unique_keys, r.dues, r.seqs,
        r.addeds, r.states, r.histories, r.links
    INTO fence, _woken, uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories,
        links
    FROM lease_pending_v1(_app, _session, _pending, _uuids, 'cancel', _now) AS p
    CROSS JOIN LATERAL records_v1(p.seqs) AS r;
    notification := json_build_object('sources', _woken, 'cancel_requests', _holders);
END $$;
CREATE FUNCTION revive_v1(_request json, OUT live text[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _uuid text;
    _task task;
    _wait json;
    _waiting bigint[] := '{}';
    _lowered text[] := '{}';
    _woken text[] := '{}';
BEGIN
    live := '{}';
    FOR _uuid IN SELECT uuid FROM json_array_elements_text(_request -> 'uuids') AS uuid LOOP
        SELECT * INTO _task FROM task WHERE app = _app AND uuid = _uuid FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND OR _task.state = 'succeeded';
        IF _task.ended IS NULL THEN
            live := live || _uuid;
            CONTINUE;
        END IF;
        CONTINUE WHEN NOT retake_key_v1(_task, _now);
        PERFORM count_v1(_app, _task.source, _task.state, -1);
        _task.earlier := _task.earlier + 1 + _task.retries + _task.crashes;
        _task.retries := 0;
        _task.crashes := 0;
        _task.reason := 'due';
        _task.cancel_requested := false;
        _task.ended := NULL;
        _task.keep_until := NULL;
        _task.error := NULL;
        _task.result := NULL;
        _task.result_until := NULL;
        _task.due := floor(_now);
        _wait := CASE WHEN _task.started IS NULL THEN _task.links -> 'waits' END;
        _task.wait_until := times_out_v1(_wait, _now);
        PERFORM enter_v1(_task, next_place_v1(
            'due', false, _task.due, _task.lane, _now, false, _wait IS NOT NULL), _now);
        IF _wait IS NOT NULL THEN
            _waiting := _waiting || _task.seq;
        END IF;
        _lowered := _lowered || _task.increments;
        live := live || _uuid;
        _woken := _woken || _task.source;
    END LOOP;
    INSERT INTO counter_delta
    SELECT _app, stripe_v1(name), name, -count(*), -count(*), floor(_now) FROM unnest(_lowered) AS name GROUP BY name;
    IF _waiting <> '{}' THEN
        PERFORM begin_waits_v1(_app, _waiting, _now);
    END IF;
    notification := json_build_object('sources', _woken);
END $$;
CREATE FUNCTION lift_v1(
    _request json, OUT fence bigint, OUT uuids text[], OUT sources text[], OUT bodies bytea[], OUT policies text[],
    OUT lanes text[], OUT unique_keys text[], OUT dues bigint[], OUT seqs bigint[], OUT addeds bigint[],
    OUT states text[], OUT histories text[], OUT links json[], OUT notification json
) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _session text := _request ->> 'session';
    _uuids text[] := ARRAY(SELECT json_array_elements_text(_request -> 'uuids'));
    _pending bigint[];
    _reaped text[];
    _woken text[];
BEGIN
    PERFORM FROM session WHERE app = _app AND name = _session FOR NO KEY UPDATE;
    PERFORM FROM task AS t JOIN place AS p ON p.seq = t.seq
    WHERE t.app = _app AND t.uuid = ANY (_uuids) AND t.links IS NULL AND p.kind <> 'w'
    ORDER BY t.uuid FOR UPDATE OF p;
    _reaped := reap_overdue_v1(_app, _now);
    PERFORM open_client_v1(_app, _session, _now);
    _pending := ARRAY(SELECT p.seq FROM task AS t JOIN place AS p ON p.seq = t.seq
        WHERE t.app = _app AND t.uuid = ANY (_uuids) AND t.links IS NULL AND p.kind NOT IN ('c', 'w')
        FOR UPDATE OF p SKIP LOCKED);
    SELECT p.fence, p.woken, r.uuids, r.sources, r.bodies, r.policies, r.lanes, r.unique_keys, r.dues, r.seqs,
        r.addeds, r.states, r.histories, r.links
    INTO fence, _woken, uuids, sources, bodies, policies, lanes, unique_keys, dues, seqs, addeds, states, histories,
        links
    FROM lease_pending_v1(_app, _session, _pending, _uuids, 'lifted', _now) AS p
    CROSS JOIN LATERAL records_v1(p.seqs) AS r;
    notification := json_build_object('sources', _reaped || _woken);
END $$;
CREATE FUNCTION adopt_one_v1(_app integer, _copy json, _now double precision, OUT uuid text, OUT fresh boolean)
LANGUAGE plpgsql AS $$
DECLARE
    _task task;
    _existing task;
BEGIN
    uuid := _copy ->> 'uuid';
    fresh := false;
    SELECT * INTO _existing FROM task AS t WHERE t.app = _app AND t.uuid = _copy ->> 'uuid';
    IF FOUND AND NOT (_existing.ended IS NOT NULL AND _existing.reason = 'lifted'
        AND _existing.hops <= coalesce((_copy ->> 'hops')::integer, 0))
    THEN
        RETURN;
    END IF;
    IF _copy ->> 'unique_key' IS NOT NULL THEN
        PERFORM take_keys_v1(_app, json_build_array(_copy), '{}', _now);
        uuid := (SELECT k.uuid FROM unique_key AS k
            WHERE k.app = _app AND k.source = _copy ->> 'source' AND k.name = _copy ->> 'unique_key');
        IF uuid <> _copy ->> 'uuid' THEN
            RETURN;
        END IF;
    END IF;
    IF _existing.seq IS NOT NULL THEN
        PERFORM count_v1(_app, _existing.source, _existing.state, -1);
        DELETE FROM note WHERE seq = _existing.seq;
        DELETE FROM task WHERE seq = _existing.seq;
    END IF;
    INSERT INTO task AS t (
        seq, app, uuid, source, lane, unique_key, due, added, boost, cost, expires, max_crashes, unique_for, reply_to,
        policy, body, state, reason, retries, crashes, earlier, started, error, hops
    )
    SELECT nextval('seq'), _app, c.uuid, source, lane, unique_key, at, coalesce(added, 0), coalesce(boost, 0),
        coalesce(cost, 1), expires, coalesce(max_crashes, 3), unique_for, reply_to, coalesce(policy, '{}'),
        decode(body, 'base64'), 'scheduled', 'lifted', coalesce(retries, 0), coalesce(crashes, 0),
        coalesce(earlier, 0), started, decode(error, 'base64'), coalesce(hops, 0) + 1
    FROM json_to_record(_copy) AS c (
        uuid text, source text, lane text, unique_key text, at bigint, added bigint, boost bigint,
        cost double precision, expires bigint, max_crashes integer, unique_for bigint, reply_to text, policy text,
        body text, retries integer, crashes integer, earlier integer, started bigint, error text, hops integer)
    ON CONFLICT DO NOTHING RETURNING * INTO _task;
    fresh := FOUND;
    IF fresh THEN
        PERFORM enter_v1(_task, next_place_v1('lifted', false, _task.due, _task.lane, _now, false), _now);
    END IF;
END $$;
CREATE FUNCTION adopt_v1(_request json, OUT uuids text[], OUT fresh boolean[]) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _copy json;
    _adopted record;
BEGIN
    uuids := '{}';
    fresh := '{}';
    PERFORM lock_keys_v1(_app, _request -> 'records');
    PERFORM FROM task WHERE app = _app AND ended IS NOT NULL AND reason = 'lifted' AND uuid = ANY (ARRAY(
        SELECT r.uuid FROM json_to_recordset(_request -> 'records') AS r (uuid text))) ORDER BY seq FOR UPDATE;
    FOR _copy IN SELECT value FROM json_array_elements(_request -> 'records') LOOP
        SELECT * INTO _adopted FROM adopt_one_v1(_app, _copy, _now);
        uuids := uuids || _adopted.uuid;
        fresh := fresh || _adopted.fresh;
    END LOOP;
    PERFORM unlock_keys_v1(_app, _request -> 'records');
END $$;
CREATE FUNCTION note_v1(_request json, OUT lost integer[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _note record;
    _seq bigint;
    _streams text[] := '{}';
BEGIN
    lost := '{}';
    FOR _note IN
        SELECT * FROM ROWS FROM (json_to_recordset(_request -> 'notes') AS (
            uuid text, fence bigint, session text, kind text, name text, data text)) WITH ORDINALITY
    LOOP
        SELECT t.seq INTO _seq FROM task AS t JOIN claim AS c ON c.fence = _note.fence AND c.app = _app
            AND c.session = _note.session AND t.seq = ANY (c.seqs) AND t.settled_fence < c.fence
        WHERE t.app = _app AND t.uuid = _note.uuid;
        IF NOT FOUND THEN
            lost := lost || _note.ordinality::integer;
            CONTINUE;
        END IF;
        DELETE FROM note WHERE seq = _seq AND kind = _note.kind AND name = _note.name AND kind = 'progress';
        INSERT INTO note (seq, kind, name, data, fence, session) VALUES (
            _seq, _note.kind, _note.name, decode(_note.data, 'base64'), _note.fence, _note.session)
        ON CONFLICT DO NOTHING;
        IF _note.kind = 'item' THEN
            _streams := _streams || _note.uuid;
        END IF;
    END LOOP;
    IF _streams <> '{}' THEN
        notification := json_strip_nulls(json_build_object('new_items', subscribers_v1(_app, _streams)));
    END IF;
END $$;
CREATE FUNCTION lock_stripes_v1(_app integer, _names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _stripe integer;
BEGIN
    FOR _stripe IN SELECT DISTINCT stripe_v1(name) FROM unnest(_names) AS name ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(1869897846, _app * 64 + _stripe);
    END LOOP;
END $$;
CREATE FUNCTION refuse_surplus_v1(_app integer, _names text[], _now double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _full text := (
        SELECT n.name FROM unnest(_names) AS n (name) CROSS JOIN LATERAL (
            SELECT count(*) AS number FROM signal WHERE app = _app AND name = n.name AND until > _now) AS kept
        WHERE kept.number > 1000 LIMIT 1);
BEGIN
    IF _full IS NOT NULL THEN
        RAISE EXCEPTION 'too many signals are kept under one name' USING ERRCODE = 'OTD02', DETAIL = _full;
    END IF;
END $$;
CREATE FUNCTION append_signals_v1(_app integer, _signals json, _now double precision) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    _positions bigint[];
BEGIN
    WITH given AS (
        SELECT DISTINCT ON (g.name, g.id) g.* FROM ROWS FROM (json_to_recordset(_signals) AS (
            name text, id text, payload text, keep bigint)) WITH ORDINALITY AS g (name, id, payload, keep, nth)
        ORDER BY g.name, g.id, g.nth
    ), fresh AS MATERIALIZED (
        SELECT g.*, greatest(floor(_now)::bigint, coalesce(c.value, 0) + 1)
            + row_number() OVER (PARTITION BY g.name ORDER BY g.nth) - 1 AS number
        FROM given AS g
        LEFT JOIN LATERAL (SELECT value FROM counter WHERE app = _app AND name = g.name OFFSET 0) AS c ON true
        WHERE NOT EXISTS (
            SELECT FROM signal AS s WHERE s.app = _app AND s.name = g.name AND s.id = g.id AND s.until > _now OFFSET 0)
    ), stored AS (
        INSERT INTO signal SELECT _app, name, number, id, decode(payload, 'base64'), floor(_now)::bigint + keep
        FROM fresh ORDER BY nth
        ON CONFLICT (app, name, id) DO UPDATE SET number = excluded.number, payload = excluded.payload,
            until = excluded.until
    ), raised AS (
        INSERT INTO counter SELECT _app, name, max(number), 0, floor(_now) + 2592000000 FROM fresh GROUP BY name
        ON CONFLICT (app, name) DO UPDATE SET value = excluded.value, failed = 0, until = excluded.until
    )
    SELECT coalesce(array_agg(nth), '{}') INTO _positions FROM fresh;
    RETURN _positions;
END $$;
CREATE FUNCTION signal_v1(_request json, OUT answers boolean[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _signals json := _request -> 'signals';
    _names text[] := ARRAY(SELECT DISTINCT s.name FROM json_to_recordset(_signals) AS s (name text));
    _new bigint[];
BEGIN
    PERFORM lock_stripes_v1(_app, _names);
    PERFORM add_deltas_v1(_app, _names);
    _new := append_signals_v1(_app, _signals, _now);
    PERFORM refuse_surplus_v1(_app, _names, _now);
    PERFORM mark_dirty_v1(_app, _names, _now);
    answers := ARRAY(SELECT nth = ANY (_new) FROM generate_series(1, json_array_length(_signals)) AS nth);
    IF is_wait_over_v1(_app, _names) THEN
        notification := json_build_object('recheck', true);
    END IF;
END $$;
CREATE FUNCTION drop_retained_v1(_retention retention, _most bigint, _now double precision) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    _retained bigint[];
    _deleted bigint[];
    _kept bigint[];
    _next_day bigint := floor(_now) + 86400000;
BEGIN
    _retained := ARRAY(SELECT seq FROM task WHERE seq = ANY (_retention.seqs) AND keep_until = _retention.until
        AND ended = _retention.ended ORDER BY seq FOR UPDATE SKIP LOCKED);
    _kept := ARRAY(SELECT t.seq FROM task AS t WHERE t.seq = ANY (_retained) AND t.flow IS NOT NULL AND EXISTS (
        SELECT FROM task AS last WHERE last.uuid = t.flow AND last.app = t.app AND last.ended IS NULL OFFSET 0));
    IF _kept <> '{}' THEN
        UPDATE task SET keep_until = _next_day WHERE seq = ANY (_kept);
        INSERT INTO retention (app, what, until, ended, seqs)
        VALUES (_retention.app, 'task', _next_day, _retention.ended, _kept);
        _retained := ARRAY(SELECT seq FROM unnest(_retained) AS seq WHERE seq <> ALL (_kept));
    END IF;
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
    PERFORM purge_subscriptions_v1(_app);
END $$;
CREATE FUNCTION purge_counters_v1(_app integer, _limit bigint, _now double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _names text[];
BEGIN
    IF EXISTS (SELECT FROM counter_delta WHERE app = _app) THEN
        _names := (collect_deltas_v1(_app)).names;
        PERFORM mark_dirty_v1(_app, _names, _now);
    END IF;
    _names := ARRAY(SELECT old.name FROM (
            SELECT name FROM counter WHERE app = _app AND until <= floor(_now)::bigint ORDER BY until LIMIT _limit
        ) AS old WHERE pg_try_advisory_xact_lock(1869897846, _app * 64 + stripe_v1(old.name)));
    _names := ARRAY(SELECT n.name FROM unnest(_names) AS n (name) WHERE NOT EXISTS (SELECT FROM counter_delta AS d
        WHERE d.app = _app AND d.stripe = stripe_v1(n.name) AND d.name = n.name OFFSET 0));
    UPDATE counter AS c SET until = floor(_now) + 2592000000
    WHERE c.app = _app AND c.name = ANY (_names) AND EXISTS (
        SELECT FROM waiter AS w WHERE w.app = _app AND w.name = c.name OFFSET 0);
    DELETE FROM counter WHERE app = _app AND name = ANY (_names) AND until <= floor(_now)::bigint;
END $$;
CREATE FUNCTION purge_signals_v1(_app integer, _limit bigint, _now double precision) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM signal WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM signal WHERE app = _app AND until <= floor(_now)::bigint ORDER BY until LIMIT _limit
        FOR UPDATE SKIP LOCKED));
END $$;
CREATE FUNCTION purge_v1(_request json, OUT deleted bigint) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _now double precision := now_v1((_request ->> 'now')::double precision);
    _limit bigint := (_request ->> 'limit')::bigint;
    _excess bigint;
    _dropped bigint;
    _retention retention;
    _last bigint := (SELECT max(number) FROM retention);
BEGIN
    deleted := 0;
    WHILE deleted < _limit LOOP
        SELECT * INTO _retention FROM retention WHERE app = _app AND what = 'task' AND until <= floor(_now)::bigint
        ORDER BY until, number LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        deleted := deleted + drop_retained_v1(_retention, _limit - deleted, _now);
    END LOOP;
    SELECT coalesce(sum(number), 0) - (_request ->> 'most')::bigint INTO _excess FROM tally
    WHERE app = _app AND state IN ('succeeded', 'failed', 'cancelled');
    WHILE deleted < _limit AND _excess > 0 LOOP
        SELECT * INTO _retention FROM retention WHERE app = _app AND what = 'task' AND number <= _last
        ORDER BY ended, number LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        _dropped := drop_retained_v1(_retention, least(_limit - deleted, _excess), _now);
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
    PERFORM purge_signals_v1(_app, _limit, _now);
    PERFORM lock_limits_v1(_app);
    PERFORM purge_counters_v1(_app, _limit, _now);
    PERFORM purge_leftovers_v1(_app, _now);
END $$;
DO $$
DECLARE
    _verb regprocedure;
BEGIN
    FOR _verb IN SELECT oid FROM pg_proc WHERE pronamespace = 'onthedot'::regnamespace
        AND proargnames[1] = '_request' AND proargtypes[0] = 'json'::regtype
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = onthedot SET lock_timeout = ''4s''
            SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
            SET jit = off', _verb);
    END LOOP;
END $$;
