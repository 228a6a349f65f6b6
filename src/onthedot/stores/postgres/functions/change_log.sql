-- Tallies and the change feed. Both only grow by inserts, so no call waits for the row of another.

-- name: count_v1
-- Add to the tally of a source and state; `purge` sums the rows up.
CREATE FUNCTION count_v1(_app integer, _source text, _state text, _by bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tally VALUES (_app, _source, _state, _by);
END $$;

-- name: log_transitions_v1
-- Write transitions of tasks to one state into the change feed. sources: one per task.
CREATE FUNCTION log_transitions_v1(
    _app integer, _now double precision, _state text, _seqs bigint[], _sources text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO change (app, call, at, state, seqs, source, number)
    SELECT _app, pg_current_xact_id()::text::bigint, floor(_now), _state, array_agg(t.seq ORDER BY t.nth), t.source,
        count(*)
    FROM unnest(_seqs, _sources) WITH ORDINALITY AS t (seq, source, nth) GROUP BY t.source;
END $$;
