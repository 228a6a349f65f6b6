-- Counters, waiting tasks, signals and subscriptions.

-- name: any_dirty
SELECT 1 FROM onthedot_dirty_counter WHERE app = ? LIMIT 1;

-- name: dirty
SELECT name FROM onthedot_dirty_counter WHERE app = ? LIMIT ?;

-- name: mark_dirty
INSERT OR IGNORE INTO onthedot_dirty_counter VALUES (?, ?);

-- name: unmark_dirty
DELETE FROM onthedot_dirty_counter WHERE app = ? AND name = ?;

-- name: counter
SELECT value, failed FROM onthedot_counter WHERE app = ? AND name = ?;

-- name: raise_counter
INSERT INTO onthedot_counter VALUES (?, ?, ?, ?, ?) ON CONFLICT (app, name) DO UPDATE
SET value = value + excluded.value, failed = failed + excluded.failed, until = excluded.until RETURNING value;

-- name: set_counter
INSERT OR REPLACE INTO onthedot_counter (app, name, value, failed, until) VALUES (?, ?, ?, 0, ?);

-- name: drop_counters
DELETE FROM onthedot_counter WHERE (app, name) IN (
    SELECT app, name FROM onthedot_counter AS counter WHERE app = ? AND until <= ? AND NOT EXISTS (
        SELECT 1 FROM onthedot_waiting AS waiting WHERE waiting.app = counter.app AND waiting.name = counter.name
    ) LIMIT ?
);

-- name: drop_dirty
DELETE FROM onthedot_dirty_counter WHERE (app, name) IN (
    SELECT app, name FROM onthedot_dirty_counter AS dirty WHERE app = ? AND NOT EXISTS (
        SELECT 1 FROM onthedot_waiting AS waiting WHERE waiting.app = dirty.app AND waiting.name = dirty.name
    ) LIMIT ?
);

-- name: enter_waiting
INSERT OR IGNORE INTO onthedot_waiting SELECT ?, ?, ?, value FROM json_each(?);

-- name: leave_waiting
DELETE FROM onthedot_waiting
WHERE app = ? AND name = ? AND value = ? AND seq IN (SELECT value FROM json_each(?));

-- name: set_timeouts
INSERT INTO onthedot_alarm SELECT ?, ?, value FROM json_each(?);

-- name: clear_timeouts
DELETE FROM onthedot_alarm WHERE app = ? AND at = ? AND seq IN (SELECT value FROM json_each(?));

-- name: any_waiting
SELECT 1 FROM onthedot_waiting WHERE app = ? AND name = ? AND value <= ? LIMIT 1;

-- name: waiting
SELECT {record} FROM onthedot_waiting AS waiting CROSS JOIN onthedot_task AS task USING (seq)
LEFT JOIN onthedot_history AS history USING (seq)
WHERE waiting.app = ? AND waiting.name = ? AND waiting.value <= ? ORDER BY waiting.value, waiting.seq LIMIT ?;

-- name: has_signal
SELECT 1 FROM onthedot_signal WHERE app = ? AND name = ? AND id = ? AND until > ?;

-- name: count_signals
SELECT count(*) FROM onthedot_signal WHERE app = ? AND name = ? AND until > ?;

-- name: append_signal
INSERT OR REPLACE INTO onthedot_signal (app, name, number, id, payload, until) VALUES (?, ?, ?, ?, ?, ?);

-- name: drop_signals
DELETE FROM onthedot_signal WHERE (app, name, number) IN (
    SELECT app, name, number FROM onthedot_signal WHERE app = ? AND until <= ? LIMIT ?
);

-- name: subscribe
INSERT OR IGNORE INTO onthedot_subscription SELECT :app, :uuid, :session
WHERE (SELECT count(*) FROM onthedot_subscription WHERE app = :app AND session = :session) < :most;

-- name: subscribers
SELECT session FROM onthedot_subscription WHERE app = ? AND uuid = ?;

-- name: any_subscription
SELECT 1 FROM onthedot_subscription WHERE app = ? LIMIT 1;

-- name: end_subscriptions
DELETE FROM onthedot_subscription WHERE app = ? AND uuid IN (SELECT value FROM json_each(?)) RETURNING uuid, session;

-- name: drop_subscriptions
DELETE FROM onthedot_subscription WHERE app = ? AND session = ?;

-- name: signals
SELECT number, id, payload FROM onthedot_signal
WHERE app = ? AND name = ? AND number > ? AND until > ? ORDER BY number LIMIT ?;

-- name: signal_names
SELECT name FROM onthedot_signal WHERE app = ? AND until > ? ORDER BY until DESC LIMIT ?;

-- name: counters
SELECT name, value, failed FROM onthedot_counter WHERE app = ? AND name IN (SELECT value FROM json_each(?));
