-- Indexes of the lists of `find`, added by version 4. No plain task is in one of them; ended tasks are in rows per call.

CREATE INDEX onthedot_retention_state ON onthedot_retention (app, state, ended) WHERE state IS NOT NULL;
CREATE INDEX onthedot_retention_source ON onthedot_retention (app, state, source, ended) WHERE state IS NOT NULL;
CREATE INDEX onthedot_history_unqueued ON onthedot_history (seq) WHERE ended IS NULL AND reason NOT IN ('due', 'crash');
CREATE INDEX onthedot_task_last_of_flow ON onthedot_task (app, seq) WHERE flow = uuid;
CREATE INDEX onthedot_parked_rank ON onthedot_parked (app, rank, seq);
CREATE INDEX onthedot_waiting_seq ON onthedot_waiting (app, seq);
