-- What a login that only creates orders may say of them, and records that no program changes.

-- A. Orders created in SQL. A login without rights on the tables is named by the function, and names only its own producers.
CREATE TABLE sql_producers (
    login text NOT NULL CHECK (octet_length(login) BETWEEN 1 AND 63),
    owner text NOT NULL CHECK (octet_length(owner) BETWEEN 1 AND 256),
    PRIMARY KEY (login, owner)
);
COMMENT ON TABLE sql_producers IS 'which login of Postgres may create orders of which producer by dispatchq_create_order()';
COMMENT ON COLUMN sql_producers.owner IS 'name of the producer, as its API key has it';

-- The function so far keeps its body under another name. Only the one that checks the caller may call it.
DO $$
DECLARE
    checked regprocedure;
    inserting regprocedure;
    definition text;
    arguments text;
    passed text;
BEGIN
    SELECT p.oid::regprocedure, pg_get_functiondef(p.oid), pg_get_function_arguments(p.oid),
           (SELECT string_agg(format('%I => %s', name, CASE name WHEN 'actor' THEN 'recorded_actor' WHEN 'key_id' THEN 'recorded_key'
                                                     ELSE 'dispatchq_create_order.' || quote_ident(name) END),
                              ', ' ORDER BY place)
            FROM unnest(p.proargnames) WITH ORDINALITY AS named (name, place))
    INTO STRICT checked, definition, arguments, passed
    FROM pg_proc p WHERE p.proname = 'dispatchq_create_order' AND p.pronamespace = current_schema()::regnamespace;
    -- The body names its parameters by the name of the function.
    EXECUTE regexp_replace(definition, '\mdispatchq_create_order\M', 'dispatchq_insert_order', 'g');
    SELECT p.oid::regprocedure INTO STRICT inserting
    FROM pg_proc p WHERE p.proname = 'dispatchq_insert_order' AND p.pronamespace = current_schema()::regnamespace;
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', inserting);

    -- It keeps its rights.
    EXECUTE format($function$
        CREATE OR REPLACE FUNCTION dispatchq_create_order(%s) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $body$
        DECLARE
            recorded_actor text := dispatchq_create_order.actor;
            recorded_key uuid := dispatchq_create_order.key_id;
            named_owner text := coalesce(dispatchq_create_order.owner,
                                         substring(dispatchq_create_order.actor FROM '^producer:(.+)$'));
        BEGIN
            -- Programs of dispatchq write orders themselves, and say who asked them to.
            IF NOT has_table_privilege(session_user, 'orders', 'INSERT') THEN
                IF named_owner IS NOT NULL AND NOT EXISTS (
                    SELECT 1 FROM sql_producers p WHERE p.login = session_user AND p.owner = named_owner)
                THEN
                    RAISE EXCEPTION 'login %% may not create orders of producer %%', session_user, named_owner
                        USING ERRCODE = 'insufficient_privilege',
                              HINT = 'the owner of the schema allows it by a row of sql_producers (login, owner)';
                END IF;
                IF recorded_actor IS NULL OR recorded_actor !~ '^producer:.' THEN
                    recorded_actor := 'sql:' || session_user;
                END IF;
                recorded_key := NULL;
            END IF;
            RETURN dispatchq_insert_order(%s);
        END $body$ $function$, arguments, passed);
    EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', checked, current_schema());
END $$;

-- B. Records. deploy/postgres/roles.sql takes UPDATE and DELETE on these tables from every role; these functions do what is left.

-- Removes records of a table that are older than `age`, a day at least. Returns their ids.
CREATE FUNCTION dispatchq_remove_old_records(record_table text, ids bigint[], age interval) RETURNS SETOF bigint
    LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    cut_off timestamptz := dispatchq_now() - age;
BEGIN
    IF age IS NULL OR age < interval '1 day' THEN
        RAISE EXCEPTION 'records are kept for a day at least, not for %', age USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CASE record_table
        WHEN 'staff_actions' THEN
            RETURN QUERY DELETE FROM staff_actions r WHERE r.id = ANY (ids) AND r.at < cut_off RETURNING r.id;
        WHEN 'staff_requests' THEN
            RETURN QUERY DELETE FROM staff_requests r WHERE r.id = ANY (ids) AND r.at < cut_off RETURNING r.id;
        WHEN 'admission_audit' THEN
            RETURN QUERY DELETE FROM admission_audit r WHERE r.id = ANY (ids) AND r.at < cut_off RETURNING r.id;
        WHEN 'erasures' THEN
            RETURN QUERY DELETE FROM erasures r WHERE r.id = ANY (ids) AND r.erased_at < cut_off RETURNING r.id;
        ELSE
            RAISE EXCEPTION 'no table of records: %', record_table USING ERRCODE = 'invalid_parameter_value';
    END CASE;
END $$;
COMMENT ON FUNCTION dispatchq_remove_old_records IS 'the only way in which records of staff and erasures are removed';

-- Writes how a delivery ended, once; null: it arrived. A claimed try has the text below until then.
CREATE FUNCTION dispatchq_end_attempt(message bigint, attempt integer, problem text) RETURNS void
    LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE outbox_attempts SET error = problem WHERE outbox_id = message AND attempt_no = attempt AND error = 'no answer was recorded';
$$;

-- Writes how far an erasure is, until it is done.
CREATE FUNCTION dispatchq_note_erasure(
    erased text, erased_id text, since timestamptz, how_far jsonb, done_orders bigint
) RETURNS void
    LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE erasures SET progress = how_far, orders = done_orders
    WHERE subject = erased AND subject_id = erased_id AND erased_at = since AND orders IS NULL;
$$;

-- Takes a driver's id out of records of staff. It serves erasures alone, and so asks for one of this driver.
CREATE FUNCTION dispatchq_redact_staff_actions(ids bigint[], driver text, pseudonym text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    redacted bigint;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM erasures e WHERE e.subject = 'driver' AND e.subject_id = driver) THEN
        RAISE EXCEPTION 'no erasure of this driver is recorded' USING ERRCODE = 'insufficient_privilege';
    END IF;
    UPDATE staff_actions s
    SET subject = CASE WHEN s.subject = driver OR right(s.subject, length(driver) + 1) = ' ' || driver
                       THEN left(s.subject, length(s.subject) - length(driver)) || pseudonym ELSE s.subject END,
        reason = NULL
    WHERE s.id = ANY (ids);
    GET DIAGNOSTICS redacted = ROW_COUNT;
    RETURN redacted;
END $$;

DO $$
DECLARE
    name text;
BEGIN
    FOR name IN
        SELECT p.oid::regprocedure::text FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proname IN (
            'dispatchq_remove_old_records', 'dispatchq_end_attempt', 'dispatchq_note_erasure', 'dispatchq_redact_staff_actions')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', name, current_schema());
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', name);
    END LOOP;
    -- A login that writes records may have old ones removed.
    FOR name IN
        SELECT DISTINCT pg_get_userbyid(a.grantee) FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'staff_actions'::regclass AND a.privilege_type = 'INSERT' AND a.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatchq_remove_old_records(text, bigint[], interval) TO %I', name);
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatchq_end_attempt(bigint, integer, text) TO %I', name);
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatchq_note_erasure(text, text, timestamptz, jsonb, bigint) TO %I', name);
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatchq_redact_staff_actions(bigint[], text, text) TO %I', name);
    END LOOP;
END $$;
