-- Grants for a role that may work with tasks and do nothing else. The owner of the schema onthedot runs this, and again
-- after every upgrade. The verbs act with the rights of their owner; the role itself reads our tables and writes none.
--
--     CREATE ROLE {role} LOGIN PASSWORD '…';

BEGIN;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onthedot FROM PUBLIC;
REVOKE ALL ON SCHEMA onthedot FROM {role};
REVOKE ALL ON ALL TABLES IN SCHEMA onthedot FROM {role};
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onthedot FROM {role};
GRANT USAGE ON SCHEMA onthedot TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA onthedot TO {role};

DO $grants$
DECLARE
    _function record;
BEGIN
    FOR _function IN
        SELECT p.oid::regprocedure AS named, p.proname = ANY (ARRAY[{verbs}]) AS is_verb
        FROM pg_proc AS p
        WHERE p.pronamespace = 'onthedot'::regnamespace AND p.proname = ANY (ARRAY[{verbs}, {readers}])
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {role}', _function.named);
        CONTINUE WHEN NOT _function.is_verb;
        -- pg_temp last: a temporary table of the role must not shadow ours.
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = onthedot, pg_temp', _function.named);
    END LOOP;
END $grants$;

COMMIT;
