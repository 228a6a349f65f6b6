-- Verbs are the functions that clients call, with one JSON request. Each sets the search path, a lock timeout and which
-- plans are allowed, for itself and for the functions that it calls. One that was granted to a role acts with the rights
-- of its owner (grants.sql); an upgrade, which replaces it, resets that.
DO $$
DECLARE
    _verb regprocedure;
BEGIN
    FOR _verb IN SELECT oid FROM pg_proc WHERE pronamespace = 'onthedot'::regnamespace
        AND proargnames[1] = '_request' AND proargtypes[0] = 'json'::regtype
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = onthedot SET lock_timeout = ''4s''
            SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
            SET jit = off', _verb);
    END LOOP;
    FOR _verb IN SELECT p.oid FROM pg_proc AS p WHERE p.pronamespace = 'onthedot'::regnamespace
        AND (p.proargnames[1] = '_request' OR p.proname = 'app_v1')
        AND EXISTS (SELECT FROM aclexplode(p.proacl) AS a WHERE a.grantee NOT IN (0, p.proowner))
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = onthedot, pg_temp', _verb);
    END LOOP;
END $$;
