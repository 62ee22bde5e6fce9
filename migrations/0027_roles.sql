-- Orders are created, and people erased, with the rights of the functions' owner. So a producer in SQL needs no right but to
-- call one function, and no program needs a right to change the history (roles: deploy/postgres/roles.sql). Names are looked
-- up in this schema alone, whatever the caller's search_path says.
DO $$
DECLARE
    function regprocedure;
    grantee text;
BEGIN
    FOR function IN
        SELECT oid::regprocedure FROM pg_proc
        WHERE proname IN ('dispatchq_create_order', 'dispatchq_erase_order', 'dispatchq_erase_driver')
          AND pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', function);
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', function, current_schema());
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function);
        -- Roles that could create orders before can do so still; erasing people is left to those that could remove orders.
        FOR grantee IN
            SELECT DISTINCT g.grantee FROM information_schema.role_table_grants g
            WHERE g.table_schema = current_schema() AND g.table_name = 'orders' AND g.privilege_type = 'INSERT'
              AND g.grantee <> 'PUBLIC'
              AND (function::text LIKE '%dispatchq\_create\_order(%' OR has_table_privilege(g.grantee, 'orders', 'DELETE'))
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', function, grantee);
        END LOOP;
    END LOOP;
END $$;
