-- A producer's name in SQL follows the rule of key names, and a login records no other producer's name.

-- Returns a name in the form in which its key stores it: NFKC, trimmed, with single blanks, without characters that show nothing.
CREATE FUNCTION dispatchq_key_name(name text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT btrim(regexp_replace(regexp_replace(normalize(name, NFKC),
        '[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]',
        '', 'g'), '[ \u1680]+', ' ', 'g'))
$$;
COMMENT ON FUNCTION dispatchq_key_name IS 'a name in the form in which its API key stores it';

ALTER TABLE sql_producers ADD CONSTRAINT sql_producers_owner_is_key_name CHECK (owner = dispatchq_key_name(owner));

DO $$
DECLARE
    place record;
    definition text;
    changed text;
BEGIN
    FOR place IN
        SELECT * FROM (VALUES
            ('dispatchq_check_order', 'WHEN language COLLATE',
             'WHEN owner <> dispatchq_key_name(owner) THEN
            field := ''owner''; rule := format(''must be written as its key is named: "%s"'', dispatchq_key_name(owner));
        WHEN language COLLATE'),
            ('dispatchq_create_order', 'recorded_actor IS NULL OR recorded_actor !~ ''^producer:.''',
             '(recorded_actor = ''producer:'' || named_owner) IS NOT TRUE')
        ) AS change (name, before, after)
    LOOP
        SELECT pg_get_functiondef(p.oid) INTO STRICT definition
        FROM pg_proc p WHERE p.proname = place.name AND p.pronamespace = current_schema()::regnamespace;
        changed := replace(definition, place.before, place.after);
        IF changed = definition THEN
            RAISE EXCEPTION '% has another body', place.name;
        END IF;
        EXECUTE changed;
    END LOOP;
END $$;
