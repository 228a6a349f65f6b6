-- The journal: notes that a run writes under its lease.

-- name: note_v1
-- {"app", "notes": […]} → the positions of notes whose lease is lost. Of progress the last note is kept, of others the
-- first. Subscribers hear of items.
CREATE FUNCTION note_v1(_request json, OUT lost integer[], OUT notification json) LANGUAGE plpgsql AS $$
DECLARE
    _app integer := app_v1(_request ->> 'app');
    _note record;
    _seq bigint;
    _streams text[] := '{}';
BEGIN
    lost := '{}';
    FOR _note IN
        SELECT * FROM ROWS FROM (json_to_recordset(_request -> 'notes') AS (
            uuid text, fence bigint, session text, kind text, name text, data text)) WITH ORDINALITY
    LOOP
        SELECT t.seq INTO _seq FROM task AS t JOIN claim AS c ON c.fence = _note.fence AND c.app = _app
            AND c.session = _note.session AND t.seq = ANY (c.seqs) AND t.settled_fence < c.fence
        WHERE t.app = _app AND t.uuid = _note.uuid;
        IF NOT FOUND THEN
            lost := lost || _note.ordinality::integer;
            CONTINUE;
        END IF;
        DELETE FROM note WHERE seq = _seq AND kind = _note.kind AND name = _note.name AND kind = 'progress';
        INSERT INTO note (seq, kind, name, data, fence, session) VALUES (
            _seq, _note.kind, _note.name, decode(_note.data, 'base64'), _note.fence, _note.session)
        ON CONFLICT DO NOTHING;
        IF _note.kind = 'item' THEN
            _streams := _streams || _note.uuid;
        END IF;
    END LOOP;
    IF _streams <> '{}' THEN
        notification := json_strip_nulls(json_build_object('new_items', subscribers_v1(_app, _streams)));
    END IF;
END $$;
