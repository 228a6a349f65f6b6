-- Series.

-- name: write_series_v1
-- {"app", "replaces": [{"series", "at", "writer", "revision"}], "entries": [{"series", "at", "writer", "data"}]} →
-- whether it was written: each replaced entry still had its revision. One call of an app at a time, since an entry that
-- must not exist cannot be locked.
CREATE FUNCTION write_series_v1(_request json, OUT written boolean) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
BEGIN
    PERFORM pg_advisory_xact_lock(1869897847, _app);
    written := NOT EXISTS (
        SELECT FROM json_to_recordset(_request -> 'replaces')
            AS r (series text, at bigint, writer text, revision bigint)
        WHERE r.revision <> coalesce((SELECT e.revision FROM series_entry AS e
            WHERE e.app = _app AND e.series = r.series AND e.at = r.at AND e.writer = r.writer), 0));
    IF NOT written THEN
        RETURN;
    END IF;
    DELETE FROM series_entry AS e
    USING json_to_recordset(_request -> 'replaces') AS r (series text, at bigint, writer text)
    WHERE e.app = _app AND e.series = r.series AND e.at = r.at AND e.writer = r.writer;
    INSERT INTO series_entry AS e (app, series, at, writer, data)
    SELECT DISTINCT ON (n.series, n.at, n.writer) _app, n.series, n.at, n.writer, decode(n.data, 'base64')
    FROM ROWS FROM (json_to_recordset(_request -> 'entries') AS (series text, at bigint, writer text, data text))
        WITH ORDINALITY AS n (series, at, writer, data, nth)
    ORDER BY n.series, n.at, n.writer, n.nth DESC
    ON CONFLICT (app, series, at, writer) DO UPDATE SET data = excluded.data, revision = DEFAULT;
END $$;

-- name: purge_series_v1
-- Delete up to `limit` entries of each series that are older than its retention, or beyond its number.
CREATE FUNCTION purge_series_v1(_app integer, _rules json, _limit bigint, _now double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _rule record;
BEGIN
    FOR _rule IN SELECT * FROM json_to_recordset(_rules) AS r (name text, keep bigint, most bigint) LOOP
        DELETE FROM series_entry WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM series_entry WHERE app = _app AND series = _rule.name
                AND at < floor(_now)::bigint - _rule.keep
            ORDER BY at, writer LIMIT _limit FOR UPDATE SKIP LOCKED));
        CONTINUE WHEN _rule.most IS NULL;
        DELETE FROM series_entry WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM series_entry WHERE app = _app AND series = _rule.name ORDER BY at, writer
            LIMIT least(_limit, greatest(0, (SELECT count(*) FROM series_entry WHERE app = _app
                AND series = _rule.name) - _rule.most)) FOR UPDATE SKIP LOCKED));
    END LOOP;
END $$;
