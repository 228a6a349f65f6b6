-- Series. The revision of a deleted entry is never given again.
CREATE TABLE onthedot.series_entry (
    app integer, series onthedot.label, at bigint, writer onthedot.label, data bytea NOT NULL,
    revision bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (app, series, at, writer)
);
