-- Series. AUTOINCREMENT: the revision of a deleted entry is never given again.
CREATE TABLE onthedot_series (
    revision INTEGER PRIMARY KEY AUTOINCREMENT, app INTEGER NOT NULL, series TEXT NOT NULL, at INTEGER NOT NULL,
    writer TEXT NOT NULL, data BLOB NOT NULL, UNIQUE (app, series, at, writer)
);
