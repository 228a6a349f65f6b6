-- From version 3 to 4: rows of ended tasks are split by source and state.

ALTER TABLE onthedot_retention ADD COLUMN source INTEGER;
ALTER TABLE onthedot_retention ADD COLUMN state TEXT;
INSERT INTO onthedot_retention (app, what, until, ended, seqs, source, state)
SELECT retention.app, retention.what, retention.until, retention.ended, json_group_array(task.seq), task.source, history.state
FROM onthedot_retention AS retention, json_each(retention.seqs) AS wanted
JOIN onthedot_history AS history ON history.seq = wanted.value JOIN onthedot_task AS task ON task.seq = history.seq
WHERE retention.what IN ('task', 'member') AND history.ended = retention.ended AND history.keep_until = retention.until
GROUP BY retention.number, task.source, history.state;
DELETE FROM onthedot_retention WHERE what IN ('task', 'member') AND state IS NULL;
