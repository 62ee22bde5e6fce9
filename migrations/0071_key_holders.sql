-- A holder of API keys is one name, however it is written, and keeps its Idempotency-Keys when its key is rotated.

-- The form by which names are compared. Programs of this version write it themselves (model::key_name); this function serves
-- programs of the version before, and rows that exist already.
CREATE FUNCTION dispatchq_name_key(name text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT lower(btrim(regexp_replace(
        regexp_replace(normalize(name, NFKC), '[\u00AD\u061C\u200B-\u200F\u202A-\u202E\u2060-\u2069\uFEFF]', '', 'g'),
        '\s+', ' ', 'g')))
$$;

ALTER TABLE api_keys
    ADD COLUMN name_key  text,
    ADD COLUMN holder_id uuid;
COMMENT ON COLUMN api_keys.name_key IS 'the name as it is compared: NFKC, without case; live look-alikes from before this rule also have their exact name behind a line end';
COMMENT ON COLUMN api_keys.holder_id IS 'the same for all keys of a name and role, or of a driver; Idempotency-Keys belong to it';

-- Of live names that look alike one gets the plain form: the producer's, for orders belong to it, then the oldest.
WITH names AS (
    SELECT name, dispatchq_name_key(name) AS plain,
           row_number() OVER (PARTITION BY dispatchq_name_key(name)
                              ORDER BY bool_or(role = 'producer') DESC, min(created_at), name) AS rank
    FROM api_keys WHERE revoked_at IS NULL AND superseded_at IS NULL GROUP BY name)
UPDATE api_keys k
SET name_key = coalesce(n.plain || CASE WHEN n.rank > 1 THEN E'\n' || n.name ELSE '' END, dispatchq_name_key(k.name))
FROM api_keys same LEFT JOIN names n ON n.name = same.name
WHERE same.id = k.id;
-- A holder has the id of its newest key: programs of the version before keep Idempotency-Keys under that id.
UPDATE api_keys k SET holder_id = h.holder_id
FROM (SELECT id, first_value(id) OVER (PARTITION BY role, coalesce(driver_id, name_key)
                                       ORDER BY revoked_at IS NOT NULL, superseded_at IS NOT NULL, created_at DESC, id DESC)
                 AS holder_id
      FROM api_keys) h
WHERE h.id = k.id;
CREATE UNIQUE INDEX api_keys_one_per_look ON api_keys (name_key) WHERE revoked_at IS NULL AND superseded_at IS NULL;
CREATE INDEX api_keys_by_name ON api_keys (name_key, role);

-- Completes new keys, by whichever program. An erased name leaves no other form of itself.
CREATE FUNCTION dispatchq_complete_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        NEW.name_key := dispatchq_name_key(NEW.name);
        RETURN NEW;
    END IF;
    IF NEW.name_key IS NULL THEN
        NEW.name_key := dispatchq_name_key(NEW.name);
        SELECT k.name_key INTO NEW.name_key FROM api_keys k
        WHERE k.name_key IN (NEW.name_key, NEW.name_key || E'\n' || NEW.name) ORDER BY k.name_key DESC LIMIT 1;
        NEW.name_key := coalesce(NEW.name_key, dispatchq_name_key(NEW.name));
    END IF;
    IF NEW.driver_id IS NULL THEN
        NEW.holder_id := (SELECT k.holder_id FROM api_keys k
                          WHERE k.name_key = NEW.name_key AND k.role = NEW.role ORDER BY k.created_at DESC LIMIT 1);
    ELSE
        NEW.holder_id := (SELECT k.holder_id FROM api_keys k
                          WHERE k.driver_id = NEW.driver_id ORDER BY k.created_at DESC LIMIT 1);
    END IF;
    NEW.holder_id := coalesce(NEW.holder_id, NEW.id);
    RETURN NEW;
END $$;
CREATE TRIGGER complete_new BEFORE INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION dispatchq_complete_key();
CREATE TRIGGER complete_renamed BEFORE UPDATE OF name ON api_keys
    FOR EACH ROW WHEN (NEW.name <> OLD.name) EXECUTE FUNCTION dispatchq_complete_key();

CREATE OR REPLACE VIEW valid_api_keys AS
    SELECT id, name, sha256, role, driver_id, created_at, revoked_at, expires_at, holder_id
    FROM api_keys k
    WHERE revoked_at IS NULL
      AND (expires_at IS NULL OR expires_at > dispatchq_now())
      AND NOT EXISTS (SELECT 1 FROM drivers d WHERE d.id = k.driver_id AND d.disabled_at IS NOT NULL);

-- The column keeps its name and holds the holder's id. Rows of a key that has been replaced move to its holder; of rows that
-- then share a key one stays in place, the holder's own or the newest.
COMMENT ON COLUMN idempotency_keys.api_key_id IS 'api_keys.holder_id of the caller';
UPDATE idempotency_keys i SET api_key_id = k.holder_id FROM api_keys k
WHERE k.id = i.api_key_id AND k.holder_id <> k.id
  AND NOT EXISTS (SELECT 1 FROM idempotency_keys o JOIN api_keys s ON s.id = o.api_key_id
                  WHERE s.holder_id = k.holder_id AND o.key = i.key
                    AND (o.api_key_id = k.holder_id OR (o.created_at, o.api_key_id) > (i.created_at, i.api_key_id)));

-- Programs of the version before claim a key for the id of the API key. Their rows get the holder's id, so that none of both
-- versions does the work of one request again. Programs of this version write the holder's id, and pay for no look-up.
ALTER TABLE idempotency_keys ADD COLUMN by_holder boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN idempotency_keys.by_holder IS 'the program that wrote the row knew the holder; false of the version before';
CREATE FUNCTION dispatchq_claim_for_holder() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.api_key_id := coalesce((SELECT k.holder_id FROM api_keys k WHERE k.id = NEW.api_key_id), NEW.api_key_id);
    RETURN NEW;
END $$;
CREATE TRIGGER by_holder BEFORE INSERT ON idempotency_keys
    FOR EACH ROW WHEN (NOT NEW.by_holder) EXECUTE FUNCTION dispatchq_claim_for_holder();
