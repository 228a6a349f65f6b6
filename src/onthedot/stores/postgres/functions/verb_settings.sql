-- The verbs: what the outside calls, with all it has to say as JSON. Each sets the search path, how long it waits and what
-- plans may not do; helpers are inside.
DO $$
DECLARE
    _verb regprocedure;
BEGIN
    FOR _verb IN SELECT oid FROM pg_proc WHERE pronamespace = 'onthedot'::regnamespace
        AND proargnames[1] = '_request' AND proargtypes[0] = 'json'::regtype
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = onthedot SET lock_timeout = ''4s''
            SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off',
            _verb);
    END LOOP;
END $$;
