-- Processes keep the keys they have looked up, and ask again only when one may have ended.

-- Raised with every change of a key, and when a driver is let in or out: processes look at nothing else until it has changed.
CREATE TABLE key_revision (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL DEFAULT 1
);
INSERT INTO key_revision DEFAULT VALUES;
CREATE FUNCTION dispatchq_keys_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE key_revision SET number = number + 1;
    RETURN NULL;
END $$;
-- Not of last_used_at: it changes all day long. A new key is not known to any process yet.
CREATE TRIGGER changed AFTER UPDATE OF id, name, sha256, role, driver_id, expires_at, revoked_at OR DELETE ON api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_keys_changed();
CREATE TRIGGER keys_changed AFTER UPDATE OF id, disabled_at OR DELETE ON drivers
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_keys_changed();

-- With the end of each key: who keeps a key must not believe it for longer.
CREATE OR REPLACE VIEW valid_api_keys AS
    SELECT id, name, sha256, role, driver_id, created_at, revoked_at, expires_at
    FROM api_keys k
    WHERE revoked_at IS NULL
      AND (expires_at IS NULL OR expires_at > dispatchq_now())
      AND NOT EXISTS (SELECT 1 FROM drivers d WHERE d.id = k.driver_id AND d.disabled_at IS NOT NULL);
