-- The rights of a role that may work with tasks and nothing else. To be run by the owner of the schema onthedot, and again
-- after every upgrade of it. The verbs act with the rights of their owner; the role itself writes no table, and reads ours.
--
--     CREATE ROLE {role} LOGIN PASSWORD '…';

BEGIN;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onthedot FROM PUBLIC;
REVOKE ALL ON SCHEMA onthedot FROM {role};
REVOKE ALL ON ALL TABLES IN SCHEMA onthedot FROM {role};
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onthedot FROM {role};
GRANT USAGE ON SCHEMA onthedot TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA onthedot TO {role};

DO $rights$
DECLARE
    _one record;
BEGIN
    FOR _one IN
        SELECT p.oid::regprocedure AS named, p.proname = ANY (ARRAY[{verbs}]) AS writes FROM pg_proc AS p
        WHERE p.pronamespace = 'onthedot'::regnamespace AND p.proname = ANY (ARRAY[{verbs}, {readers}])
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {role}', _one.named);
        CONTINUE WHEN NOT _one.writes;
        -- What the role could put in their way, a table of its own session, is looked for last.
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = onthedot, pg_temp', _one.named);
    END LOOP;
END $rights$;

COMMIT;
