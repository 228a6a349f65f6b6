-- Indexes of the lists of `find`, added by version 4. No plain task is in one of them; ended tasks are in rows per call.

CREATE INDEX retention_state ON retention (app, state, ended) WHERE state IS NOT NULL;
CREATE INDEX retention_source ON retention (app, state, source, ended) WHERE state IS NOT NULL;
CREATE INDEX place_lifted ON place (app, seq) WHERE kind = 'l';
CREATE INDEX place_waiting ON place (app, seq) WHERE kind = 'w';
CREATE INDEX place_parked_rank ON place (app, rank, seq) WHERE kind = 'p';
