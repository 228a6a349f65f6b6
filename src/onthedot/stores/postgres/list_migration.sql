-- From version 3 to 4: rows of ended tasks are split by source and state.

ALTER TABLE retention ADD COLUMN source label, ADD COLUMN state label;
INSERT INTO retention (app, what, until, ended, seqs, source, state)
SELECT r.app, r.what, r.until, r.ended, array_agg(t.seq ORDER BY t.seq), t.source, t.state
FROM retention AS r JOIN task AS t ON t.seq = ANY (r.seqs) AND t.ended = r.ended AND t.keep_until = r.until
WHERE r.what = 'task' GROUP BY r.number, t.source, t.state;
DELETE FROM retention WHERE what = 'task' AND state IS NULL;
