-- Series.

-- name: series_revision
SELECT revision FROM onthedot_series WHERE app = ? AND series = ? AND at = ? AND writer = ?;

-- name: delete_series_entry
DELETE FROM onthedot_series WHERE app = ? AND series = ? AND at = ? AND writer = ?;

-- name: put_series_entry
INSERT OR REPLACE INTO onthedot_series (app, series, at, writer, data) VALUES (?, ?, ?, ?, ?);

-- name: drop_older_entries
DELETE FROM onthedot_series WHERE revision IN (
    SELECT revision FROM onthedot_series WHERE app = ? AND series = ? AND at < ? ORDER BY at, writer LIMIT ?
);

-- name: drop_surplus_entries
DELETE FROM onthedot_series WHERE revision IN (
    SELECT revision FROM onthedot_series WHERE app = :app AND series = :series ORDER BY at, writer
    LIMIT min(:limit, max(0, (SELECT count(*) FROM onthedot_series WHERE app = :app AND series = :series) - :most))
);

-- name: read_series
SELECT series, at, writer, data, revision FROM onthedot_series
WHERE app = ? AND series = ? AND at BETWEEN ? AND ? ORDER BY at, writer LIMIT ?;

-- name: read_series_backwards
SELECT series, at, writer, data, revision FROM onthedot_series
WHERE app = ? AND series = ? AND at BETWEEN ? AND ? ORDER BY at DESC, writer DESC LIMIT ?;
