-- Tallies and the change feed. Both only grow by inserts, so no call waits for the row of another.

-- name: count_v1
-- Add to the tally of a source and state; `purge` sums the rows up.
CREATE FUNCTION count_v1(_app integer, _source text, _state text, _by bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tally VALUES (_app, _source, _state, _by);
END $$;

-- name: log_transitions_v1
-- Write transitions of tasks to one state into the change feed.
CREATE FUNCTION log_transitions_v1(_app integer, _now double precision, _state text, _seqs bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO change VALUES (_app, pg_current_xact_id()::text::bigint, floor(_now), _state, _seqs);
END $$;
